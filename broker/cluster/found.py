"""Whether a broker may go on with what stands on its own disk.

Floor: cluster. Pure. `quorum_state` has read the disk and found it whole; here it is judged
against the configuration. The voter set is stored behind the vote file, and both before the first
vote. So a disk that has voted and names no voters has lost them: it must neither vote nor be taken
for an empty one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.cluster.reports import Report
from broker.quorum.voters import ReplicaKey
from protocol.types import uuid_to_base64

LONE_EPOCH = 1
"""The epoch of all that a broker wrote before there was a quorum: it led alone, without a vote. A
vote file begins with it, so that the first election takes the next one."""


class Refused(Exception):
    """The broker must not start like this; the text says what was found, and what to do."""


@dataclass(frozen=True, slots=True)
class Found:
    """The report of the own disk, and the epoch of its vote file, None where it has none."""

    report: Report
    vote_epoch: int | None = None


def voters_found(found: Found) -> tuple[ReplicaKey, ...]:
    """The voter set with which this disk may go on at once; empty for a disk that must ask others.

    It is to be stored, also where it was read from the disk: a process that was killed may have
    written it and not have made it durable. A folder from before there was a quorum names its own
    broker, if that is configured alone. Raises Refused.
    """
    report = found.report
    me, voters = report.me, report.voters
    if voters:
        check_named(me, voters, "its own data folder")
        ids = tuple(key.node_id for key in voters)
        # Fewer voters than brokers there are also while a voter with another disk is exchanged.
        is_lone = len(ids) == 1 < len(report.configured_ids)
        if is_lone or not set(ids) <= set(report.configured_ids):
            raise _other_size(ids, report.configured_ids)
        return voters
    if (found.vote_epoch or LONE_EPOCH) > max(report.metadata_last_epoch, LONE_EPOCH):
        raise _damaged(f"it has voted in epoch {found.vote_epoch}, but the voters are missing")
    if report.metadata_end_offset:
        if report.configured_ids != (me.node_id,):
            raise _other_size((me.node_id,), report.configured_ids)
        return (me,)
    if report.replicas:
        raise _damaged("it holds partitions, but no metadata that says whose they are")
    return ()


def check_named(me: ReplicaKey, voters: tuple[ReplicaKey, ...], where: str) -> None:
    """Whether a set that stands somewhere names this broker with this disk. Raises Refused."""
    if me in voters:
        return
    named = [key for key in voters if key.node_id == me.node_id]
    if named:
        raise Refused(
            f"according to {where} broker {me.node_id} votes with data folder "
            f"{uuid_to_base64(named[0].directory_id)}, but the one it has is "
            f"{uuid_to_base64(me.directory_id)}: it was emptied or exchanged. Bring the old folder "
            "back, or take the voter out and add it anew"
        )
    raise Refused(
        f"according to {where} the voters are brokers {listed(key.node_id for key in voters)}, and "
        f"broker {me.node_id} is none of them. Adding brokers to a cluster is not supported yet: "
        "start those that belong to it"
    )


def listed(ids: Iterable[int]) -> str:
    """Ids for a sentence."""
    return ", ".join(str(one) for one in ids)


def _damaged(what: str) -> Refused:
    return Refused(
        f"the data folder is damaged: {what}. Bring back what was there; to give this broker up, "
        "empty the folder, and it must then be taken out of the voters and added anew"
    )


def _other_size(ids: tuple[int, ...], configured_ids: tuple[int, ...]) -> Refused:
    whose = f"of broker {ids[0]} alone" if len(ids) == 1 else f"of brokers {listed(ids)}"
    return Refused(
        f"the data folder belongs to a cluster {whose}, but configured are "
        f"{listed(configured_ids)}: a cluster cannot grow or shrink yet. Set cluster.brokers: "
        f"{len(ids)}, or start with empty data folders"
    )
