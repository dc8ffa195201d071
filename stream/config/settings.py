"""The stream's settings: inputs, metrics, and how Spark runs.

The module uses only the values that it gets, and starts no JVM. `StreamSection` is the part
`stream:` of the configuration file. `StreamSettings` are the settings of one stream process.
`parse/check.py` lets Spark check the syntax and the types of expressions, which this module cannot
check.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from protocol.security.cluster_security import ClusterEntry, ClusterSecurity
from protocol.units import parse_duration_ms, parse_size_bytes
from sinks.config import SinksSettings
from stream.config.base import NAME, NAME_PATTERN, DurationText, Section, SizeText
from stream.config.input_section import ParsedInputSection
from stream.config.sections import (
    METRICS_MAX,
    DefaultsSection,
    MetricSection,
    check_against,
    checked_against,
)
from stream.config.windows import fault

CONSUMER_GROUP = "millrace-stream"
TRIGGER_MS_MAX = 60_000
HEAP_BYTES_MIN = 512 << 20
LINES_PER_BATCH_MIN = 100
ARCHIVE_EVERY_MS_MIN = 1_000
ARCHIVE_EVERY_MS_MAX = 86_400_000

_MASTER = re.compile(r"local(\[([0-9]+|\*)\])?\Z|(spark|k8s)://\S+\Z|yarn\Z")

# Spark's keys that the mill sets itself, because other values would make counts inexact.
_OWN_SPARK_KEYS = (
    "spark.jars",
    "spark.master",
    "spark.app.name",
    "spark.driver.memory",
    "spark.sql.ansi.enabled",
    "spark.sql.session.timeZone",
    "spark.sql.streaming.checkpoint",
    "spark.sql.streaming.minBatchesToRetain",
    "spark.sql.caseSensitive",
)


def _sound(given: object) -> ParsedInputSection | None:
    """Return an input as a section, or None if it has faults."""
    try:
        return ParsedInputSection.model_validate(given)
    except ValidationError:
        return None


class ArchiveSection(Section):
    """The archive of raw lines: its folder, and the interval at which new lines are added."""

    folder: str = Field(
        description="where the files are written: a folder, from the mill's folder, or a URI such"
        " as `hdfs://…` and `s3a://…`",
        examples=["data/archive", "s3a://logs/lines"],
    )
    every: DurationText = Field(
        default="10m",
        description="how often new lines are added, 1s to 1d",
        examples=["1h"],
    )

    @field_validator("folder")
    @classmethod
    def _check_folder(cls, value: str) -> str:
        if not value.strip("/ "):
            raise fault(
                repr(value), "a folder, or a URI such as hdfs://host/lines or s3a://b/lines"
            )
        if set(value) & set("*?[]{}"):
            raise fault(repr(value), "a folder without *, ?, [, ], { and }, which Spark expands")
        return value

    @field_validator("every")
    @classmethod
    def _check_every(cls, value: str) -> str:
        if not ARCHIVE_EVERY_MS_MIN <= parse_duration_ms(value) <= ARCHIVE_EVERY_MS_MAX:
            raise fault(repr(value), "1s to 1d")
        return value


class StreamSection(Section):
    """The part `stream:` of the configuration file."""

    master: str = Field(
        default="local[2]",
        description="Spark's master: `local[N]` for N threads here, or `spark://host:port`,"
        " `yarn`, `k8s://…`, see [spark.md](../spark.md)",
        examples=["local[4]"],
        json_schema_extra={"pattern": r"^(local(\[([0-9]+|\*)\])?|(spark|k8s)://\S+|yarn)$"},
    )
    trigger: DurationText = Field(
        default="100ms",
        description="a batch is started at most this often, at most 60s",
        examples=["1s"],
    )
    max_lines_per_batch: int | None = Field(
        default=None,
        ge=LINES_PER_BATCH_MIN,
        le=10_000_000,
        description="the most lines that a batch takes while the stream is behind. null: as many"
        " as the heap allows",
        examples=[500000],
    )
    heap: SizeText | None = Field(
        default=None,
        description="memory of Spark's driver, at least 512MiB. null: a fifth of the machine,"
        " 512MiB to 1.25GiB; `doctor` shows the value",
        examples=["2GiB"],
    )
    spark: dict[str, str] = Field(
        default={},
        description="Spark's own keys, as text. Those that the mill sets itself are refused",
        examples=[{"spark.ui.enabled": "true"}],
        json_schema_extra={"propertyNames": {"pattern": r"^spark\."}},
    )
    archive: ArchiveSection | None = Field(
        default=None,
        description="raw lines as Parquet files, see [the archive](#the-archive). null: none",
        examples=[{"folder": "data/archive", "every": "10m"}],
    )
    from_: dict[str, ParsedInputSection] = Field(
        alias="from",
        default={},
        description="the parsed inputs by their names: the topics that are counted, and how their"
        " lines are read. One input for each topic",
        examples=[{"access": {"topic": "logs.access", "format": "combined"}}],
        json_schema_extra={"propertyNames": {"pattern": NAME_PATTERN}},
    )
    defaults: DefaultsSection = Field(
        default=DefaultsSection(),
        description="what metrics without these keys have",
        examples=[{"windows": ["1m", "1h", "all"]}],
    )
    metrics: tuple[MetricSection, ...] = Field(
        default=(),
        max_length=METRICS_MAX,
        description="what is counted, see [metrics.md](metrics.md)",
        examples=[[{"name": "hits", "from": "access", "measure": "count"}]],
    )

    @field_validator("master")
    @classmethod
    def _check_master(cls, value: str) -> str:
        if not _MASTER.match(value):
            raise fault(repr(value), "local[N], spark://host:port, yarn or k8s://…")
        return value

    @field_validator("trigger")
    @classmethod
    def _check_trigger(cls, value: str) -> str:
        if parse_duration_ms(value) > TRIGGER_MS_MAX:
            raise fault(repr(value), "at most 60s")
        return value

    @field_validator("heap")
    @classmethod
    def _check_heap(cls, value: str | None) -> str | None:
        if value is not None and parse_size_bytes(value) < HEAP_BYTES_MIN:
            raise fault(repr(value), "at least 512MiB")
        return value

    @field_validator("spark")
    @classmethod
    def _check_spark(cls, value: dict[str, str]) -> dict[str, str]:
        for key in value:
            if not key.startswith("spark."):
                raise fault(repr(key), "one of Spark's own keys, which begin with spark.")
            if key.startswith(_OWN_SPARK_KEYS):
                raise fault(repr(key), "another key: the mill sets this one itself")
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _check_keys(cls, value: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        with checked_against({}):
            return handler(value)

    @field_validator("from_", mode="wrap")
    @classmethod
    def _note_inputs(cls, value: object, handler: ValidatorFunctionWrapHandler) -> object:
        """Check metrics against the valid inputs, even if other inputs have faults."""
        if isinstance(value, Mapping):
            check_against({str(name): _sound(given) for name, given in value.items()})
        return handler(value)

    @field_validator("from_")
    @classmethod
    def _check_from(cls, value: dict[str, ParsedInputSection]) -> dict[str, ParsedInputSection]:
        topics: dict[str, str] = {}
        for name, section in value.items():
            if not NAME.match(name):
                raise fault(repr(name), "an input's name: a-z, 0-9 and _, a letter first")
            if section.topic in topics:
                raise fault(
                    f"topic {section.topic!r} in {topics[section.topic]} and {name}",
                    "one input per topic, because a second input counts its lines twice",
                )
            topics[section.topic] = name
        return value

    @property
    def is_local(self) -> bool:
        """True if Spark's tasks run in the driver's process, and not in executors of a cluster."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics read, sorted."""
        return tuple(sorted(section.topic for section in self.from_.values()))


