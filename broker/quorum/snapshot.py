"""Snapshots of the metadata log: file names, layout, and the check that a snapshot is complete.

This module is pure. A snapshot is a sequence of record batches: a control batch with the header
record, the version and the voters; the image as ordinary batches; a control batch with the footer.
A snapshot without a footer is incomplete, whatever its size, because the writer or sender was
interrupted. A cluster starts with a snapshot at offset 0 that contains only the voters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from broker.quorum.control_records import (
    KRaftVersion,
    SnapshotFooter,
    SnapshotHeader,
    Voters,
    build_control_batch,
    read_control_batch,
    voters_of,
    voters_record,
)
from broker.quorum.voters import KRAFT_VERSION, VoterSet
from protocol.errors import CorruptBatch
from protocol.types import NO_TIMESTAMP
from protocol.wire.primitives import Buffer
from protocol.wire.records import check_batch, iterate_batches, patch

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """The id of a snapshot.

    The snapshot covers all records below `end_offset`. `epoch` is the epoch of the last of these
    records.
    """

    end_offset: int
    epoch: int


BOOTSTRAP = SnapshotId(0, 0)
"""The snapshot with which a cluster starts."""


def file_name(snapshot_id: SnapshotId) -> str:
    """Return the file name of a snapshot, as Kafka writes it."""
    return f"{snapshot_id.end_offset:020}-{snapshot_id.epoch:010}.checkpoint"


def read_file_name(name: str) -> SnapshotId | None:
    """Return the id of the snapshot with this file name.

    Returns None for other files, such as snapshots that are not completely fetched.
    """
    found = _NAME.fullmatch(name)
    return SnapshotId(int(found[1]), int(found[2])) if found else None


def build_snapshot(
    snapshot_id: SnapshotId,
    voters: VoterSet,
    batches: Iterable[bytearray],
    timestamp_ms: int = NO_TIMESTAMP,
) -> bytes:
    """Return a whole snapshot around the image's batches. The offsets are written into these
    batches.

    `timestamp_ms` is the time of the newest record that the snapshot covers.
    """
    epoch = snapshot_id.epoch
    header = build_control_batch(
        [
            SnapshotHeader(last_contained_log_timestamp=timestamp_ms),
            KRaftVersion(kraft_version=KRAFT_VERSION),
            voters_record(voters),
        ],
        base_offset=0,
        epoch=epoch,
    )
    pieces = [header]
    offset = check_batch(header).record_count
    for batch in batches:
        patch(batch, offset, epoch)
        pieces.append(batch)
        offset += check_batch(batch).record_count
    pieces.append(build_control_batch([SnapshotFooter()], base_offset=offset, epoch=epoch))
    return b"".join(pieces)


def check_snapshot(content: Buffer) -> VoterSet:
    """Return the voters of a complete snapshot.

    Raises CorruptBatch or another WireError if a batch is corrupt, if the header is not first, if
    the footer is missing or not last, or if no voters are named.
    """
    voters: VoterSet | None = None
    end = 0
    offset = 0
    is_ended = False
    for header, batch in iterate_batches(content):
        check_batch(batch)
        if is_ended:
            raise CorruptBatch("the metadata snapshot continues after its footer")
        if header.base_offset != offset:
            raise CorruptBatch(
                f"the metadata snapshot has a batch at offset {header.base_offset}, expected "
                f"{offset}"
            )
        records = [one for _, one in read_control_batch(batch)] if header.is_control else []
        if end == 0 and not (records and isinstance(records[0], SnapshotHeader)):
            raise CorruptBatch("the metadata snapshot does not start with a header record")
        for record in records:
            if isinstance(record, Voters):
                voters = voters_of(record)
            is_ended = is_ended or isinstance(record, SnapshotFooter)
        offset = header.last_offset + 1
        end += len(batch)
    if not is_ended or end != len(content):
        raise CorruptBatch(
            f"the metadata snapshot of {len(content)} bytes does not end with a footer record, "
            "so it is incomplete"
        )
    if voters is None:
        raise CorruptBatch("the metadata snapshot has no record that names the voters")
    return voters
