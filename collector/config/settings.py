"""The collector's settings: which files go to which topics, within which limits.

The module uses only the values that it gets. `CollectorSection` is the section `collector:` of the
configuration file. `CollectorSettings` are the settings of one collector process. Every error names
what was found and what was expected. The appliance shows it with file, line and key.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from collector.config.base import CollectorModel, DurationMs, SizeBytes
from collector.config.input_section import InputSection, check_topic_name
from protocol.security.cluster_security import ClusterEntry, ClusterSecurity

# Reading.
BLOCK_BYTES = 1 << 20  # at most this many bytes are taken by one read from a file
BACKFILL_BYTES = 4 << 20  # a file with more unread bytes than this waits in the backfill queue
NEW_BYTES = 64 << 10  # a file that was never read to its end is behind if more than this is unread
PREFIX_BYTES = 4096  # at most this many bytes of a file's head identify it
MARKER_BYTES = 1024  # at most this many bytes before the position are hashed to confirm it
# reading of a file that was moved out of the globs ends after this time without growth
DRAIN_QUIET_MS = 5_000
INGESTED_QUIET_MS = 5_000  # a finished file is moved or deleted after this time without growth
# after this time, a possible copy whose original still exists is read as a new file
COPY_QUIET_MS = 5_000
# at most this many bytes are read by one scan to find out if a file is a copy
CHECKSUM_BYTES = 64 << 20
# first and longest wait before an unreadable file or a refused partition is retried
RETRY_MS = (200, 5_000)
# the same, with random waits, for the first contact of a collector that has a trust group
GROUP_RETRY_MS = (200, 30_000)
# the collectors of a group spread their first contacts over so many of their commit intervals
SPREAD_INTERVALS = 2
RESCAN_GAP_MS = 50  # shortest time between two scans that inotify events request
# Sending.
# the group of the stream; old lines wait for its progress while live lines arrive
READER_GROUP = "millrace-stream"
# at most this many bytes are taken by one read from a file while other files write live lines
SHARED_BLOCK_BYTES = 128 << 10
COMMIT_MS = 25  # default of `commit_interval`, and its smallest value
COMMIT_MS_MAX = 60_000  # largest value of `commit_interval`
BACKFILL_COMMIT_MS = 1_000  # longest wait for the commit of lines from files that are far behind
COMMIT_SHARE = 4  # a transaction ends when it holds this fraction (1/n) of in_flight_bytes
STUCK_MS = 5_000  # a transaction whose batches are unanswered for so long is aborted and sent again
# the coordinator aborts the transaction of a dead collector after this time
TRANSACTION_TIMEOUT_MS = 15_000
FENCED_AGAIN_MS = 60_000  # a collector that a rival fences twice within this time ends
CLAIM_WAIT_MS = 3_000  # how long a fenced collector waits for the claim of a rival
# bytes of max.message.bytes that stay free, for the header and incompressible data
BATCH_OVERHEAD_BYTES = 1024
PARTITION_WINDOW = 5  # most batches of one partition in flight
BACKFILL_WINDOW = 2  # most of these batches that hold lines of the backfill
# longest wait of a position record that changed although no lines were read
POSITIONS_INTERVAL_MS = 1_000
POSITIONS_BATCH_BYTES = 512 << 10  # most bytes of position records in one batch, uncompressed
STOP_DEADLINE_MS = 10_000  # how long a stop waits for the commit of lines that were read
STATUS_FILES_MAX = 1_000  # most files that the status lists; the totals count all files
STATUS_UNMATCHED_MAX = 10  # most named files that no input matches; the total counts all of them
HELD_BYTES_WARN = 1 << 30  # a problem is reported if deleted files that are open take so much
STATUS_LOST_MAX = 100  # most named files with possibly lost lines; the counter counts all

GROUP_NAME = r"[a-z0-9][a-z0-9-]{0,30}"
"""The regular expression of the names of trust groups."""


def _default_inputs() -> tuple[InputSection, ...]:
    return tuple(
        InputSection(paths=(f"watched/{name}/**",), topic=f"logs.{name}")
        for name in ("access", "json", "text")
    )


class CollectorSection(CollectorModel):
    """The part `collector:` of the configuration file."""

    instance: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="the collector's name, unique on its cluster. null: a name is made once and"
        " kept in `data/`",
        examples=["web-1"],
    )
    inputs: tuple[InputSection, ...] = Field(
        default_factory=_default_inputs,
        description="which files are read, and to which topics their lines go. Without the key:"
        " the folders `watched/access`, `watched/json` and `watched/text`",
        examples=[[{"paths": ["watched/app/**"], "topic": "logs.app"}]],
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        default="gzip",
        description="the codec of the batches that are sent to the brokers",
        examples=["zstd"],
    )
    scan_interval: DurationMs = Field(
        default=2_000,
        ge=100,
        le=60_000,
        description="how often the folders are scanned, in addition to the notices of the kernel",
        examples=["5s"],
    )
    forget_after: DurationMs = Field(
        default=7 * 86_400_000,
        ge=60_000,
        description="how long the position of a file that is gone is remembered",
        examples=["30d"],
    )
    in_flight_bytes: SizeBytes = Field(
        default=32 << 20,
        ge=1 << 20,
        le=1 << 30,
        description="how much may be read and not yet acknowledged by the brokers",
        examples=["64MiB"],
    )
    open_files: int = Field(
        default=256,
        ge=8,
        le=100_000,
        description="how many files are kept open at the same time",
        examples=[1000],
    )
    group: str | None = Field(
        default=None,
        pattern=f"^{GROUP_NAME}$",
        description="the trust group of a collector on another host: collectors of one group share"
        " the topic `millrace.positions.<group>`. null: the topic `millrace.positions`. A collector"
        " whose group changes reads all its files again. With a group, lines carry the collector's"
        " name: the column `host`",
        examples=["web"],
    )
    commit_interval: DurationMs = Field(
        default=COMMIT_MS,
        ge=COMMIT_MS,
        le=COMMIT_MS_MAX,
        description="shortest time between two commits of live lines. With many collectors a longer"
        " time saves requests: 5 ms for each collector",
        examples=["5s"],
    )

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the inputs name, each once, in order; without the topics of templates."""
        return tuple(dict.fromkeys(entry.topic for entry in self.inputs if entry.template is None))

    def may_write(self, topic: str) -> bool:
        """Tell whether the lines of a file can go to this topic."""
        return any(
            entry.topic == topic if (template := entry.template) is None else template.makes(topic)
            for entry in self.inputs
        )


