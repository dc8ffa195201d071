"""The birth of a cluster: the brokers of a new cluster agree on its first voter set.

This module is pure: events come in, effects go out, and it reads no clock. All brokers must agree.
A broker with an empty disk asks every configured broker for its report. Only the broker with the
lowest id creates a voter set, and only when all disks are empty. A broker that finds its id and its
data directory in a reported set stores the set and can then vote.

A second voter set must never be created, although answers can be late and disks can be emptied at
any time. Four rules prevent it (decision 0053):

1. The broker with the lowest id asks twice. It sends the second questions when it has all first
   answers. The same disks must answer them, and they must still be empty. A disk that was emptied
   has a new directory id. So at one moment between the two rounds all disks were empty and no set
   existed.
2. After a broker reports to the lowest id that it is empty, it accepts a set only from reports that
   it requested afterwards. So a late report that was requested before cannot make a broker store a
   set.
3. Between its decision to store a set and the fsync of the set, a broker sends no report. It is not
   empty any more, and it cannot yet confirm the set.
4. A broker that finds a set on its own disk stores the set again before it reports or uses it. A
   process that was killed can have left the set only in the page cache.

An observer stores no voters and never sends a report. So no broker takes its disk for an empty one,
and no broker takes a voter set from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import combinations

from broker.cluster.found import (
    DiskRefused,
    DiskReport,
    check_named,
    listed,
    observes,
    voters_found,
)
from broker.cluster.reports import BrokerReport, in_order
from broker.quorum.voters import ReplicaKey
from protocol.types import Uuid, uuid_to_base64

ASK_INTERVAL_MS = 100
"""The wait in milliseconds before a broker is asked again, after it was empty, was storing a set,
or did not answer."""


@dataclass(frozen=True, slots=True)
class StartBirth:
    """Start the birth. The broker has read its own disk."""


@dataclass(frozen=True, slots=True)
class ReportRequested:
    """Another broker asks for this broker's report. The answer has the same `call_id`."""

    call_id: int
    node_id: int


@dataclass(frozen=True, slots=True)
class ReportReceived:
    """The report that answers the question with this id."""

    question_id: int
    report: BrokerReport


@dataclass(frozen=True, slots=True)
class ReportFailed:
    """The question with this id gets no answer, because the connection failed, the wait timed out,
    or the other broker cannot report yet."""

    question_id: int


@dataclass(frozen=True, slots=True)
class VotersStored:
    """The `StoreVoters` effect is done: the vote file and the voter set are durable."""


@dataclass(frozen=True, slots=True)
class BirthTick:
    """The time `next_deadline_ms` has been reached."""


Event = StartBirth | ReportRequested | ReportReceived | ReportFailed | VotersStored | BirthTick


@dataclass(frozen=True, slots=True)
class RequestReport:
    """Ask a broker for its report. The driver later passes in `ReportReceived` or
    `ReportFailed`."""

    question_id: int
    node_id: int


@dataclass(frozen=True, slots=True)
class SendReport:
    """Send this broker's report to the broker that asked."""

    call_id: int
    report: BrokerReport


@dataclass(frozen=True, slots=True)
class RejectQuestion:
    """Reject a question, because this broker cannot report yet. The other broker will ask again."""

    call_id: int


@dataclass(frozen=True, slots=True)
class StoreVoters:
    """Make this voter set durable. The driver then passes in `VotersStored`.

    If there is no vote file, write it first. Then write the snapshot at offset 0 that names the
    set. Fsync the folder after each file. If the set already exists, only fsync it.
    """

    voters: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class BirthDone:
    """The voter set is durable on this disk, so the broker can vote.

    The set is empty if the broker starts as an observer.
    """

    voters: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class RefuseStart:
    """The broker must not start. The text says what is wrong on the disk and what to do."""

    text: str


Effect = RequestReport | SendReport | RejectQuestion | StoreVoters | BirthDone | RefuseStart


