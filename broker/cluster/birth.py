"""How a cluster is born: who may write the first voter set, and how the others come to it.

Floor: cluster. Pure: events in, effects out, no clock. Birth is unanimous. A broker with an empty
disk asks all configured ones for their report. The lowest id alone makes a set, and only when all
are empty; whoever finds its id and its directory in a set stores that and may vote from then on.

A set must be made only where there is none, though answers are late and disks are emptied in
between. What keeps a second one from being made (decision 0053):

1. The lowest id asks twice. The second questions go out when all first answers are in, and must be
   answered by the same disks, empty still. A disk does not become empty again, so between the two
   rounds there was a moment at which all were, and no set stood anywhere.
2. Having told the lowest id that it is empty, a broker counts only reports it has asked for
   afterwards: what was said before that moment, and is still under way, makes nobody store a set.
3. From the decision to store a set until it is durable a broker reports nothing. It is empty no
   more, and cannot vouch for the set yet.
4. A set found on the own disk is stored again before it is reported or acted on: a process that was
   killed may have left it to the page cache alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import combinations

from broker.cluster.found import Found, Refused, check_named, listed, voters_found
from broker.cluster.reports import Report, in_order
from broker.quorum.voters import ReplicaKey
from protocol.types import Uuid, uuid_to_base64

ASK_INTERVAL_MS = 100
"""Before a broker is asked again that was empty, storing a set, or not there."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The own disk has been looked at."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Another broker wants the report; `call_id` comes back in the one answer to it."""

    call_id: int
    node_id: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The report that the question of that id was answered with."""

    question_id: int
    report: Report


