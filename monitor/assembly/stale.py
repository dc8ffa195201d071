"""The values of groups that were not polled: unchanged, or marked as unknown if they are invalid.

This module is pure.
"""

from dataclasses import replace

from monitor.lag.reader_status import Judged, ReaderStatus
from monitor.lag.rules import Bound, Lag, LagSum, Measured, TimeLag, judge
from monitor.state.moves import unanswered
from monitor.state.reading import GroupReading
from monitor.state.resting_cells import MadeCells, MarkedCells, RestingCells
from monitor.state.snapshot import GroupView, LagCell, Snapshot, TopicView

KAFKA_UNANSWERED = "no broker answered"
UNKNOWN_LAG = judge(Measured(None, None, None))

NOBODY_KNOWS = LagSum(0, 0, 1)
"""The lag of a group whose partitions are unknown. It has one unknown part, so the lag is not 0."""


def resting(group: GroupView) -> GroupView:
    """Return a group that was not polled. Its cells are packed in columns, because few of them are
    read.
    """
    if isinstance(group.cells, MadeCells):
        return group
    return replace(group, cells=RestingCells(group.cells))


def without_kafka(base: Snapshot, previous: Snapshot) -> Snapshot:
    """Return the snapshot when no broker answered: all values stay and are marked as unknown."""
    why = KAFKA_UNANSWERED
    return replace(
        base,
        cluster_id=previous.cluster_id,
        kafka_at_ms=previous.kafka_at_ms,
        quorum=previous.quorum,
        quorum_error=why,
        brokers=tuple(
            replace(
                b,
                alive=False,
                fenced=False,
                error=b.error or why,
                away_since_ms=b.away_since_ms or base.taken_at_ms,
            )
            for b in previous.brokers
        ),
        moves=unanswered(previous.moves),
        topics=tuple(_stale_topic(topic, why) for topic in previous.topics),
        unseen=previous.unseen,
        collectors=previous.collectors,
        groups=tuple(_stale_group(group, UNKNOWN_LAG, why) for group in previous.groups),
    )


def unread(group: GroupReading, before: GroupView | None, kind: str) -> GroupView:
    """Return a group whose commits could not be read: its last values, with unknown lags."""
    why = group.error or KAFKA_UNANSWERED
    if before is None:
        return GroupView(
            group_id=group.group_id,
            state=group.state,
            kind=kind,
            members=None,
            cells=(),
            total=NOBODY_KNOWS,
            time_lag=TimeLag(None, Bound.UNKNOWN),
            read_rate=None,
            eta_s=None,
            error=group.error,
            judged=Judged(ReaderStatus.UNKNOWN, why),
        )
    if isinstance(before.cells, MarkedCells) and before.judged.reason != why:
        # Remove the old mark first, because a mark on a mark for each cycle would make reading
        # slower and slower.
        before = replace(before, cells=before.cells.unmarked)
    stale = _stale_group(before, UNKNOWN_LAG, why)
    total = stale.total if stale.total.total else NOBODY_KNOWS
    return replace(stale, state=group.state, error=group.error, total=total)


def _stale_topic(topic: TopicView, why: str) -> TopicView:
    return replace(
        topic,
        partitions=tuple(
            replace(part, log_end_offset=None, write_rate=None, error=why)
            for part in topic.partitions
        ),
    )


def _stale_group(group: GroupView, unknown: Lag, why: str) -> GroupView:
    judged = Judged(ReaderStatus.UNKNOWN, why)
    if group.judged == judged:
        return group

    def stale(cell: LagCell) -> LagCell:
        return replace(
            cell,
            lag=unknown,
            time_lag=TimeLag(None, Bound.UNKNOWN),
            log_end_offset=None,
            read_rate=None,
            write_rate=None,
            judged=judged,
        )

    return replace(
        group,
        state="unknown",
        cells=MarkedCells(resting(group).cells, stale),
        by_lag=(),
        total=LagSum(0, 0, len(group.cells)),
        time_lag=TimeLag(None, Bound.UNKNOWN),
        read_rate=None,
        write_rate=None,
        eta_s=None,
        judged=judged,
    )
