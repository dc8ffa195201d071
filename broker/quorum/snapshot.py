"""Snapshots of the metadata log: their names, their frame, and whether one is whole.

Floor: quorum. Pure. A snapshot is a run of record batches: a control batch with the header record,
the version and the voters; the image as ordinary batches; a control batch with the footer. Without
the footer it is not whole, whatever its size: whoever wrote or sent it was cut short, and an image
with a hole in it would be worse than none. A cluster is born with a snapshot at offset 0 that holds
voters only.
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
    """All below `end_offset` is in the snapshot; `epoch` is that of the last record below."""

    end_offset: int
    epoch: int


BOOTSTRAP = SnapshotId(0, 0)
"""The snapshot with which a cluster is born."""


def file_name(snapshot_id: SnapshotId) -> str:
    """The name of a snapshot's file, as Kafka writes it."""
    return f"{snapshot_id.end_offset:020}-{snapshot_id.epoch:010}.checkpoint"


def read_file_name(name: str) -> SnapshotId | None:
    """The snapshot that a file holds; None for other files, those half fetched among them."""
    found = _NAME.fullmatch(name)
    return SnapshotId(int(found[1]), int(found[2])) if found else None


def build_snapshot(
    snapshot_id: SnapshotId,
    voters: VoterSet,
    batches: Iterable[bytearray],
    timestamp_ms: int = NO_TIMESTAMP,
) -> bytes:
    """A whole snapshot around the image's batches, which are numbered through in place.

    `timestamp_ms`: that of the newest record of the log that the snapshot covers.
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
    """The voters in a snapshot that is whole.

    Raises CorruptBatch (or another WireError) when a batch is broken, when the header is not first,
    when the footer is missing or something stands behind it, or when it names no voters.
    """
    voters: VoterSet | None = None
    end = 0
    offset = 0
    is_ended = False
    for header, batch in iterate_batches(content):
        check_batch(batch)
        if is_ended:
            raise CorruptBatch("a snapshot goes on behind its footer")
        if header.base_offset != offset:
            raise CorruptBatch(f"a snapshot leaps from {offset} to {header.base_offset}")
        records = [one for _, one in read_control_batch(batch)] if header.is_control else []
        if end == 0 and not (records and isinstance(records[0], SnapshotHeader)):
            raise CorruptBatch("a snapshot does not begin with its header")
        for record in records:
            if isinstance(record, Voters):
                voters = voters_of(record)
            is_ended = is_ended or isinstance(record, SnapshotFooter)
        offset = header.last_offset + 1
        end += len(batch)
    if not is_ended or end != len(content):
        raise CorruptBatch(f"a snapshot of {len(content)} bytes without a footer at its end")
    if voters is None:
        raise CorruptBatch("a snapshot names no voters")
    return voters