class TopicSettings(CollectorModel):
    """A topic that must exist. None as number of partitions or replicas means the cluster's
    default.
    """

    name: str
    partitions: int | None = Field(default=None, ge=1)
    replication: int | None = Field(default=None, ge=1)
    settings: dict[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        return check_topic_name(name)


class StatusAddress(CollectorModel):
    """The address of /healthz, /status and /metrics; port 0 takes a free port."""

    host: str = "127.0.0.1"
    port: int = Field(default=8091, ge=0, le=65535)


class CollectorUpdate(CollectorModel):
    """The part of a configuration that a running collector can apply."""

    section: CollectorSection
    topics: tuple[TopicSettings, ...] = ()


class ReloadSettings(CollectorModel):
    """A file that is watched for changes, and the command that prints its CollectorUpdate.

    `sha256` is the checksum of the content from which the settings were made, in hexadecimal. A
    change is applied once the file was unchanged for `settled_ms`. This is 0 for a file that is
    always replaced as a whole.
    """

    file: Path
    command: tuple[str, ...]
    sha256: str | None = None
    settled_ms: int = Field(default=500, ge=0)


class CollectorSettings(CollectorModel):
    """The settings of one collector process. Relative globs start at `home`."""

    part: str = "collector"
    section: CollectorSection = Field(default_factory=CollectorSection)
    bootstrap_servers: str
    security: ClusterSecurity | None = None
    home: str
    data_dir: str
    topics: tuple[TopicSettings, ...] = ()
    status: StatusAddress = Field(default_factory=StatusAddress)
    reload: ReloadSettings | None = None
    patience_ms: int = Field(default=60_000, ge=100)
    """The longest time for which a one-shot run waits for brokers that do not answer."""

    @model_validator(mode="before")
    @classmethod
    def _absolute(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name in ("home", "data_dir"):
                path = values.get(name)
                if isinstance(path, str) and not path.startswith("/"):
                    raise ValueError(f"{name}: found {path!r}, expected an absolute path")
        return values

    @property
    def entry(self) -> ClusterEntry:
        """The entry to the cluster."""
        return ClusterEntry(self.bootstrap_servers, self.security)
