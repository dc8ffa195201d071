"""A leader's log as followers read it: to the end of what is written.

Floor: fetch. Records may have been deleted up to the middle of a batch. A log that holds nothing
yet has to begin with all of it, so a follower with such a log may ask from below our start.
"""

from __future__ import annotations

from broker.replicas.replica import Replica
from broker.replication.follower_session import LeaderLog
from broker.storage.log import Log
from broker.storage.lookup import first_batch_offset
from broker.storage.outcomes import LogRead
from protocol.messages.fetch import FetchPartition
from protocol.types import NO_LEADER_EPOCH

NO_LIMIT = 2**63 - 1


def leader_log(replica: Replica, asked: FetchPartition) -> LeaderLog:
    """The log at the moment of a fetch.

    Raises DiskError, CorruptionError or WireError where its first batch cannot be read.
    """
    log = replica.log
    # One that is not led here may be being cut, and is not looked into.
    start_offset = _start(log, asked) if replica.is_led else log.log_start_offset
    return LeaderLog(log.leader_epochs, start_offset, log.written_end_offset)


def read(log: Log, asked: FetchPartition, max_bytes: int, *, min_one_batch: bool) -> LogRead:
    """Whole batches from where a follower's log ends; ApiError where the leader's has none."""
    offset = asked.fetch_offset
    if _start(log, asked) <= offset < log.log_start_offset:
        end_offset = log.written_end_offset
        return log.segments.read(offset, max_bytes, end_offset, min_one_batch=min_one_batch)
    return log.read(offset, max_bytes, NO_LIMIT, min_one_batch=min_one_batch)


def _start(log: Log, asked: FetchPartition) -> int:
    """From where on a follower may read."""
    start_offset = log.log_start_offset
    if asked.fetch_offset < start_offset and asked.last_fetched_epoch == NO_LEADER_EPOCH:
        return first_batch_offset(log.segments, start_offset)
    return start_offset
