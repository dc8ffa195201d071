"""What is shown of what was not looked at: as it was, and marked where that is not known.

Floor: pure, below `assemble`.
"""

from dataclasses import replace

from monitor.lag import Bound, Lag, LagSum, Measured, TimeLag, judge
from monitor.reader_status import Judged, ReaderStatus
from monitor.resting_cells import MadeCells, MarkedCells, RestingCells
from monitor.snapshot import GroupView, LagCell, Snapshot, TopicView

KAFKA_UNANSWERED = "no broker answered"


def resting(group: GroupView) -> GroupView:
    """A group that was not asked for: what is kept of it is looked at by few."""
    if isinstance(group.cells, MadeCells):
        return group
    return replace(group, cells=RestingCells(group.cells))


def without_kafka(base: Snapshot, previous: Snapshot) -> Snapshot:
    """No broker answered: everything known of them stays, marked as not known any more."""
    why = KAFKA_UNANSWERED
    unknown = judge(Measured(None, None, None))
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
        topics=tuple(_stale_topic(topic, why) for topic in previous.topics),
        unseen=previous.unseen,
        groups=tuple(_stale_group(group, unknown, why) for group in previous.groups),
    )


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
