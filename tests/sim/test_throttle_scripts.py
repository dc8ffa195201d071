"""Each sequence of events with a throttle succeeds. It fails if its guard is removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.fetch.replica_fetch import ReplicaFetches
from broker.replicas import copies
from broker.replicas.copies import Copies
from broker.replicas.copy_limit import CopyLimit
from broker.replication.copy_queue import NOTHING, CopyQueue
from tests.sim import throttle_scripts as scripts


def _in_sync_exempt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ReplicaFetches,
        "_is_limited",
        lambda self, line, replica: self._ports.limit.is_limited(replica),
    )


def _first_batch_counts(patch: pytest.MonkeyPatch) -> None:
    room = CopyLimit.room
    patch.setattr(CopyLimit, "room", lambda self: room(self) or 1)


def _received_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CopyLimit, "take", lambda self, size_bytes: None)


def _queued(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CopyQueue, "sized", lambda self, *size, is_internal: NOTHING)


def _full_disks_pause(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(copies, "is_short", lambda space, was_short: False)


def _goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CopyQueue, "leave", lambda self, partition: NOTHING)


def _named_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CopyLimit, "is_limited", lambda self, replica: True)


def _follower_limits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copies, "_throttle", lambda self, source, now_ms: None)


GUARDS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = {
    "63 a rate holds nothing that is in sync": (
        _in_sync_exempt,
        scripts.a_leader_keeps_to_its_rate,
    ),
    "64 the first batch waits too": (_first_batch_counts, scripts.a_leader_keeps_to_its_rate),
    "what is received counts": (_received_counts, scripts.a_follower_keeps_to_its_rate),
    "a follower leaves copies out": (_follower_limits, scripts.a_follower_keeps_to_its_rate),
    "only what is listed": (_named_only, scripts.what_no_list_names_is_not_limited),
    "large copies wait": (_queued, scripts.large_copies_wait_for_their_turn),
    "the next one has its turn": (_goes_on, scripts.large_copies_wait_for_their_turn),
    "a full disk pauses copies": (_full_disks_pause, scripts.a_nearly_full_disk_pauses_copies),
}


@pytest.mark.parametrize("script", scripts.SCRIPTS, ids=lambda script: script.__name__)
def test_copies_that_are_held_back_come_through(script: Callable[[], None]) -> None:
    script()


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_that_is_taken_out_is_missed(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_out, script = GUARDS[guard]
    take_out(monkeypatch)
    with pytest.raises(AssertionError):
        script()