class BirthPhase(Enum):
    """The phase of one broker: it asks the other brokers, asks them a second time (only the broker
    with the lowest id), and stores the set. In the end the birth is done or refused."""

    ASKING = auto()
    CONFIRMING = auto()
    """The broker with the lowest id asks all brokers again, because all disks were empty."""
    STORING = auto()
    DONE = auto()
    REFUSED = auto()


class Birth:
    """The birth of a cluster as one broker process sees it. The first event must be
    `StartBirth`."""

    def __init__(self, found: DiskReport) -> None:
        self.phase = BirthPhase.ASKING
        self.voters: tuple[ReplicaKey, ...] = ()
        """The voter set that is being stored or is durable."""
        self._found = found
        self._report = replace(found.report, voters=())
        self._me = found.report.me
        self._others = [one for one in found.report.configured_ids if one != self._me.node_id]
        self._is_lowest = all(self._me.node_id < one for one in self._others)
        self._lowest_id = min(found.report.configured_ids)
        self._questions: dict[int, int] = {}
        """The broker that was asked each unanswered question, by question id."""
        self._question_count = 0
        self._counted_from = 0
        """The id of the first question whose answer may name a voter set (rule 2)."""
        self._due_ms: dict[int, int] = {}
        """The time to ask a broker again, by broker id."""
        self._first: dict[int, Uuid] = {}
        self._second: dict[int, Uuid] = {}
        """The id of the empty disk that each broker reported in the first and in the second round.
        Only the broker with the lowest id uses them."""

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which a `BirthTick` is due; None if no broker must be asked again."""
        return min(self._due_ms.values(), default=None)

    @property
    def waits_for(self) -> list[int]:
        """The brokers whose answers are missing, for messages to operators."""
        if self.phase not in (BirthPhase.ASKING, BirthPhase.CONFIRMING):
            return []
        if not self._is_lowest:
            return [self._lowest_id]
        round_ = self._second if self.phase is BirthPhase.CONFIRMING else self._first
        return [one for one in self._others if one not in round_]

    def step(self, event: Event, now_ms: int) -> Sequence[Effect]:
        """Handle one event. The caller performs the returned effects in order."""
        try:
            return self._handle(event, now_ms)
        except DiskRefused as error:
            self.phase = BirthPhase.REFUSED
            self._forget_questions()
            return [RefuseStart(str(error))]

    def _handle(self, event: Event, now_ms: int) -> Sequence[Effect]:
        match event:
            case StartBirth():
                return self._begin()
            case ReportRequested(call_id, node_id):
                return [self._answer(call_id, node_id)]
            case ReportReceived(question_id, report):
                if question_id in self._questions:
                    return self._answered(question_id, report, now_ms)
            case ReportFailed(question_id):
                if question_id in self._questions:
                    self._ask_later(self._questions.pop(question_id), now_ms)
            case VotersStored():
                assert self.phase is BirthPhase.STORING, "nothing was to be stored"
                self.phase = BirthPhase.DONE
                return [BirthDone(self.voters)]
            case BirthTick():
                due = [one for one, due_ms in self._due_ms.items() if due_ms <= now_ms]
                return self._ask(due)
        return ()

    def _begin(self) -> Sequence[Effect]:
        if observes(self._found):
            return self._store(())
        if voters := voters_found(self._found):
            return self._store(voters)
        return self._ask(self._others) if self._others else self._store((self._me,))

    def _answer(self, call_id: int, node_id: int) -> Effect:
        is_observer = self.phase is BirthPhase.DONE and not self.voters
        if is_observer or self.phase in (BirthPhase.STORING, BirthPhase.REFUSED):
            return RejectQuestion(call_id)
        if self.phase is BirthPhase.DONE:
            return SendReport(call_id, replace(self._report, voters=self.voters))
        if node_id == self._lowest_id:
            self._counted_from = self._question_count
        return SendReport(call_id, self._report)

    def _ask(self, nodes: Sequence[int]) -> list[Effect]:
        asks: list[Effect] = []
        for node_id in nodes:
            self._due_ms.pop(node_id, None)
            self._questions[self._question_count] = node_id
            asks.append(RequestReport(self._question_count, node_id))
            self._question_count += 1
        return asks

    def _ask_later(self, node_id: int, now_ms: int) -> None:
        self._due_ms[node_id] = now_ms + ASK_INTERVAL_MS

    def _answered(self, question_id: int, report: BrokerReport, now_ms: int) -> Sequence[Effect]:
        node_id = self._questions.pop(question_id)
        if not self._counts(question_id):
            return self._ask([node_id])
        if report.me.node_id != node_id:
            # The address led to another broker, which can happen for a short time. Ask again later.
            self._ask_later(node_id, now_ms)
            return ()
        self._check_same_cluster(report)
        if report.voters:
            check_named(self._me, report.voters, f"broker {node_id}")
            return self._store(report.voters)
        if not report.is_empty:
            raise DiskRefused(
                f"the disk of broker {node_id} has data but no voters: the broker was "
                "configured alone before, or the record of its voters was lost. Brokers "
                f"{listed(report.configured_ids)} cannot form a cluster with it: start broker "
                f"{node_id} alone, or with an empty data folder"
            )
        if self._is_lowest:
            return self._note_empty(node_id, report.me.directory_id)
        self._ask_later(node_id, now_ms)
        return ()

    def _counts(self, question_id: int) -> bool:
        """Return True if rule 2 allows the use of the answer to this question."""
        return question_id >= self._counted_from

    def _check_same_cluster(self, report: BrokerReport) -> None:
        """Check that both brokers are configured for the same cluster. Raises DiskRefused."""
        ours, me = self._report, self._me
        if report.cluster_id != ours.cluster_id:
            raise DiskRefused(
                f"broker {report.me.node_id} belongs to cluster {report.cluster_id}, broker "
                f"{me.node_id} to cluster {ours.cluster_id}: correct the address that is "
                "configured for one of them, or give both the same secrets"
            )
        if report.configured_ids != ours.configured_ids:
            raise DiskRefused(
                f"broker {report.me.node_id} is configured among brokers "
                f"{listed(report.configured_ids)}, broker {me.node_id} among brokers "
                f"{listed(ours.configured_ids)}: start all of them with the same configuration"
            )
        if report.me.directory_id == me.directory_id:
            raise _copied_folder(me, report.me)

    def _note_empty(self, node_id: int, directory_id: Uuid) -> Sequence[Effect]:
        """Record that another broker's disk is empty.

        Only the broker with the lowest id calls this (rule 1).
        """
        asks: Sequence[Effect] = ()
        if self.phase is BirthPhase.CONFIRMING:
            if directory_id == self._first[node_id]:
                self._second[node_id] = directory_id
                is_unanimous = len(self._second) == len(self._others)
                return self._store(self._set_of_all()) if is_unanimous else ()
            # The broker has another disk than in its first answer. It is unknown since when that
            # disk is empty, so begin again with the first round of questions.
            self.phase = BirthPhase.ASKING
            self._first, self._second = {}, {}
            self._forget_questions()
            asks = self._ask([one for one in self._others if one != node_id])
        self._first[node_id] = directory_id
        if len(self._first) == len(self._others):
            self.phase = BirthPhase.CONFIRMING
            asks = self._ask(self._others)
        return asks

    def _set_of_all(self) -> tuple[ReplicaKey, ...]:
        others = [ReplicaKey(node_id, self._first[node_id]) for node_id in self._others]
        for one, other in combinations(others, 2):
            if one.directory_id == other.directory_id:
                raise _copied_folder(one, other)
        return in_order([self._me, *others])

    def _store(self, voters: tuple[ReplicaKey, ...]) -> Sequence[Effect]:
        self.phase = BirthPhase.STORING
        self.voters = voters
        self._forget_questions()
        return [StoreVoters(voters)]

    def _forget_questions(self) -> None:
        """Ignore all later answers to the questions so far."""
        self._questions.clear()
        self._due_ms.clear()


def _copied_folder(one: ReplicaKey, other: ReplicaKey) -> DiskRefused:
    return DiskRefused(
        f"brokers {one.node_id} and {other.node_id} both have data folder "
        f"{uuid_to_base64(one.directory_id)}: one is a copy of the other's. Give one of them an "
        "empty folder"
    )
