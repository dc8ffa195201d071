"""Decides whether a broker can start with the content of its own disk.

This module is pure. `quorum_state` has read the disk and found it undamaged. This module compares
it with the configuration. A broker stores the vote file first, then the voter set, and votes only
after both. So a disk with a vote but without a voter set has lost its voter set. Such a broker must
not vote, and its disk must not count as empty.
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
    """The report of this broker's own disk, and the epoch in its vote file (None without a vote
    file)."""

    report: BrokerReport
    vote_epoch: int | None = None


def voters_found(found: DiskReport) -> tuple[ReplicaKey, ...]:
    """Return the voter set on this disk; empty if the broker must ask other brokers.

    The caller must store the set again even if it was read from the disk, because a killed process
    can have written it without an fsync. Raises DiskRefused.
    """
    report = found.report
    me, voters = report.me, report.voters
    if voters:
        check_named(me, voters, "its own data folder")
        ids = tuple(key.node_id for key in voters)
        # While an operator replaces a voter, the set can have fewer voters than there are brokers.
        is_lone = len(ids) == 1 < len(report.configured_ids)
        if is_lone or not set(ids) <= set(report.configured_ids):
            raise _other_size(ids, report.configured_ids)
        return voters
    if (found.vote_epoch or FIRST_EPOCH) > FIRST_EPOCH:
        raise _damaged(f"it has voted in epoch {found.vote_epoch}, but the voters are missing")
    if report.replicas:
        raise _damaged("it has partitions, but no metadata that names their topics")
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
        f"broker {me.node_id} is none of them. Adding brokers to a cluster is not supported yet: "
        "start the brokers that belong to it"
    )


def listed(ids: Iterable[int]) -> str:
    """Return the ids as text, separated by commas."""
    return ", ".join(str(one) for one in ids)


def _damaged(what: str) -> DiskRefused:
    return DiskRefused(
        f"the data folder is damaged: {what}. Restore the folder from a copy. To start "
        "without its data, empty the folder, remove the broker from the voters and add it again"
    )


def _other_size(ids: tuple[int, ...], configured_ids: tuple[int, ...]) -> DiskRefused:
    whose = f"of broker {ids[0]} alone" if len(ids) == 1 else f"of brokers {listed(ids)}"
    return DiskRefused(
        f"the data folder belongs to a cluster {whose}, but configured are "
        f"{listed(configured_ids)}: a cluster cannot grow or shrink yet. Set cluster.brokers: "
        f"{len(ids)}, or start with empty data folders"
    )
