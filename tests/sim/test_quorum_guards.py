"""Each guard of the quorum is removed, and a seed or a script then fails.

The numbers are those of `docs/guards.md`. The code has no switch for a guard, so a test replaces a
method. With the guard the same run succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.quorum import control_records, quorum
from broker.quorum.catch_up import CatchUp
from broker.quorum.election import Candidate, Prospective
from broker.quorum.events import Answer, Fetch, Request, Vote
from broker.quorum.leader import Leader
from broker.quorum.log_view import LogView
from broker.quorum.ready import Barrier, Reply
from broker.quorum.replica import NEVER_MS, MetadataReplica
from broker.quorum.roles import Move, ToCandidate
from broker.quorum.voter_changes import VoterChanges
from broker.quorum.voters import ReplicaKey, VoterSet
from protocol.errors import ErrorCode
from protocol.wire.records import iterate_batches
from tests.harness.plays import played
from tests.sim.quorum_player import QuorumPlayer
from tests.sim.quorum_world import Mix, World

Patch = pytest.MonkeyPatch

CHAOS_MS = 5_000
LIVES_MAX = 150
"""The most runs in which a removed guard must show. A guard that needs more runs gets a script
instead."""


def without_vote_barrier(patch: Patch) -> None:
    """22: send a granted vote before it is durable."""

    def reply(self: quorum.Quorum, call_id: int, answer: Answer) -> None:
        self.replica.out.replies.append(Reply(call_id, answer, Barrier.NOW))

    patch.setattr(quorum.Quorum, "_reply", reply)


def without_own_vote_saved(patch: Patch) -> None:
    """22: let a candidate send requests and count its own vote before that vote is durable."""
    begin, send = Candidate.begin, MetadataReplica.send

    def begin_at_once(self: Candidate, now_ms: int) -> Move | None:
        move = begin(self, now_ms)
        self._is_vote_durable = True
        self._ballot.grant(self._replica.me)
        return move

    def send_at_once(
        self: MetadataReplica, node_id: int, request: Request, barrier: Barrier
    ) -> int:
        return send(self, node_id, request, Barrier.NOW if isinstance(request, Vote) else barrier)

    patch.setattr(Candidate, "begin", begin_at_once)
    patch.setattr(MetadataReplica, "send", send_at_once)


def without_log_comparison(patch: Patch) -> None:
    """23: grant a vote to a candidate with any log."""
    patch.setattr(quorum, "is_up_to_date", lambda request, log: True)


def without_directory(patch: Patch) -> None:
    """24: identify a voter only by its node id, not by the directory of its disk."""

    def misaddressed(
        self: MetadataReplica, cluster_id: str, voter: ReplicaKey | None = None
    ) -> ErrorCode:
        is_other = voter is not None and voter.node_id != self.me.node_id
        return ErrorCode.INVALID_VOTER_KEY if is_other else ErrorCode.NONE

    patch.setattr(MetadataReplica, "misaddressed", misaddressed)


def without_own_epoch(patch: Patch) -> None:
    """25: let a leader commit records of earlier epochs that are on a majority."""
    patch.setattr(Leader, "_may_commit", lambda self, reached: True)


def without_sync_before_fetch(patch: Patch) -> None:
    """26: let a voter fetch again before the fetched records are durable."""
    send = MetadataReplica.send

    def send_at_once(
        self: MetadataReplica, node_id: int, request: Request, barrier: Barrier
    ) -> int:
        return send(self, node_id, request, Barrier.NOW if isinstance(request, Fetch) else barrier)

    patch.setattr(MetadataReplica, "send", send_at_once)


def without_check_quorum(patch: Patch) -> None:
    """46: let a leader lead on without reachable followers."""
    patch.setattr(Leader, "_check_quorum_at_ms", lambda self: NEVER_MS)


def without_pre_vote(patch: Patch) -> None:
    """47: let a voter that misses its leader raise the epoch at once."""
    patch.setattr(Prospective, "begin", lambda self, now_ms: ToCandidate())


def without_one_at_a_time(patch: Patch) -> None:
    """56: let the voters change again before the last change is committed."""
    patch.setattr(VoterChanges, "_check_none_open", lambda self: None)


def without_own_epoch_before_a_change(patch: Patch) -> None:
    """57: let a new leader change the voters before a record of its epoch is committed."""
    patch.setattr(VoterChanges, "_check_epoch_begun", lambda self, epoch_end_offset: None)


def without_sync_before_voters_are_served(patch: Patch) -> None:
    """58: serve a record of voters to followers while the leader can still lose it. Remove 56,
    too."""
    end = property(lambda self: self._replica.log.end_offset)
    patch.setattr(VoterChanges, "served_end_offset", end)
    without_one_at_a_time(patch)


def without_votes_of_observers(patch: Patch) -> None:
    """60: let a replica vote only if its own log lists it as a voter."""
    misaddressed = MetadataReplica.misaddressed

    def voters_only(
        self: MetadataReplica, cluster_id: str, voter: ReplicaKey | None = None
    ) -> ErrorCode:
        if voter is not None and not self.is_voter:
            return ErrorCode.INVALID_VOTER_KEY
        return misaddressed(self, cluster_id, voter)

    patch.setattr(MetadataReplica, "misaddressed", voters_only)


def without_catching_up(patch: Patch) -> None:
    """62: let an old copy of a disk vote and count at once."""
    patch.setattr(quorum, "CatchUp", lambda: None)


def without_fetching_as_an_observer(patch: Patch) -> None:
    """62: let the fetches of an old copy count as those of a voter before it has caught up."""
    patch.setattr(MetadataReplica, "fetch_key", property(lambda self: self.me))


def without_a_newer_record(patch: Patch) -> None:
    """62: take an old copy for caught up at the first high watermark that a leader tells it."""

    def fetched(
        self: CatchUp, log: LogView, leader_epoch: int, high_watermark: int, *, is_at_end: bool
    ) -> bool:
        return high_watermark <= log.durable_end_offset

    patch.setattr(CatchUp, "fetched", fetched)


def without_voters_restored(patch: Patch) -> None:
    """67: let a voter set stay in force after its record was truncated."""

    def truncate_to(self: MetadataReplica, offset: int) -> None:
        self.log.truncate_to(offset)
        self.out.truncate_to = offset

    patch.setattr(MetadataReplica, "truncate_to", truncate_to)


def without_leading_while_removed(patch: Patch) -> None:
    """Let no voter start an election while its removal is pending, although it may (Raft's
    dissertation, 4.2.2)."""
    patch.setattr(MetadataReplica, "may_lead", property(lambda self: self.is_voter))


def voters_of_any(content: bytes) -> VoterSet:
    """Return the voters of a snapshot, without checking that the snapshot has a footer."""
    for header, batch in iterate_batches(content):
        for _, record in control_records.read_control_batch(batch) if header.is_control else ():
            if isinstance(record, control_records.Voters):
                return control_records.voters_of(record)
    raise AssertionError("no voters in the snapshot")


def nothing(patch: Patch) -> None:
    """Change no code, because the test switches this guard off in the simulated world."""


@dataclass(frozen=True)
class MissedGuard:
    """A guard, a function that removes it, and the kind of runs that then fail."""

    take_away: Callable[[Patch], None]
    mix: Mix
    voters: int = 3
    observers: int = 0
    has_footer_check: bool = True
    checks_listed: bool = True


VOTES_LOST = Mix(
    crash=120, slow_disk=100, cut=0, resign=500, verdict=500, snapshot=0, loss=0.0, propose=500
)

CHANGES = Mix(change=30, crash=300, cut=400, resign=300, propose=300, snapshot=0)

BY_LIVES = {
    "22 vote fsynced first": MissedGuard(without_vote_barrier, VOTES_LOST, 5),
    "22 own vote fsynced first": MissedGuard(without_own_vote_saved, VOTES_LOST, 5),
    "23 log comparison": MissedGuard(without_log_comparison, Mix(crash=500, cut=700)),
    "24 directory": MissedGuard(without_directory, Mix(wipe=600, crash=500, cut=800)),
    "24 directory, by what is lost": MissedGuard(
        without_directory, Mix(wipe=600, crash=500, cut=800), checks_listed=False
    ),
    "26 fsync before the next Fetch": MissedGuard(without_sync_before_fetch, Mix()),
    "41 snapshot footer": MissedGuard(
        nothing, Mix(short_snapshot=True, snapshot=200, crash=700), has_footer_check=False
    ),
    "56 one change at a time": MissedGuard(without_one_at_a_time, CHANGES, 3, 2),
    "58 voters served when durable": MissedGuard(
        without_sync_before_voters_are_served,
        Mix(change=15, crash=0, all_crash=150, slow_disk=200, cut=0, snapshot=0),
        1,
        2,
    ),
    "60 observers vote": MissedGuard(without_votes_of_observers, CHANGES, 1, 2),
    "62 old copies catch up": MissedGuard(
        without_catching_up, Mix(copy=300, crash=700, cut=800, snapshot=0)
    ),
    "67 truncation restores the voters": MissedGuard(without_voters_restored, CHANGES, 3, 2),
}


def live(name: str, number: int, missed: MissedGuard, *, is_guarded: bool) -> None:
    world = World(f"{name}:{number}", missed.voters, missed.observers, missed.mix)
    if not is_guarded and not missed.has_footer_check:
        world.check_snapshot = voters_of_any
    if not missed.checks_listed:
        world.listed = set()
    world.chaos(CHAOS_MS)
    world.heal()


def found_by(name: str, missed: MissedGuard) -> int | None:
    """Return the number of the first run that fails without the guard, or None."""
    for number in range(LIVES_MAX):
        try:
            live(name, number, missed, is_guarded=False)
        except (AssertionError, ValueError):
            return number
    return None


@pytest.mark.parametrize("name", BY_LIVES)
def test_a_guard_is_missed_in_some_life(name: str, monkeypatch: Patch) -> None:
    missed = BY_LIVES[name]
    with monkeypatch.context() as patch:
        missed.take_away(patch)
        number = found_by(name, missed)
    assert number is not None, f"nothing goes wrong without guard {name}"
    print(f"guard {name}: missed in life {number}")
    live(name, number, missed, is_guarded=True)


SCRIPTS = Path(__file__).parents[1] / "scripts" / "quorum"


def test_guard_25_is_missed_in_figure_8(monkeypatch: Patch) -> None:
    script = (SCRIPTS / "own_epoch.txt").read_text()
    assert played(script, QuorumPlayer()) == script
    without_own_epoch(monkeypatch)
    with pytest.raises(AssertionError, match="two batches are committed at 1"):
        played(script, QuorumPlayer())


def test_guard_46_is_missed_by_a_leader_without_reachable_followers(monkeypatch: Patch) -> None:
    script = (SCRIPTS / "leader_silent.txt").read_text()
    assert "1: Resigned in epoch 1" in played(script, QuorumPlayer())
    without_check_quorum(monkeypatch)
    assert "1: Resigned in epoch 1" not in played(script, QuorumPlayer())


def test_guard_47_is_missed_when_a_voter_returns(monkeypatch: Patch) -> None:
    script = (SCRIPTS / "pre_vote.txt").read_text()
    assert "in epoch 2" not in played(script, QuorumPlayer())
    without_pre_vote(monkeypatch)
    assert "3: Candidate in epoch 2" in played(script, QuorumPlayer())


def test_guard_57_is_missed_when_a_change_of_an_earlier_epoch_comes_back(
    monkeypatch: Patch,
) -> None:
    script = (SCRIPTS / "change_before_own_epoch.txt").read_text()
    assert played(script, QuorumPlayer()) == script
    without_own_epoch_before_a_change(monkeypatch)
    with pytest.raises(AssertionError, match="two batches are committed at 3"):
        played(script, QuorumPlayer())


def test_guard_62_is_missed_when_an_old_copy_meets_a_deposed_leader(monkeypatch: Patch) -> None:
    script = (SCRIPTS / "old_copy.txt").read_text()
    assert played(script, QuorumPlayer()) == script
    for take_away in (
        without_catching_up,
        without_fetching_as_an_observer,
        without_a_newer_record,
    ):
        with monkeypatch.context() as patch:
            take_away(patch)
            with pytest.raises(AssertionError, match="two batches are committed at 4"):
                played(script, QuorumPlayer())


def test_a_voter_that_is_being_removed_must_be_able_to_lead(monkeypatch: Patch) -> None:
    script = (SCRIPTS / "removed_leader.txt").read_text()
    assert "2: Leader in epoch" in played(script, QuorumPlayer())
    without_leading_while_removed(monkeypatch)
    assert "Leader in epoch 2" not in played(script, QuorumPlayer())


def test_guard_22_shows_in_its_play_as_well(monkeypatch: Patch) -> None:
    script = (SCRIPTS / "vote_on_disk.txt").read_text()
    assert played(script, QuorumPlayer()) == script
    without_vote_barrier(monkeypatch)
    with pytest.raises(AssertionError, match="votes for"):
        played(script, QuorumPlayer())
