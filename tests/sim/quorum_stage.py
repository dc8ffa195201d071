"""The simulated quorum under the control of a script, with a log of all effects.

Only commands deliver messages and complete writes. Only timeouts happen without a command.
`Stage.told` collects lines about each replica: its role, messages, responses, disk operations and
commits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from broker.quorum.events import (
    Answer,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Event,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    LeaderDead,
    Received,
    Request,
    Vote,
    VoteAnswer,
)
from broker.quorum.ready import Ready, Send
from broker.quorum.vote_file import ElectionState
from protocol.errors import ErrorCode
from protocol.wire.records import read_header
from tests.sim.quorum_disk import batch_of
from tests.sim.quorum_node import Asker, Node, image_of, proposal
from tests.sim.quorum_world import Mix, World


@dataclass
class Mail:
    """A message that has not arrived yet."""

    source: int
    target: int
    text: str
    arrive: Callable[[], None]
    fail: Callable[[], None]


class Actor(Node):
    """A replica that logs its actions. Its disk works only when the script orders it."""

    def _work(self) -> None:
        pass

    def _perform(self, ready: Ready) -> None:
        assert isinstance(self.world, Stage) and self.quorum is not None
        tell = partial(self.world.tell, self.node_id)
        replica, role = self.quorum.replica, self.quorum.role
        now = f"{type(role).__name__} in epoch {replica.epoch}"
        if role.leader_id not in (-1, self.node_id):
            now += f", leader {role.leader_id}"
        if now != self.world.roles.get(self.node_id):
            self.world.roles[self.node_id] = now
            tell(now)
        if ready.vote is not None:
            voted = ready.vote.voted.node_id if ready.vote.voted else "nobody"
            tell(f"to save: epoch {ready.vote.epoch}, vote for {voted}", is_detail=True)
        if ready.snapshot is not None:
            tell(f"to store: the snapshot to {ready.snapshot.end_offset}")
        if ready.truncate_to is not None:
            tell(f"to truncate: to {ready.truncate_to}")
        for data in ready.append:
            batch = batch_of(data)
            kind = "control" if read_header(data).is_control else _values(data)
            tell(f"to append: {batch.base_offset} {kind} of {batch.epoch}", is_detail=True)
        for result in ready.changes:
            tell(f"the change of the voters: {result.error.name} {result.reason}".rstrip())
        before = self.committed_offset
        super()._perform(ready)
        if self.committed_offset > before:
            tell(f"committed to {self.committed_offset}")

    def do_duties(self, count: int | None = None) -> None:
        """Let the disk complete its `count` oldest operations, or without a number all of them."""
        while self.disk.queue and count != 0:
            self.disk.finish_one()
            leaving = [one for one in self.waiting if one.until <= self.disk.done_count]
            self.waiting = [one for one in self.waiting if one.until > self.disk.done_count]
            for one in leaving:
                self._leave(one)
            count = None if count is None else count - 1


def _values(data: bytes) -> str:
    return " ".join(value.decode() for value in image_of([batch_of(data)]))


class Stage(World):
    """A cluster in which all replicas are stopped at first. The replicas 1 to `voters` are voters,
    and those above are observers."""

    def __init__(self, voters: int, observers: int = 0) -> None:
        super().__init__("stage", voters, observers, Mix())
        self._heap.clear()
        ids = list(range(1, voters + 1))
        self.nodes = {
            node_id: Actor(self, node_id, self.voters, ids)
            for node_id in range(1, voters + observers + 1)
        }
        self.disks = {node.key: [node.disk] for node in self.nodes.values()}
        self.roles: dict[int, str] = {}
        self.told: list[tuple[int, str]] = []
        self.mail: list[Mail] = []
        self.is_brief = False

    def tell(self, node_id: int, text: str, *, is_detail: bool = False) -> None:
        if not (self.is_brief and is_detail):
            self.told.append((self.now_ms, f"{node_id}: {text}"))

    def trace(self, node: Node, event: Event) -> None:
        pass

    def actor(self, node_id: int) -> Actor:
        node = self.nodes[node_id]
        assert isinstance(node, Actor)
        return node

    def preset(self, node_id: int, epochs: list[int], epoch: int) -> None:
        """Fill a disk before its start: one batch for each of `epochs`, whose value is
        `<epoch>.<offset>`, and `epoch` in the vote file."""
        disk = self.nodes[node_id].disk
        for number, batch_epoch in enumerate(epochs):
            batch = proposal([b"%d.%d" % (batch_epoch, number)])
            batch[0:8] = number.to_bytes(8, "big")
            batch[12:16] = batch_epoch.to_bytes(4, "big")
            disk.durable.batches.append(batch_of(bytes(batch)))
        disk.log = disk.durable.copy()
        disk.vote = ElectionState(epoch)

    # The network, under the control of the script.

    def ask(self, node: Node, send: Send) -> None:
        incarnation, request_id = node.incarnation, send.request_id
        other = self.nodes[send.node_id]

        def fail() -> None:
            node.answered(incarnation, request_id, None)

        def arrive() -> None:
            if other.is_up:
                asker = Asker(node.node_id, incarnation, request_id)
                other.receive(asker, Received(next(self._calls), send.request))
            else:
                fail()

        text = asked(send.request)
        self.mail.append(Mail(node.node_id, other.node_id, text, arrive, fail))
        self.tell(node.node_id, f"asks {other.node_id}: {text}", is_detail=True)
        self.after(send.timeout_ms, fail)

    def answer(self, node: Node, asker: Asker, answer: Answer) -> None:
        other = self.nodes[asker.node_id]
        text = answered(answer)
        arrive = partial(other.answered, asker.incarnation, asker.request_id, answer)
        self.mail.append(Mail(node.node_id, asker.node_id, text, arrive, lambda: None))
        self.tell(node.node_id, f"answers {asker.node_id}: {text}", is_detail=True)

    def take_mail(self, target: int, source: int) -> Mail | None:
        """Remove the oldest message from `source` to `target`, and return it. Return None if there
        is no message."""
        for mail in self.mail:
            if (mail.target, mail.source) == (target, source):
                self.mail.remove(mail)
                return mail
        return None

    def settle(self, node_ids: list[int]) -> None:
        """Deliver all messages and complete all writes among these replicas, until nothing is left.

        This ends, because a Fetch that finds no new records stays parked.
        """
        self.is_brief = True
        is_busy = True
        while is_busy:
            is_busy = False
            for node_id in node_ids:
                if self.nodes[node_id].disk.queue:
                    self.actor(node_id).do_duties()
                    is_busy = True
            for mail in list(self.mail):
                if mail.source in node_ids and mail.target in node_ids:
                    self.mail.remove(mail)
                    mail.arrive()
                    is_busy = True
        self.is_brief = False

    def is_dead(self, witness: int, leader_id: int) -> None:
        node = self.nodes[witness]
        assert node.quorum is not None
        node.handle(LeaderDead(leader_id, node.quorum.replica.epoch))


def asked(request: Request) -> str:
    """Return a short description of a request."""
    match request:
        case Vote():
            kind = "pre-vote" if request.is_pre_vote else "vote"
            log = f"{request.last_epoch_end_offset} of {request.last_epoch}"
            return f"{kind} in {request.epoch}, log ends at {log}"
        case BeginQuorumEpoch():
            return f"{request.leader_id} leads {request.leader_epoch}"
        case EndQuorumEpoch():
            first = ", ".join(str(key.node_id) for key in request.preferred)
            return f"{request.leader_id} leaves {request.leader_epoch}, next {first}"
        case Fetch():
            end = f"{request.fetch_offset} of {request.last_fetched_epoch}"
            return f"fetch in {request.current_leader_epoch} from {end}"
        case FetchSnapshot():
            piece = f"{request.snapshot_id.end_offset} from {request.position}"
            return f"snapshot to {piece}"


def answered(answer: Answer) -> str:
    """Return a short description of an answer."""
    text = "" if answer.error is ErrorCode.NONE else f"{answer.error.name} "
    match answer:
        case VoteAnswer():
            text += "granted " if answer.vote_granted else "refused "
        case FetchAnswer(diverging=diverging) if diverging is not None:
            text += f"diverging, {diverging.epoch} ended at {diverging.end_offset} "
        case FetchAnswer(snapshot_id=snapshot_id) if snapshot_id is not None:
            text += f"fetch the snapshot to {snapshot_id.end_offset} "
        case FetchAnswer(error=ErrorCode.NONE):
            batches = [batch_of(bytes(data)) for data in answer.batches]
            found = (
                f"{batches[0].base_offset} to {batches[-1].end_offset}" if batches else "nothing"
            )
            text += f"{found}, committed {answer.high_watermark} "
        case FetchSnapshotAnswer(error=ErrorCode.NONE):
            text += f"{len(answer.data)} bytes from {answer.position} of {answer.size_bytes} "
        case _:
            text += "" if text else "yes "
    leader = answer.leader_id if answer.leader_id >= 0 else "nobody"
    return f"{text}({leader} leads {answer.leader_epoch})"
