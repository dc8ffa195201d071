"""Every setting of the broker and of its topics, with default and reason, and the checks on them.

Ground floor. Pure, and free of pydantic: a broker process must stay small. Two tables: `LogConfig`
holds what a topic may set for itself, `BrokerKeys` what only the node has. A topic's value comes
from the topic, else from the broker key that is its synonym (`log.retention.ms` for
`retention.ms`), else from the default. Two defaults differ from Kafka's on purpose:
`flush.messages` is 1, so that an acknowledged batch is on the disk, and `__consumer_offsets` is
small, so that a coordinator reloads quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.settings import (
    INT_MAX,
    LONG_MAX,
    ConfigError,
    Fault,
    Kind,
    Setting,
    Synonym,
    Value,
    WrongValue,
    nearest,
    parse,
    rows,
    setting,
    text,
)

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one topic's logs. `LogConfig.of` merges topic, broker and defaults."""

    cleanup_policy: str = setting(
        "cleanup.policy", Kind.LIST, "delete", choices=("compact", "delete"),
        why="what may go: whole old segments, or all but the last record of each key",
        synonyms=(Synonym("log.cleanup.policy"),),
    )  # fmt: skip
    compression_type: str = setting(
        "compression.type", Kind.STRING, "producer", choices=("producer",),
        why="batches are stored as the producer sent them, never repacked",
        synonyms=(Synonym("compression.type"),),
    )  # fmt: skip
    delete_retention_ms: int = setting(
        "delete.retention.ms", Kind.LONG, 86_400_000, "ms", low=0,
        why="how long a tombstone outlives the cleaning that met it",
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    )  # fmt: skip
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms", Kind.LONG, 60_000, "ms", low=0,
        why="how long the files of a dropped segment stay before they are unlinked",
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
    )  # fmt: skip
    flush_messages: int = setting(
        "flush.messages", Kind.LONG, 1, "records", low=1,
        why="1: on the disk before it is acknowledged; more: that many may be lost with the power",
        synonyms=(Synonym("log.flush.interval.messages"),),
    )  # fmt: skip
    flush_ms: int = setting(
        "flush.ms", Kind.LONG, LONG_MAX, "ms", low=0,
        why="the longest a record stays only in the page cache when flush.messages is above 1",
        synonyms=(Synonym("log.flush.interval.ms"),),
    )  # fmt: skip
    index_interval_bytes: int = setting(
        "index.interval.bytes", Kind.INT, 4096, "bytes", low=0,
        why="one index entry per so many bytes: finer costs memory, coarser costs scanning",
        synonyms=(Synonym("log.index.interval.bytes"),),
    )  # fmt: skip
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", Kind.LONG, LONG_MAX, "ms", low=1,
        why="the longest a superseded record may wait for the cleaner",
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    )  # fmt: skip
    max_message_bytes: int = setting(
        "max.message.bytes", Kind.INT, 1_048_588, "bytes", low=0,
        why="the largest batch taken; Kafka's 1 MiB and the twelve bytes before its length",
        synonyms=(Synonym("message.max.bytes"),),
    )  # fmt: skip
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms", Kind.LONG, 3_600_000, "ms", low=0,
        why="a record stamped further in the future would hold retention back for as long",
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
    )  # fmt: skip
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms", Kind.LONG, LONG_MAX, "ms", low=0,
        why="old log files are welcome, so there is no limit to the past",
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
    )  # fmt: skip
    message_timestamp_type: str = setting(
        "message.timestamp.type", Kind.STRING, CREATE_TIME, choices=(CREATE_TIME, LOG_APPEND_TIME),
        why="whether a record carries the producer's time or that of its arrival",
        synonyms=(Synonym("log.message.timestamp.type"),),
    )  # fmt: skip
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", Kind.DOUBLE, 0.5, low=0, high=1,
        why="the share of a log that must be uncleaned before cleaning is worth it",
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    )  # fmt: skip
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms", Kind.LONG, 0, "ms", low=0,
        why="how long a record is safe from the cleaner",
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    )  # fmt: skip
    min_insync_replicas: int = setting(
        "min.insync.replicas", Kind.INT, 1, "replicas", low=1,
        why="fewer in-sync replicas than this refuse acks=all",
        synonyms=(Synonym("min.insync.replicas"),),
    )  # fmt: skip
    retention_bytes: int = setting(
        "retention.bytes", Kind.LONG, -1, "bytes", low=-1,
        why="the size per partition above which the oldest segments go; -1: no limit",
        synonyms=(Synonym("log.retention.bytes"),),
    )  # fmt: skip
    retention_ms: int = setting(
        "retention.ms", Kind.LONG, 604_800_000, "ms", low=-1,
        why="the age above which a segment goes, by its newest record; -1: no limit",
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", 60_000),
            Synonym("log.retention.hours", 3_600_000),
        ),
    )  # fmt: skip
    segment_bytes: int = setting(
        "segment.bytes", Kind.INT, 1_073_741_824, "bytes", low=14,
        why="a file is closed at this size; retention drops whole files",
        synonyms=(Synonym("log.segment.bytes"),),
    )  # fmt: skip
    segment_index_bytes: int = setting(
        "segment.index.bytes", Kind.INT, 10_485_760, "bytes", low=12,
        why="an index of this size closes its segment",
        synonyms=(Synonym("log.index.size.max.bytes"),),
    )  # fmt: skip
    segment_ms: int = setting(
        "segment.ms", Kind.LONG, 604_800_000, "ms", low=1,
        why="a file is closed when its records span this time, so that retention can reach it",
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", 3_600_000)),
    )  # fmt: skip

    @classmethod
    def of(
        cls, overrides: Mapping[str, str], broker: Mapping[str, Value] | None = None
    ) -> LogConfig:
        """The settings of a topic with these overrides under these stated broker settings.

        Both must have passed their check; what is wrong raises WrongValue.
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
        return cls(**values)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether retention applies."""
        return "delete" in self.cleanup_policy

    @property
    def is_flushed_before_ack(self) -> bool:
        """`flush=ack`: an offset counts towards the high watermark only once it is on the disk."""
        return self.flush_messages <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerKeys:
    """The settings that only the node has; the topics' own are in `LogConfig`."""

    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", Kind.BOOLEAN, True, is_cluster_wide=True,
        why="a topic named in a metadata request that consents is made on the spot",
    )  # fmt: skip
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", Kind.LONG, 600_000, "ms", low=1,
        why="a silent connection is closed, for its peer may be gone without a word",
    )  # fmt: skip
    default_replication_factor: int = setting(
        "default.replication.factor", Kind.INT, 1, "replicas", low=1, is_cluster_wide=True,
        why="copies of a topic that does not ask for a number",
    )  # fmt: skip
    delete_topic_enable: bool = setting(
        "delete.topic.enable", Kind.BOOLEAN, True, is_cluster_wide=True,
        why="whether topics can be deleted at all",
    )  # fmt: skip
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", Kind.INT, 57_671_680, "bytes", low=1024,
        why="the most one fetch answer carries, whatever the client asks for",
    )  # fmt: skip
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", Kind.INT, 1_800_000, "ms", low=1,
        why="a longer one would hide a dead member",
    )  # fmt: skip
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", Kind.INT, 6_000, "ms", low=1,
        why="a shorter one would drop members for a hiccup",
    )  # fmt: skip
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", Kind.INT, 60_000, "ms", low=1,
        why="how far the recovery points on disk may lag: more means a longer check after a crash",
    )  # fmt: skip
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", Kind.LONG, 1_000, "ms", low=1,
        why="how often logs with flush.ms are looked at",
    )  # fmt: skip
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", Kind.LONG, 300_000, "ms", low=1,
        why="how often old segments are looked for",
    )  # fmt: skip
    max_connections: int = setting(
        "max.connections", Kind.INT, 10_000, "connections", low=1,
        why="each holds a buffer; beyond the limit a new one is closed at once",
    )  # fmt: skip
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", Kind.INT, 2_000, "connections", low=1,
        why="one host, which may be all of a network behind a gateway, cannot take every place",
    )  # fmt: skip
    num_partitions: int = setting(
        "num.partitions", Kind.INT, 1, "partitions", low=1, high=10_000, is_cluster_wide=True,
        why="partitions of a topic that does not ask for a number",
    )  # fmt: skip
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", Kind.INT, 4096, "bytes", low=0,
        why="the longest note a reader may leave beside an offset",
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", Kind.LONG, 600_000, "ms", low=1,
        why="how often expired offsets are looked for",
    )  # fmt: skip
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", Kind.INT, 10_080, "minutes", low=1, is_cluster_wide=True,
        why="how long a group that is gone keeps its offsets",
    )  # fmt: skip
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", Kind.INT, 6, "partitions", low=1, is_cluster_wide=True,
        why="groups are spread over these; fixed once the topic exists",
    )  # fmt: skip
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", Kind.SHORT, 1, "replicas", low=1, high=32_767,
        is_cluster_wide=True,
        why="copies of the committed offsets",
    )  # fmt: skip
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", Kind.INT, 4_194_304, "bytes", low=1024,
        is_cluster_wide=True,
        why="small, so that reloading a coordinator is short",
    )  # fmt: skip
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", Kind.INT, 600_000, "ms", low=1,
        why="how often forgotten producers are looked for",
    )  # fmt: skip
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", Kind.INT, 86_400_000, "ms", low=1, is_cluster_wide=True,
        why="how long a silent producer is remembered, so that its retry is recognised",
    )  # fmt: skip
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms", Kind.LONG, 5_000, "ms", low=1,
        why="how far the high watermarks on disk may lag",
    )  # fmt: skip
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", Kind.INT, 104_857_600, "bytes", low=1024,
        why="a longer frame closes its connection before anything is allocated for it",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where the broker listens under one listener name, and what it tells clients there."""

    host: str
    port: int
    advertised_host: str
    advertised_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(BrokerKeys):
    """One broker's identity, places and settings; built once at start and passed down.

    `given` are the stated `settings` by Kafka's key, parsed. A topic's effective settings are
    `config.log_config(overrides)`.
    """

    part: str
    node_id: int
    cluster_id: str
    directory_id: str
    log_dir: str
    listeners: Mapping[str, Listener]
    status_host: str
    status_port: int
    given: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> BrokerConfig:
        """The configuration from the object on the settings descriptor; raises ConfigError."""
        settings = raw.get("settings") or {}
        if faults := check_settings(settings):
            raise ConfigError(faults)
        given = {key: parse(BROKER_ROWS[key][1], value) for key, value in settings.items()}
        own = {BROKER_ROWS[key][0]: value for key, value in given.items() if BROKER_ROWS[key][0]}
        try:
            status = raw.get("status") or {}
            return cls(
                part=raw["part"],
                node_id=int(raw["node_id"]),
                cluster_id=raw["cluster_id"],
                directory_id=raw["directory_id"],
                log_dir=raw["log_dir"],
                listeners={name: Listener(**one) for name, one in raw["listeners"].items()},
                status_host=status.get("host", "127.0.0.1"),
                status_port=int(status.get("port", 0)),
                given=given,
                **own,  # type: ignore[arg-type]  # parsed by the row of the very field
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError([("settings", repr(error), "a complete broker object")]) from error

    def log_config(self, overrides: Mapping[str, str] | None = None) -> LogConfig:
        """What applies to a topic that sets `overrides`."""
        return LogConfig.of(overrides or {}, self.given)


def scaled(value: Value, synonym: Synonym) -> Value:
    """A synonym's value in the unit of the setting itself; -1 stays `no limit`."""
    if synonym.factor != 1 and isinstance(value, int) and value > 0:
        return value * synonym.factor
    return value


