"""Guards that only whole nodes have, each with a function that removes it from the tested code.
`replication/guards` has the guards of the cores. The numbers refer to `docs/guards.md`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pytest import MonkeyPatch

from broker.fetch import replica_fetch
from broker.fetch.replica_fetch import ReplicaFetches
from broker.replicas.fetch_source import FetchSource
from broker.replicas.folder_rules import FolderRules
from broker.replicas.follower_logs import FollowerLogs
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.replication.follower_steps import Append, PartitionId
from broker.storage.gap_mark import GapMark
from broker.storage.log import Log
from broker.storage.truncation import Truncation
from tests.sim.disk import SimDisk, SimFile
from tests.sim.replication.guards import GUARDS as CORE_GUARDS

NOTHING: Any = SimpleNamespace(perform=lambda: None)


def _leader_epoch_in_fetch(patch: MonkeyPatch) -> None:
    """Also remove the rule that hides this guard: when an epoch ends, the leader closes
    connections, so that a late Fetch does not arrive."""
    CORE_GUARDS["1 leader epoch in Fetch"](patch)
    patch.setattr(ReplicaFetches, "_hang_up", lambda self, replica: None)


def _follower_reports_durable_end(patch: MonkeyPatch) -> None:
    appended = FollowerLogs.append

    def append(self: FollowerLogs, source: FetchSource, replica: Replica, action: Append) -> None:
        appended(self, source, replica, action)
        source.fetch.synced(action.key, replica.log.log_end_offset)

    patch.setattr(FollowerLogs, "append", append)


def _leader_counts_durable_end(patch: MonkeyPatch) -> None:
    marked = Replica.on_written

    def on_written(self: Replica) -> None:
        marked(self)
        if self.is_led:
            self.on_durable()

    patch.setattr(Replica, "on_written", on_written)
    patch.setattr(Replica, "durable_end", lambda self: self.log.written_end_offset)


def _lowered_checkpoint_first(patch: MonkeyPatch) -> None:
    performed = Truncation.perform

    def perform(self: Truncation) -> Any:
        self._checkpoint = NOTHING
        return performed(self)

    patch.setattr(Truncation, "perform", perform)


def _truncation_is_synced(patch: MonkeyPatch) -> None:
    performed = Truncation.perform

    def perform(self: Truncation) -> Any:
        self._checkpoint.perform()
        self._checkpoint = NOTHING
        with MonkeyPatch.context() as unsynced:
            unsynced.setattr(SimFile, "datasync", lambda self: None)
            unsynced.setattr(SimDisk, "sync_folder", lambda self, path: None)
            return performed(self)

    patch.setattr(Truncation, "perform", perform)


def _topic_id(patch: MonkeyPatch) -> None:
    def by_index(self: Replicas, partition: PartitionId) -> Replica | None:
        return next((one for one in self if one.index == partition.partition_index), None)

    patch.setattr(Replicas, "by_id", by_index)


def _drained_before_a_cut(patch: MonkeyPatch) -> None:
    patch.setattr(Replicas, "begin_truncation", lambda self, replica, ready: ready())


def _gap_mark(patch: MonkeyPatch) -> None:
    patch.setattr(GapMark, "perform", lambda self: None)
    patch.setattr(Log, "gaps_are_marked", lambda self: setattr(self, "has_gap_mark", True))


def _removal_after_registration(patch: MonkeyPatch) -> None:
    patch.setattr(FolderRules, "_includes_registration", lambda self, image: True)


def _woken_before_the_sync(patch: MonkeyPatch) -> None:
    patch.setattr(ReplicaFetches, "written", lambda self, replica: None)
    patch.setattr(ReplicaFetches, "durable_advanced", _written)


def _hung_up_on(patch: MonkeyPatch) -> None:
    patch.setattr(ReplicaFetches, "_hang_up", lambda self, replica: None)


def _news(patch: MonkeyPatch) -> None:
    patch.setattr(replica_fetch, "NEWS_WAIT_MS", 500)


_written = ReplicaFetches.written

GUARDS: dict[str, Callable[[MonkeyPatch], None]] = {
    "1 leader epoch in Fetch": _leader_epoch_in_fetch,
    "7 follower reports its durable end": _follower_reports_durable_end,
    "8 leader counts its durable end": _leader_counts_durable_end,
    "36 lowered checkpoint before truncation": _lowered_checkpoint_first,
    "37 truncation synced before Fetch": _truncation_is_synced,
    "38 topic id on fetch": _topic_id,
    "40 gap mark": _gap_mark,
    "54 removal only after commit": _removal_after_registration,
    "drained of syncs before a cut": _drained_before_a_cut,
    "woken before the leader's own sync": _woken_before_the_sync,
    "hung up on when a leadership ends": _hung_up_on,
    "waited for less long by a new leader": _news,
}
