"""Reads a leader's log for its followers, up to the last written batch.

A deletion of records can end in the middle of a batch. The log of an empty follower must begin with
the whole batch, so such a follower may read from below the log start offset.
"""

from __future__ import annotations

from broker.replicas.replica import Replica
from broker.replication.follower_session import LeaderLog
from broker.storage.log import Log
from broker.storage.lookup import first_batch_offset
from broker.storage.outcomes import ReadResult
from protocol.messages.fetch import FetchPartition
from protocol.types import NO_LEADER_EPOCH

NO_LIMIT = 2**63 - 1


def leader_log(replica: Replica, asked: FetchPartition) -> LeaderLog:
    """Return the state of the log at the moment of a fetch.

    Raises DiskError, CorruptionError or WireError if the first batch of the log cannot be read.
    """
    log = replica.log
    # A log that this broker does not lead can be truncated at this moment, so it is not read.
    start_offset = _start(log, asked) if replica.is_led else log.log_start_offset
    return LeaderLog(log.leader_epochs, start_offset, log.written_end_offset)


def read(log: Log, asked: FetchPartition, max_bytes: int, *, min_one_batch: bool) -> ReadResult:
    """Return whole batches from the follower's fetch offset on.

    Raises ApiError if the leader does not have this offset.
    """
    offset = asked.fetch_offset
    if _start(log, asked) <= offset < log.log_start_offset:
        end_offset = log.written_end_offset
        return log.segments.read(offset, max_bytes, end_offset, min_one_batch=min_one_batch)
    return log.read(offset, max_bytes, NO_LIMIT, min_one_batch=min_one_batch)


def _start(log: Log, asked: FetchPartition) -> int:
    """Return the lowest offset from which the follower may read."""
    start_offset = log.log_start_offset
    if asked.fetch_offset < start_offset and asked.last_fetched_epoch == NO_LEADER_EPOCH:
        return first_batch_offset(log.segments, start_offset)
    return start_offset