def _synonym_row(synonym: Synonym, row: Setting) -> Setting:
    unit = {60_000: "minutes", 3_600_000: "hours"}.get(synonym.factor, row.unit)
    high = row.high if synonym.factor == 1 else INT_MAX
    return Setting(
        synonym.key, row.kind, row.default, unit, row.why, row.low, high, row.choices, (), False
    )


TOPIC_ROWS: dict[str, tuple[str, Setting]] = {
    row.key: (attribute, row) for attribute, row in rows(LogConfig)
}
"""Topic key -> (attribute of LogConfig, row)."""

BROKER_ROWS: dict[str, tuple[str, Setting]] = {
    **{
        synonym.key: ("", _synonym_row(synonym, row))
        for _, row in TOPIC_ROWS.values()
        for synonym in row.synonyms
    },
    **{row.key: (attribute, row) for attribute, row in rows(BrokerKeys)},
}
"""Broker key -> (attribute of BrokerConfig, or "" for the default of a topic setting, row)."""


def check_settings(settings: Mapping[str, object]) -> list[Fault]:
    """Every fault in a `cluster.settings` section; empty when it is right."""
    return _check(settings, BROKER_ROWS, "broker")


def check_topic_settings(settings: Mapping[str, object]) -> list[Fault]:
    """Every fault in a topic's settings, from the file or from a request; empty when right."""
    return _check(settings, TOPIC_ROWS, "topic")


def topic_settings_text(settings: Mapping[str, object]) -> dict[str, str]:
    """Checked topic settings as the metadata log keeps them: Kafka's spelling of each value."""
    return {key: text(parse(TOPIC_ROWS[key][1], value)) for key, value in settings.items()}


def _check(
    settings: Mapping[str, object], table: Mapping[str, tuple[str, Setting]], what: str
) -> list[Fault]:
    faults: list[Fault] = []
    for key, value in settings.items():
        known = table.get(key)
        if known is None:
            wanted = f"a {what} setting this broker has{nearest(key, table)}"
            faults.append((key, value, wanted))
            continue
        try:
            parse(known[1], value)
        except WrongValue as error:
            faults.append((key, value, str(error)))
    return faults
