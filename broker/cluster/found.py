"""Decides whether a broker can start with the content of its own disk.

This module is pure. `quorum_state` has read the disk and found it undamaged. This module compares
it with the configuration. A broker stores the vote file first, then the voter set, and votes only
after both. So a disk with a vote but without a voter set has lost its voter set. Such a broker must
not vote, and must not report its disk as empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.cluster.reports import BrokerReport
from broker.quorum.voters import ReplicaKey
from protocol.types import uuid_to_base64

FIRST_EPOCH = 1
"""The epoch in a new vote file. The first election uses the next epoch."""


class DiskRefused(Exception):
    """The broker must not start with this disk. The text says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class DiskReport:
    """The facts that decide about the start: the report of this broker's own disk, and the epoch in
    its vote file (None without a vote file)."""

    report: BrokerReport
    vote_epoch: int | None = None
    is_newcomer: bool = False
    """True if this disk was first used by an observer, and its log does not name the voters yet."""
    joins: bool = False
    """True if the configuration says that this broker joins a cluster that exists."""


def observes(found: DiskReport) -> bool:
    """Return True if this broker starts as an observer: it does not vote until a record in the log
    names it, and it takes no part in the birth of a cluster.

    It starts as an observer if it is a newcomer, or if its log names other brokers as voters.
    Raises DiskRefused.
    """
    report = found.report
    me, voters = report.me, report.voters
    if not voters:
        is_blank = report.is_empty and (found.vote_epoch or FIRST_EPOCH) == FIRST_EPOCH
        return found.is_newcomer or (found.joins and is_blank)
    if any(key.node_id == me.node_id for key in voters):
        return False
    if report.configured_ids == (me.node_id,):
        raise _several(voters, me)
    return True


def voters_found(found: DiskReport) -> tuple[ReplicaKey, ...]:
    """Return the voter set on this disk; empty if the broker must ask other brokers.

    The caller must store the set again even if it was read from the disk, because a killed process
    can have written it without an fsync. Raises DiskRefused.
    """
    report = found.report
    me, voters = report.me, report.voters
    if voters:
        check_named(me, voters, "its own data folder")
        # Only the log says who votes. The configuration can name more brokers than there are
        # voters, or fewer, but a broker that is configured alone cannot reach other voters.
        if len(voters) > 1 and report.configured_ids == (me.node_id,):
            raise _several(voters, me)
        return voters
    if (found.vote_epoch or FIRST_EPOCH) > FIRST_EPOCH:
        raise _damaged(
            f"the vote file is in epoch {found.vote_epoch}, but no snapshot and no log names "
            "the voters"
        )
    if report.replicas:
        raise _damaged("there are partitions, but no metadata that names their topics")
    return ()


def check_named(me: ReplicaKey, voters: tuple[ReplicaKey, ...], where: str) -> None:
    """Check that the voter set names this broker with this disk. `where` says where the set was
    found.

    Raises DiskRefused.
    """
    if me in voters:
        return
    named = [key for key in voters if key.node_id == me.node_id]
    if named:
        raise DiskRefused(
            f"according to {where} broker {me.node_id} votes with data folder "
            f"{uuid_to_base64(named[0].directory_id)}, but its folder is now "
            f"{uuid_to_base64(me.directory_id)}, because it was emptied or replaced. Restore the "
            "old folder, or remove the voter and add it again"
        )
    raise DiskRefused(
        f"according to {where} the voters are brokers {listed(key.node_id for key in voters)}, and "
        f"broker {me.node_id} is none of them. To add it to their cluster, start it with joins: "
        "true and an empty data folder"
    )


def listed(ids: Iterable[object]) -> str:
    """Return ids, or other objects, as text, separated by commas."""
    return ", ".join(str(one) for one in ids)


def _damaged(what: str) -> DiskRefused:
    return DiskRefused(
        f"the data folder is damaged: {what}. Restore the folder from a copy. To start "
        "without its data, empty the folder, remove the broker from the voters and add it again"
    )


def _several(voters: tuple[ReplicaKey, ...], me: ReplicaKey) -> DiskRefused:
    ids = [key.node_id for key in voters]
    return DiskRefused(
        f"the data folder belongs to a cluster with the voters {listed(ids)}, but broker "
        f"{me.node_id} is configured alone: configure all brokers of the cluster, or remove the "
        f"other voters first"
    )