class StreamTopicSettings(Section):
    """A topic to create if it is missing; None means the cluster's default."""

    name: str
    partitions: int | None = None
    replication: int | None = None
    settings: dict[str, str] = Field(default={})


class StatusSettings(Section):
    """The address for health, status and metrics."""

    host: str = "127.0.0.1"
    port: int = Field(default=8092, ge=0, le=65535)


class StreamUpdate(Section):
    """The part of a configuration file that concerns the stream."""

    section: StreamSection
    topics: tuple[StreamTopicSettings, ...] = ()


class StreamReloadSettings(Section):
    """A file that is watched for changes, and the command that prints its StreamUpdate.

    `sha256` is the checksum, in hexadecimal, of the content from which the settings were made.
    """

    file: Path
    command: tuple[str, ...]
    sha256: str | None = None


class StreamSettings(Section):
    """The settings of one stream process. A relative archive folder starts at `home`.

    By default `home` is the working folder.
    """

    part: str = "stream"
    section: StreamSection
    sinks: SinksSettings
    bootstrap_servers: str
    security: ClusterSecurity | None = None
    data_dir: Path
    jars: tuple[Path, ...] = ()
    java_home: str | None = None
    class_data_archive: str | None = None
    topics: tuple[StreamTopicSettings, ...] = ()
    status: StatusSettings = StatusSettings()
    reload: StreamReloadSettings | None = None
    home: Path = Path()

    @property
    def entry(self) -> ClusterEntry:
        """The entry to the cluster."""
        return ClusterEntry(self.bootstrap_servers, self.security)
