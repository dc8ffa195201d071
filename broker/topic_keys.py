"""The settings of topics, with default and reason, in one table.

This module is pure and does not use pydantic, because a broker process must stay small. The value
of a topic setting comes from the topic, else from the broker key that is its synonym
(`log.retention.ms` for `retention.ms`), else from the default. One default differs from Kafka's:
`flush.messages` is 1, so that an acknowledged batch is durable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.settings import (
    LIST_LENGTH_MAX,
    LONG_MAX,
    ConfigType,
    Synonym,
    Value,
    parse,
    rows,
    scaled,
    setting,
)

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
PRODUCERS_CODEC = "producer"

_REPLICAS = r"\*|([0-9]+:[0-9]+)?(,([0-9]+:[0-9]+)?)*"
_REPLICAS_FORM = "* or a list of replicas, each as partition:broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one topic's logs. `LogConfig.of` merges topic, broker and defaults."""

    cleanup_policy: str = setting(
        "cleanup.policy", ConfigType.LIST, "delete", choices=("compact", "delete"),
        why="what is removed: whole old segments, or all but the last record of each key",
        synonyms=(Synonym("log.cleanup.policy"),),
    )  # fmt: skip
    compression_gzip_level: int = setting(
        "compression.gzip.level", ConfigType.INT, -1, "level",
        choices=("-1", *(str(level) for level in range(1, 10))),
        why="used when the broker compresses a batch with gzip (compression.type=gzip): -1 is "
        "fast, 9 takes ten times as long; batches with over 1 MiB of records use the default",
        synonyms=(Synonym("compression.gzip.level"),),
    )  # fmt: skip
    compression_lz4_level: int = setting(
        "compression.lz4.level", ConfigType.INT, 9, "level", low=1, high=17,
        why="used when the broker compresses a batch with lz4 (compression.type=lz4): as in Kafka, "
        "9 is fast, other numbers are high compression; above 1 MiB of records the default",
        synonyms=(Synonym("compression.lz4.level"),),
    )  # fmt: skip
    compression_zstd_level: int = setting(
        "compression.zstd.level", ConfigType.INT, 3, "level", low=-131_072, high=22,
        why="used when the broker compresses a batch with zstd (compression.type=zstd): at most 9 "
        "above 64 KiB of records, the default above 1 MiB, so that the broker stays responsive",
        synonyms=(Synonym("compression.zstd.level"),),
    )  # fmt: skip
    compression_type: str = setting(
        "compression.type", ConfigType.STRING, PRODUCERS_CODEC,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", PRODUCERS_CODEC),
        why="the codec of stored batches: unless it is the producer's own, the broker compresses "
        "batches in other codecs again, which costs far more than storing them",
        synonyms=(Synonym("compression.type"),),
    )  # fmt: skip
    delete_retention_ms: int = setting(
        "delete.retention.ms", ConfigType.LONG, 86_400_000, "ms", low=0,
        why="how long a tombstone is kept after the first cleaning that finds it",
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    )  # fmt: skip
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms", ConfigType.LONG, 60_000, "ms", low=0,
        why="how long the files of a dropped segment stay before they are unlinked",
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
    )  # fmt: skip
    flush_messages: int = setting(
        "flush.messages", ConfigType.LONG, 1, "records", low=1,
        why="1: fsynced before the acknowledgement; n: a power cut can lose up to n records",
        synonyms=(Synonym("log.flush.interval.messages"),),
    )  # fmt: skip
    flush_ms: int = setting(
        "flush.ms", ConfigType.LONG, LONG_MAX, "ms", low=0,
        why="the longest a record stays only in the page cache if flush.messages is above 1",
        synonyms=(Synonym("log.flush.interval.ms"),),
    )  # fmt: skip
    follower_replication_throttled_replicas: str = setting(
        "follower.replication.throttled.replicas", ConfigType.LIST, "",
        why="the replicas whose copies are received at follower.replication.throttled.rate; never "
        "those that are in sync or join",
        pattern=_REPLICAS, form=_REPLICAS_FORM, length_max=LIST_LENGTH_MAX,
    )  # fmt: skip
    index_interval_bytes: int = setting(
        "index.interval.bytes", ConfigType.INT, 4096, "bytes", low=0,
        why="one index entry per so many bytes: finer costs memory, coarser costs scanning",
        synonyms=(Synonym("log.index.interval.bytes"),),
    )  # fmt: skip
    leader_replication_throttled_replicas: str = setting(
        "leader.replication.throttled.replicas", ConfigType.LIST, "",
        why="the leaders that send copies at leader.replication.throttled.rate; never to followers "
        "that are in sync or join",
        pattern=_REPLICAS, form=_REPLICAS_FORM, length_max=LIST_LENGTH_MAX,
    )  # fmt: skip
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", ConfigType.LONG, LONG_MAX, "ms", low=1,
        why="the longest a superseded record can wait for the cleaner",
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    )  # fmt: skip
    max_message_bytes: int = setting(
        "max.message.bytes", ConfigType.INT, 1_048_588, "bytes", low=0,
        why="the largest accepted batch: Kafka's 1 MiB plus the twelve bytes before its length",
        synonyms=(Synonym("message.max.bytes"),),
    )  # fmt: skip
    message_downconversion_enable: bool = setting(
        "message.downconversion.enable", ConfigType.BOOLEAN, True,
        why="without effect: batches are never converted to older formats, and Fetch begins with "
        "the first version that needs no conversion",
        synonyms=(Synonym("log.message.downconversion.enable"),),
    )  # fmt: skip
    message_format_version: str = setting(
        "message.format.version", ConfigType.STRING, "3.0-IV1",
        why="without effect, as in Kafka since 3.0: every batch has format 2",
        pattern=r"[0-9]+\.[0-9]+(\.[0-9]+)*(-IV[0-9]+)?",
        form="a version of Kafka, such as 2.8 or 3.0-IV1",
        synonyms=(Synonym("log.message.format.version"),),
    )  # fmt: skip
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", ConfigType.LONG, 3_600_000, "ms", low=0,
        why="a record stamped further in the future would delay retention for as long",
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
    )  # fmt: skip
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", ConfigType.LONG, LONG_MAX, "ms", low=0,
        why="no limit to the past, because old log files are welcome",
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
    )  # fmt: skip
    message_timestamp_difference_max_ms: int = setting(
        "message.timestamp.difference.max.ms", ConfigType.LONG, LONG_MAX, "ms", low=0,
        why="the older key for both message.timestamp.before.max.ms and after.max.ms: it applies "
        "to each of them that is not set",
        synonyms=(Synonym("log.message.timestamp.difference.max.ms"),),
    )  # fmt: skip
    message_timestamp_type: str = setting(
        "message.timestamp.type", ConfigType.STRING, CREATE_TIME,
        choices=(CREATE_TIME, LOG_APPEND_TIME),
        why="whether a record has the producer's timestamp or the time of its arrival",
        synonyms=(Synonym("log.message.timestamp.type"),),
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", ConfigType.DOUBLE, 0.5, low=0, high=1,
        why="the share of a log that must be uncleaned before cleaning is worthwhile",
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    )  # fmt: skip
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms", ConfigType.LONG, 0, "ms", low=0,
        why="how long a record is protected from the cleaner",
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    )  # fmt: skip
    min_insync_replicas: int = setting(
        "min.insync.replicas", ConfigType.INT, 1, "replicas", low=1,
        why="with fewer in-sync replicas than this, writes with acks=all are refused",
        synonyms=(Synonym("min.insync.replicas"),),
    )  # fmt: skip
    preallocate: bool = setting(
        "preallocate", ConfigType.BOOLEAN, False, choices=("false",),
        why="files are extended step by step ahead of the writes, never by a whole segment",
        synonyms=(Synonym("log.preallocate"),),
    )  # fmt: skip
    retention_bytes: int = setting(
        "retention.bytes", ConfigType.LONG, -1, "bytes", low=-1,
        why="the size per partition above which the oldest segments are removed; -1: no limit",
        synonyms=(Synonym("log.retention.bytes"),),
    )  # fmt: skip
    retention_ms: int = setting(
        "retention.ms", ConfigType.LONG, 604_800_000, "ms", low=-1,
        why="the age of its newest record above which a segment is removed; -1: no limit",
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", 60_000),
            Synonym("log.retention.hours", 3_600_000),
        ),
    )  # fmt: skip
    segment_bytes: int = setting(
        "segment.bytes", ConfigType.INT, 1_073_741_824, "bytes", low=14,
        why="a file is closed at this size; retention removes whole files",
        synonyms=(Synonym("log.segment.bytes"),),
    )  # fmt: skip
    segment_index_bytes: int = setting(
        "segment.index.bytes", ConfigType.INT, 10_485_760, "bytes", low=12,
        why="an index of this size closes its segment",
        synonyms=(Synonym("log.index.size.max.bytes"),),
    )  # fmt: skip
    segment_jitter_ms: int = setting(
        "segment.jitter.ms", ConfigType.LONG, 0, "ms", low=0,
        why="each segment is closed up to this much earlier, by a random share, so that logs "
        "created together do not all roll together",
        synonyms=(
            Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", 3_600_000),
        ),
    )  # fmt: skip
    segment_ms: int = setting(
        "segment.ms", ConfigType.LONG, 604_800_000, "ms", low=1,
        why="a file is closed when its records span this time, so that retention can remove it",
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", 3_600_000)),
    )  # fmt: skip

    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable", ConfigType.BOOLEAN, False, choices=("false",),
        why="a replica that may lack acknowledged records never becomes leader automatically",
        synonyms=(Synonym("unclean.leader.election.enable"),),
    )  # fmt: skip

    # Derived from the settings.

    is_compacted: bool = field(init=False, repr=False, compare=False)
    is_flushed_before_ack: bool = field(init=False, repr=False, compare=False)
    """True for `flush=ack`: the high watermark includes only fsynced records."""

    @classmethod
    def of(
        cls, overrides: Mapping[str, str], broker: Mapping[str, Value] | None = None
    ) -> LogConfig:
        """Return the settings of a topic with these overrides and these broker settings.

        Both must have been checked. Raises WrongValue.
        """
        values: dict[str, Any] = {}
        for attribute, row in rows(cls):
            if row.key in overrides:
                values[attribute] = parse(row, overrides[row.key])
                continue
            for synonym in row.synonyms if broker else ():
                if broker and (found := broker.get(synonym.key)) is not None:
                    values[attribute] = scaled(found, synonym)
                    break
        if (bound_ms := values.get("message_timestamp_difference_max_ms")) is not None:
            # As in Kafka 3.6: the older key applies if the newer ones are not set.
            values.setdefault("message_timestamp_before_max_ms", bound_ms)
            values.setdefault("message_timestamp_after_max_ms", bound_ms)
        return cls(**values)

    @property
    def is_deleted(self) -> bool:
        """True if old segments are deleted by retention."""
        return "delete" in self.cleanup_policy

    @property
    def compression_level(self) -> int | None:
        """The level of the topic's own codec; None for a codec without levels."""
        match self.compression_type:
            case "gzip":
                return self.compression_gzip_level
            case "lz4":
                return self.compression_lz4_level
            case "zstd":
                return self.compression_zstd_level
        return None

    def __post_init__(self) -> None:
        # Computed once, because every batch needs them.
        object.__setattr__(self, "is_compacted", "compact" in self.cleanup_policy)
        object.__setattr__(self, "is_flushed_before_ack", self.flush_messages <= 1)