@dataclass(frozen=True, slots=True)
class Failed:
    """That question will not be answered: no link, no time, or no report for now."""

    question_id: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The one `Store` is done: vote file and set are durable."""


@dataclass(frozen=True, slots=True)
class Tick:
    """`next_deadline_ms` has come."""


Event = Begin | Asked | Answered | Failed | Stored | Tick


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a broker for its report; `Answered` or `Failed` comes, within a time of the driver's."""

    question_id: int
    node_id: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The report to give to whoever has asked."""

    call_id: int
    report: Report


@dataclass(frozen=True, slots=True)
class NotYet:
    """No report can be given for now: the asker is to ask again."""

    call_id: int


@dataclass(frozen=True, slots=True)
class Store:
    """Make this set durable: the vote file first if there is none, then the snapshot at offset 0
    that names it, each with its folder; a set that is there already is synced. Then `Stored`."""

    voters: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The set is durable here: the broker may vote in it."""

    voters: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The broker must not start; the text says what was found, and what to do."""

    text: str


Effect = Ask | Answer | NotYet | Store | Done | Refuse


class Phase(Enum):
    """Where a broker stands. It asks, or asks a second time, stores, and is done or refused."""

    ASKING = auto()
    CONFIRMING = auto()
    """Of the lowest id alone: all were empty, and are asked once more."""
    STORING = auto()
    DONE = auto()
    REFUSED = auto()


class Birth:
    """One process of one broker. `step(Begin())` comes first."""

    def __init__(self, found: Found) -> None:
        self.phase = Phase.ASKING
        self.voters: tuple[ReplicaKey, ...] = ()
        """The set that is being stored, or has been."""
        self._found = found
        self._report = replace(found.report, voters=())
        self._me = found.report.me
        self._others = [one for one in found.report.configured_ids if one != self._me.node_id]
        self._is_lowest = all(self._me.node_id < one for one in self._others)
        self._lowest_id = min(found.report.configured_ids)
        self._questions: dict[int, int] = {}
        """Those under way: id -> who was asked."""
        self._question_count = 0
        self._counted_from = 0
        """The first question whose answer may name a set: rule 2."""
        self._due_ms: dict[int, int] = {}
        """When to ask whom again."""
        self._first: dict[int, Uuid] = {}
        self._second: dict[int, Uuid] = {}
        """Of the lowest id: the disks that were empty in each round, by broker."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When a `Tick` is due; None while nothing is waited for but answers."""
        return min(self._due_ms.values(), default=None)

    @property
    def waits_for(self) -> list[int]:
        """The brokers without whose answer it does not go on, for whoever wonders why."""
        if self.phase not in (Phase.ASKING, Phase.CONFIRMING):
            return []
        if not self._is_lowest:
            return [self._lowest_id]
        round_ = self._second if self.phase is Phase.CONFIRMING else self._first
        return [one for one in self._others if one not in round_]

    def step(self, event: Event, now_ms: int) -> Sequence[Effect]:
        """What follows from one event, to be done in this order."""
        try:
            return self._handle(event, now_ms)
        except Refused as error:
            self.phase = Phase.REFUSED
            self._forget_questions()
            return [Refuse(str(error))]

    def _handle(self, event: Event, now_ms: int) -> Sequence[Effect]:
        match event:
            case Begin():
                return self._begin()
            case Asked(call_id, node_id):
                return [self._answer(call_id, node_id)]
            case Answered(question_id, report):
                if question_id in self._questions:
                    return self._answered(question_id, report, now_ms)
            case Failed(question_id):
                if question_id in self._questions:
                    self._ask_later(self._questions.pop(question_id), now_ms)
            case Stored():
                assert self.phase is Phase.STORING, "nothing was to be stored"
                self.phase = Phase.DONE
                return [Done(self.voters)]
            case Tick():
                due = [one for one, due_ms in self._due_ms.items() if due_ms <= now_ms]
                return self._ask(due)
        return ()

    def _begin(self) -> Sequence[Effect]:
        if voters := voters_found(self._found):
            return self._store(voters)
        return self._ask(self._others) if self._others else self._store((self._me,))

    def _answer(self, call_id: int, node_id: int) -> Effect:
        if self.phase in (Phase.STORING, Phase.REFUSED):
            return NotYet(call_id)
        if self.phase is Phase.DONE:
            return Answer(call_id, replace(self._report, voters=self.voters))
        if node_id == self._lowest_id:
            self._counted_from = self._question_count
        return Answer(call_id, self._report)

    def _ask(self, nodes: Sequence[int]) -> list[Effect]:
        asks: list[Effect] = []
        for node_id in nodes:
            self._due_ms.pop(node_id, None)
            self._questions[self._question_count] = node_id
            asks.append(Ask(self._question_count, node_id))
            self._question_count += 1
        return asks

    def _ask_later(self, node_id: int, now_ms: int) -> None:
        self._due_ms[node_id] = now_ms + ASK_INTERVAL_MS

    def _answered(self, question_id: int, report: Report, now_ms: int) -> Sequence[Effect]:
        node_id = self._questions.pop(question_id)
        if not self._counts(question_id):
            return self._ask([node_id])
        if report.me.node_id != node_id:
            # An address may for a moment be that of another broker, which is no answer at all.
            self._ask_later(node_id, now_ms)
            return ()
        self._check_kin(report)
        if report.voters:
            check_named(self._me, report.voters, f"broker {node_id}")
            return self._store(report.voters)
        if not report.is_empty:
            raise Refused(
                f"broker {node_id} holds data of a broker that was alone, or has lost its voters; "
                f"no cluster of brokers {listed(report.configured_ids)} can be made over it. Start "
                "it alone, or with an empty data folder"
            )
        if self._is_lowest:
            return self._empty(node_id, report.me.directory_id)
        self._ask_later(node_id, now_ms)
        return ()

    def _counts(self, question_id: int) -> bool:
        """Rule 2."""
        return question_id >= self._counted_from

    def _check_kin(self, report: Report) -> None:
        """Whether two brokers are meant to be of one cluster."""
        ours, me = self._report, self._me
        if report.cluster_id != ours.cluster_id:
            raise Refused(
                f"broker {report.me.node_id} belongs to cluster {report.cluster_id}, broker "
                f"{me.node_id} to cluster {ours.cluster_id}: correct the address at which one of "
                "them is looked for, or give both the same secrets"
            )
        if report.configured_ids != ours.configured_ids:
            raise Refused(
                f"broker {report.me.node_id} is configured among brokers "
                f"{listed(report.configured_ids)}, broker {me.node_id} among brokers "
                f"{listed(ours.configured_ids)}: start all of them with the same configuration"
            )
        if report.me.directory_id == me.directory_id:
            raise _copied(me, report.me)

    def _empty(self, node_id: int, directory_id: Uuid) -> Sequence[Effect]:
        """The lowest id has heard of one more that is empty: rule 1."""
        asks: Sequence[Effect] = ()
        if self.phase is Phase.CONFIRMING:
            if directory_id == self._first[node_id]:
                self._second[node_id] = directory_id
                is_unanimous = len(self._second) == len(self._others)
                return self._store(self._set_of_all()) if is_unanimous else ()
            # Another disk, of which nobody knows since when it is empty: from the beginning.
            self.phase = Phase.ASKING
            self._first, self._second = {}, {}
            self._forget_questions()
            asks = self._ask([one for one in self._others if one != node_id])
        self._first[node_id] = directory_id
        if len(self._first) == len(self._others):
            self.phase = Phase.CONFIRMING
            asks = self._ask(self._others)
        return asks

    def _set_of_all(self) -> tuple[ReplicaKey, ...]:
        others = [ReplicaKey(node_id, self._first[node_id]) for node_id in self._others]
        for one, other in combinations(others, 2):
            if one.directory_id == other.directory_id:
                raise _copied(one, other)
        return in_order([self._me, *others])

    def _store(self, voters: tuple[ReplicaKey, ...]) -> Sequence[Effect]:
        self.phase = Phase.STORING
        self.voters = voters
        self._forget_questions()
        return [Store(voters)]

    def _forget_questions(self) -> None:
        """What is still answered to them is of no matter any more."""
        self._questions.clear()
        self._due_ms.clear()


def _copied(one: ReplicaKey, other: ReplicaKey) -> Refused:
    return Refused(
        f"brokers {one.node_id} and {other.node_id} both have data folder "
        f"{uuid_to_base64(one.directory_id)}: one is a copy of the other's. Give one of them an "
        "empty folder"
    )
