"""Each sequence of events succeeds. It fails if its guard is removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.fetch.replica_fetch import ReplicaFetches
from broker.replicas import followers
from broker.replicas.flusher import Flusher
from broker.replicas.followers import Followers
from broker.replication import follower_lag
from broker.replication.follower_session import FollowerSession
from broker.sessions.peers import LinkKind
from tests.harness.seed import seeded
from tests.sim import catch_up_scripts as scripts
from tests.sim.replicated_nodes import MOVES
from tests.sim.test_replicated_nodes import live

LIVES = 4


def _copies_on_data(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(followers, "first_link", lambda replica: LinkKind.DATA)


def _synced_together(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Flusher, "keep_apart", lambda self, log, is_apart: None)


def _in_sync_exempt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Followers, "_choose", lambda self, replica: None)


def _fetched_soon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaFetches, "_has_caught_up", lambda self, line, named: False)


def _one_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowerSession, "lose", lambda self, partition: False)


def _told_what_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowerSession, "lose", FollowerSession.put_out)


def _of_one_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Followers, "_has_catch_up", lambda self, leader: True)


GUARDS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = {
    "63 in sync is exempt": (_in_sync_exempt, scripts.no_acknowledgement_waits_for_a_copy),
    "63 copies have a link": (_copies_on_data, scripts.no_acknowledgement_waits_for_a_copy),
    "63 copies have a sync": (_synced_together, scripts.no_acknowledgement_waits_for_a_copy),
    "fetched soon on DATA": (
        _fetched_soon,
        scripts.a_copied_partition_comes_to_data_when_it_has_caught_up,
    ),
    "one session": (_one_session, scripts.one_session_has_a_partition_at_a_time),
    "one session with an older leader": (
        _of_one_version,
        scripts.a_leader_of_1_0_0_rc1_has_one_session_with_a_follower,
    ),
    "told what is lost": (_told_what_is_lost, scripts.a_late_request_takes_no_partition_for_good),
}


@pytest.mark.parametrize("script", scripts.SCRIPTS, ids=lambda script: script.__name__)
def test_copies_come_through(script: Callable[[], None]) -> None:
    script()


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_that_is_taken_out_is_missed(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_out, script = GUARDS[guard]
    take_out(monkeypatch)
    with pytest.raises(AssertionError):
        script()


def test_partitions_that_change_links_all_the_time_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All faults happen at random, and replicas are added and removed. A follower counts as far
    behind after few records, so that partitions change their link often."""
    monkeypatch.setattr(follower_lag, "FAR_BYTES", 300)
    monkeypatch.setattr(follower_lag, "FAR_MS", 20)
    # Let a copy begin on DATA, so that it must change its link.
    _copies_on_data(monkeypatch)
    for kind in LinkKind.DATA, LinkKind.CATCH_UP:
        monkeypatch.setitem(followers.BYTES_MAX, kind, 700)
    chance = seeded("links")
    clusters = [
        live(f"links {chance.getrandbits(32)}", chance.choice((3, 4)), faults=MOVES)
        for _ in range(LIVES)
    ]
    assert sum(len(one.acked) for one in clusters) > 20 * LIVES
