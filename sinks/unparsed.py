"""Stores lines that did not parse: counts all, and keeps the first ones of each file and day.

This runs inside the merge's transaction, so the counts are as exact as those of metrics.
"""

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from sinks.keys import cut, file_hash
from sinks.rows import Batch

SAMPLES_PER_FILE_AND_DAY = 1_000
SAMPLE_BYTES_MAX = 4_096
SAMPLES_KEPT_DAYS = 30
REASON_CHARACTERS_MAX = 64


def write_unparsed(cursor: Any, batch: Batch) -> None:
    """Add a batch's counts, and keep its samples up to the limit per file and day."""
    if not batch.unparsed:
        return
    rows = sorted(
        (
            row.topic,
            file_hash(row.file),
            row.reason[:REASON_CHARACTERS_MAX],
            cut(row.file),
            row.count,
        )
        for row in batch.unparsed
    )
    cursor.executemany(
        "INSERT INTO unparsed (topic, file_hash, reason, file, `count`) VALUES (%s,%s,%s,%s,%s) "
        "ON DUPLICATE KEY UPDATE `count` = `count` + VALUES(`count`)",
        rows,
    )
    _keep_samples(cursor, batch)


def _keep_samples(cursor: Any, batch: Batch) -> None:
    day = datetime.fromtimestamp(batch.now_ms / 1000, UTC).date()
    by_file: dict[bytes, list[tuple[object, ...]]] = defaultdict(list)
    for row in batch.unparsed:
        digest = file_hash(row.file)
        reason = row.reason[:REASON_CHARACTERS_MAX]
        for sample in row.samples:
            line = sample.line[:SAMPLE_BYTES_MAX]
            by_file[digest].append(
                (row.topic, sample.partition, sample.offset, day, digest, reason, line)
            )
    for digest, samples in by_file.items():
        cursor.execute(
            "SELECT COUNT(*) FROM unparsed_lines WHERE day = %s AND file_hash = %s", (day, digest)
        )
        room = SAMPLES_PER_FILE_AND_DAY - int(cursor.fetchone()[0])
        if room > 0:
            # A line can fail in several metrics; its first reason is kept.
            cursor.executemany(
                "INSERT INTO unparsed_lines (topic, part, `offset`, day, file_hash, reason, line) "
                "VALUES (%s,%s,%s,%s,%s,%s,%s) ON DUPLICATE KEY UPDATE part = VALUES(part)",
                sorted(samples, key=lambda row: row[:3])[:room],
            )
