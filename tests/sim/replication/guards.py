"""The guards of replication, each with a function that removes it from the tested code.

The numbers refer to `docs/guards.md`. The guards with letters are rules whose need this simulation
has shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytest import MonkeyPatch

from broker.replication import follower_session
from broker.replication.follower import LeaderFetch
from broker.replication.follower_steps import Append, FetchedPartition, Key
from broker.replication.isr import Isr
from broker.replication.leader import Assignment, LeaderLedger, LogEnds
from broker.replication.partition import PartitionState, RoleChange
from broker.replication.progress import FollowerProgress
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from protocol.types import NO_LEADER_EPOCH
from tests.sim.replication.broker import Broker

Removal = Callable[[MonkeyPatch], None]


def _leader_epoch_in_fetch(patch: MonkeyPatch) -> None:
    judged = PartitionState.refusal
    patch.setattr(PartitionState, "refusal", lambda self, _: judged(self, NO_LEADER_EPOCH))


def _last_fetched_epoch(patch: MonkeyPatch) -> None:
    asked = LeaderFetch._ask

    def ask(self: LeaderFetch, tracked: Any) -> FetchedPartition:
        one = asked(self, tracked)
        return FetchedPartition(one.key, one.fetch_offset, NO_LEADER_EPOCH, one.log_start_offset)

    patch.setattr(LeaderFetch, "_ask", ask)


def _iterated_truncation(patch: MonkeyPatch) -> None:
    done = LeaderFetch.truncated

    def truncated(self: LeaderFetch, key: Key, end_offset: int, last_epoch: int) -> None:
        done(self, key, end_offset, NO_LEADER_EPOCH)

    patch.setattr(LeaderFetch, "truncated", truncated)


def _maximal_isr(patch: MonkeyPatch) -> None:
    patch.setattr(LeaderLedger, "_waited_for", lambda self: self.isr.committed)


def _joiners_awaited(patch: MonkeyPatch) -> None:
    patch.setattr(LeaderLedger, "_is_joiner", lambda *_: False)


def _frozen_under_min_isr(patch: MonkeyPatch) -> None:
    never = property(lambda ledger: False, lambda ledger, is_under: None)
    patch.setattr(LeaderLedger, "is_under_min_isr", never)


def _offsets_per_epoch(patch: MonkeyPatch) -> None:
    remembered: dict[int, dict[int, FollowerProgress]] = {}
    assigned = PartitionState.assign

    def assign(
        self: PartitionState, seen: Assignment, ends: LogEnds, now_ms: int
    ) -> RoleChange | None:
        if self._leading is not None:
            remembered[id(self)] = self._leading.progress
        change = assigned(self, seen, ends, now_ms)
        if change is not None and self._leading is not None and id(self) in remembered:
            self._leading.progress.update(remembered[id(self)])
            self._leading._recount()
        return change

    patch.setattr(PartitionState, "assign", assign)


def _follower_reports_durable_end(patch: MonkeyPatch) -> None:
    appended = Broker._append

    def append(self: Broker, leader: int, action: Append) -> None:
        appended(self, leader, action)
        end_offset = self.logs[action.key.partition_index].log_end_offset
        self.fetchers[leader].synced(action.key, end_offset)

    patch.setattr(Broker, "_append", append)


def _leader_counts_durable_end(patch: MonkeyPatch) -> None:
    patch.setattr(Broker, "durable_end", lambda self, index: self.logs[index].log_end_offset)


def _joins_at_high_watermark(patch: MonkeyPatch) -> None:
    patch.setattr(LeaderLedger, "_holds_committed", lambda *_: True)


def _joins_at_epoch_start(patch: MonkeyPatch) -> None:
    patch.setattr(LeaderLedger, "_holds_earlier_epochs", lambda *_: True)


def _unclear_keeps_maximal(patch: MonkeyPatch) -> None:
    answered = Isr.answered

    def forget(self: Isr, number: int, code: ErrorCode) -> None:
        is_mine = number == self._in_flight
        answered(self, number, code)
        if is_mine and code is not ErrorCode.NONE:
            self.joining = ()

    patch.setattr(Isr, "answered", forget)


def _own_registration(patch: MonkeyPatch) -> None:
    assigned = PartitionState.assign

    def assign(
        self: PartitionState, seen: Assignment, ends: LogEnds, now_ms: int
    ) -> RoleChange | None:
        own, self._broker_epoch = self._broker_epoch, -1
        change = assigned(self, seen, ends, now_ms)
        self._broker_epoch = own
        if self._leading is not None:
            self._leading.broker_epoch = own
        return change

    patch.setattr(PartitionState, "assign", assign)


def _isr_from_the_log(patch: MonkeyPatch) -> None:
    """Let an ISR proposal take effect when its response comes, not when the metadata record is
    replayed. So it is used with the old min ISR."""
    proposed, answered = Isr.proposed, Isr.answered
    under_way: dict[int, Sequence[int]] = {}

    def propose(self: Isr, number: int, members: Sequence[int], now_ms: int) -> None:
        proposed(self, number, members, now_ms)
        under_way[id(self)] = members

    def answer(self: Isr, number: int, code: ErrorCode) -> None:
        is_mine = number == self._in_flight
        answered(self, number, code)
        if is_mine and code is ErrorCode.NONE:
            self.committed, self.joining = tuple(under_way[id(self)]), ()

    patch.setattr(Isr, "proposed", propose)
    patch.setattr(Isr, "answered", answer)


def _request_id(patch: MonkeyPatch) -> None:
    answered = LeaderFetch.on_answer

    def on_answer(
        self: LeaderFetch, request_id: int, answer: FetchResponse, now_ms: int
    ) -> list[Any]:
        return list(answered(self, self._in_flight or request_id, answer, now_ms))

    patch.setattr(LeaderFetch, "on_answer", on_answer)


def _comparable_start(patch: MonkeyPatch) -> None:
    patch.setattr(follower_session, "is_comparable", lambda *_: True)


def _truncation_by_epochs(patch: MonkeyPatch) -> None:
    started = Broker.start

    def start(self: Broker) -> None:
        if not self.is_up:
            for partition, log in self.logs.items():
                log.truncate_to(min(self.checkpoints[partition], log.log_end_offset))
        started(self)

    patch.setattr(Broker, "start", start)


GUARDS: dict[str, Removal] = {
    "1 leader epoch in Fetch": _leader_epoch_in_fetch,
    "2 last fetched epoch": _last_fetched_epoch,
    "3 iterated truncation": _iterated_truncation,
    "4 maximal ISR": _maximal_isr,
    "5 frozen under min ISR": _frozen_under_min_isr,
    "6 follower offsets per epoch": _offsets_per_epoch,
    "7 follower reports its durable end": _follower_reports_durable_end,
    "8 leader counts its durable end": _leader_counts_durable_end,
    "9 joins at the high watermark": _joins_at_high_watermark,
    "10 joins at the epoch's start": _joins_at_epoch_start,
    "15 maximal ISR kept on an unclear answer": _unclear_keeps_maximal,
    "17 own registration": _own_registration,
    "21 ISR only from the log": _isr_from_the_log,
    "39 request id on replies": _request_id,
    "a joiners are awaited": _joiners_awaited,
    "b nothing to compare at the start": _comparable_start,
    "c truncation by epochs": _truncation_by_epochs,
}
