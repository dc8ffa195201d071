"""Guards of transactions over several brokers, each with a function that removes it from the tested
code. The numbers refer to `docs/guards.md`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest import MonkeyPatch

from broker.shards import marker_sender
from broker.shards.marker_sender import MarkerSender
from broker.shards.transactions import TxnCoordinator
from broker.shards.verifier import ClusterVerifier
from broker.storage.log import Log
from broker.storage.producer_state import ProducerStateManager
from protocol.errors import ErrorCode

Removal = Callable[[MonkeyPatch], None]


def _frozen_epoch(patch: MonkeyPatch) -> None:
    """Also remove the rules that hide this guard: a dropped shard sends no markers, and the epoch
    of a marker is fixed when it is built."""
    taken = marker_sender._take

    def take(ready: Any) -> Any:
        asked: Any = taken(ready)
        for wanted in asked.values():
            epoch = wanted.waiter._ending.loaded.replica.leader_epoch
            wanted.marker = wanted.marker._replace(coordinator_epoch=epoch)
        return asked

    patch.setattr(marker_sender, "_take", take)
    patch.setattr(TxnCoordinator, "on_dropped", lambda self, loaded: None)
    patch.setattr(TxnCoordinator, "serves", lambda self, loaded: True)


def _marker_fencing(patch: MonkeyPatch) -> None:
    patch.setattr(
        ProducerStateManager,
        "check_marker",
        lambda self, producer_id, producer_epoch, coordinator_epoch: self.check_epoch(
            producer_id, producer_epoch
        ),
    )


def _gone_is_not_committed(patch: MonkeyPatch) -> None:
    rested = MarkerSender._rest

    def rest(self: MarkerSender, node_id: int, line: Any, wanted: Any, code: ErrorCode) -> None:
        if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            wanted.waiter.reached()
        else:
            rested(self, node_id, line, wanted, code)

    patch.setattr(MarkerSender, "_rest", rest)
    patch.setattr(
        MarkerSender,
        "_give_back",
        lambda self, wanted: wanted.waiter.lost(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    )


def _verification(patch: MonkeyPatch) -> None:
    patch.setattr(ClusterVerifier, "is_elsewhere", lambda self, transactional_id: False)
    patch.setattr(ClusterVerifier, "refuse_outsider", lambda self, *asked: None)


def _held_back_until_the_marker_stands(patch: MonkeyPatch) -> None:
    def last_stable_offset(self: Log) -> int:
        first_open = min(self.producer_state.transactions.open.values(), default=1 << 62)
        return max(min(self.high_watermark, first_open), self.log_start_offset)

    patch.setattr(Log, "last_stable_offset", property(last_stable_offset))


GUARDS: dict[str, Removal] = {
    "31 frozen coordinator epoch": _frozen_epoch,
    "32 marker fencing": _marker_fencing,
    "33 gone is not committed": _gone_is_not_committed,
    "34 verification": _verification,
    "35 held back until the marker is committed": _held_back_until_the_marker_stands,
}
