"""The collector's settings: which files go to which topics, within which limits.

The module uses only the values that it gets. `CollectorSection` is the section `collector:` of the
configuration file. `CollectorSettings` are the settings of one collector process. Every error names
what was found and what was expected. The appliance shows it with file, line and key.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from collector.config.encoding_names import UTF_8, canonical_name
from collector.config.globs import wildcard_count
from collector.config.headers import FieldValue, check_fields, check_headers
from collector.config.multiline import INDENTED, PARTIAL_PRESETS, PRESETS, By, EventRules
from collector.config.topics import TopicTemplate, template_of
from protocol.units import parse_duration_ms, parse_size_bytes

POSITIONS_TOPIC = "millrace.positions"
DEAD_LETTERS_TOPIC = "millrace.dead-letters"
DEFAULT_EXCLUDE = (".*", "*~", "*.swp", "*.tmp", "*.part")

# Reading.
LINE_BYTES_MIN = 1024  # a line up to this length is never overlong, whatever a topic accepts
BLOCK_BYTES = 1 << 20  # most bytes of one file read in one turn
BACKFILL_BYTES = 4 << 20  # a file further behind than this waits in the backfill queue
NEW_BYTES = 64 << 10  # a file never read to its end counts as behind by more than this
PREFIX_BYTES = 4096  # most bytes of a file's head that identify it
MARKER_BYTES = 1024  # most bytes before the position that confirm it
DRAIN_QUIET_MS = 5_000  # a file moved out of the globs is done after this time without growth
INGESTED_QUIET_MS = 5_000  # a finished file is moved or deleted after this time without growth
COPY_QUIET_MS = 5_000  # after this time a copy beside its whole original is read as its own file
CHECKSUM_BYTES = 64 << 20  # most bytes that one scan reads to find out if a file is a copy
RETRY_MS = (200, 5_000)  # back-off of an unreadable file and of a refused partition
RESCAN_GAP_MS = 50  # shortest time between two scans that events ask for
# Sending.
READER_GROUP = "millrace-stream"  # old lines wait for this group's progress while live lines come
SHARED_BLOCK_BYTES = 128 << 10  # most bytes of one file read at once while others write live lines
COMMIT_MS = 25  # shortest time between two commits of fresh lines
BACKFILL_COMMIT_MS = 1_000  # longest wait for a commit of lines from files far behind
COMMIT_SHARE = 4  # a transaction ends when it holds this fraction (1/n) of in_flight_bytes
STUCK_MS = 5_000  # a transaction whose batches are unanswered for so long is aborted and sent again
TRANSACTION_TIMEOUT_MS = 15_000  # then the coordinator aborts the transaction of a dead collector
FENCED_AGAIN_MS = 60_000  # fenced by a rival twice within this time, this collector ends
CLAIM_WAIT_MS = 3_000  # between a rival's fencing and its claim
BATCH_OVERHEAD_BYTES = 1024  # kept free below max.message.bytes for header and incompressible data
PARTITION_WINDOW = 5  # batches of one partition in flight
BACKFILL_WINDOW = 2  # of these, how many backfill can fill
POSITIONS_INTERVAL_MS = 1_000  # wait of a position record that changed without lines
POSITIONS_BATCH_BYTES = 512 << 10  # position records in one batch, uncompressed
STOP_DEADLINE_MS = 10_000  # how long a stop waits for what is in flight
STATUS_FILES_MAX = 1_000  # files listed in the status; the totals count all
STATUS_UNMATCHED_MAX = 10  # files named that no input matches; the total counts all
STATUS_LOST_MAX = 100  # named files with possibly lost lines; the counter counts all


def _size(value: object) -> object:
    return parse_size_bytes(value) if isinstance(value, str) else value


def _duration(value: object) -> object:
    return parse_duration_ms(value) if isinstance(value, str) else value


SizeBytes = Annotated[int, BeforeValidator(_size)]
DurationMs = Annotated[int, BeforeValidator(_duration)]


class _CollectorModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def check_topic_name(name: str) -> str:
    """Check Kafka's rules for topic names. Raises ValueError with what was expected."""
    legal = name and len(name) <= 249 and name not in (".", "..")
    if not legal or not all(c.isascii() and (c.isalnum() or c in "._-") for c in name):
        raise ValueError(
            f"found {name!r}, expected a topic name: 1 to 249 of letters, digits, '.', '_', '-'"
        )
    return name


def check_input_topic(name: str) -> None:
    """Check the name of a topic for the lines of an input. Raises ValueError."""
    check_topic_name(name)
    if name in (POSITIONS_TOPIC, DEAD_LETTERS_TOPIC) or name.startswith("__"):
        raise ValueError(f"found {name!r}, expected a topic of your own, not an internal one")


class MultilineSection(_CollectorModel):
    """The rules that join lines to events: a preset, one pattern, or indentation."""

    preset: Literal["java", "python", "go", "cri", "docker"] | None = None
    start: str | None = None
    continue_: str | None = Field(default=None, alias="continue")
    end: str | None = None
    indent: bool = False
    max_lines: int = Field(default=1_000, ge=2, le=100_000)
    max_bytes: SizeBytes = Field(default=1 << 20, ge=1024, le=1 << 23)
    max_age: DurationMs = Field(default=5_000, ge=100, le=3_600_000)

    @field_validator("start", "continue_", "end")
    @classmethod
    def _pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(
                f"found {pattern!r}, expected a regular expression: {error}"
            ) from error
        return pattern

    @model_validator(mode="after")
    def _one_way(self) -> "MultilineSection":
        ways = {
            "preset": self.preset is not None,
            "start": self.start is not None,
            "end": self.end is not None,
            "continue or indent": self.continue_ is not None or self.indent,
        }
        given = [name for name, is_given in ways.items() if is_given]
        if len(given) != 1:
            raise ValueError(
                f"found {' and '.join(given) or 'none of them'}, expected one of preset, start,"
                " end, or continue with or without indent: true"
            )
        return self

    def rules(self) -> EventRules:
        """Return the rules of this section with a compiled pattern."""
        by, text = By.CONTINUE, self.continue_
        if self.preset in PARTIAL_PRESETS:
            by, text = By.PARTIAL, PARTIAL_PRESETS[self.preset]
        elif self.preset is not None:
            text = PRESETS[self.preset]
        elif self.start is not None:
            by, text = By.START, self.start
        elif self.end is not None:
            by, text = By.END, self.end
        elif self.indent:
            text = INDENTED if text is None else f"{INDENTED}|{text}"
        assert text is not None
        return EventRules(by, re.compile(text), self.max_lines, self.max_bytes, self.max_age)


class InputSection(_CollectorModel):
    """One input: the lines of the files that match its globs go to its topic."""

    paths: tuple[str, ...] = Field(min_length=1)
    topic: str
    max_topics: int = Field(default=100, ge=1, le=1_000)
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    start: Literal["beginning", "end"] = "beginning"
    key: Literal["path", "host", "none"] = "path"
    headers: dict[str, str] = Field(default_factory=dict)
    fields: dict[str, FieldValue] = Field(default_factory=dict)
    encoding: str = UTF_8
    on_invalid: Literal["keep", "replace", "dead_letter"] = "keep"
    line_end: Literal["cut", "keep", "nul"] = "cut"
    flush_after: DurationMs | None = Field(default=None, ge=100, le=86_400_000)
    strip_ansi: bool = False
    multiline: MultilineSection | None = None
    max_line_bytes: SizeBytes = Field(default=1 << 20, ge=LINE_BYTES_MIN, le=1 << 30)
    on_overlong: Literal["split", "cut", "dead_letter"] = "split"
    after_ingest: Literal["keep", "move", "delete"] = "keep"
    move_to: str = "ingested"
    max_bytes_per_second: SizeBytes | None = Field(default=None, ge=64 << 10)

    @field_validator("paths")
    @classmethod
    def _paths(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if not path or "\0" in path or path.endswith("/"):
                raise ValueError(
                    f"found {path!r}, expected a file or glob such as 'watched/app/**'"
                )
            if ".." in path.split("/"):
                raise ValueError(f"found {path!r}, expected a path without '..'")
        return paths

    @field_validator("exclude")
    @classmethod
    def _exclude(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not pattern or "/" in pattern:
                raise ValueError(
                    f"found {pattern!r}, expected a pattern for one name without '/', like '*.tmp'"
                )
        return patterns

    @field_validator("topic")
    @classmethod
    def _topic(cls, topic: str) -> str:
        template = template_of(topic)
        if template is None:
            check_input_topic(topic)
        else:
            check_topic_name(template.filled("x" * template.places_max))
        return topic

    @field_validator("headers")
    @classmethod
    def _headers(cls, headers: dict[str, str]) -> dict[str, str]:
        check_headers(headers)
        return headers

    @field_validator("fields")
    @classmethod
    def _fields(cls, fields: dict[str, FieldValue]) -> dict[str, FieldValue]:
        check_fields(fields)
        return fields

    @field_validator("encoding")
    @classmethod
    def _encoding(cls, encoding: str) -> str:
        return canonical_name(encoding)

    @field_validator("multiline", mode="before")
    @classmethod
    def _multiline(cls, value: object) -> object:
        return {"preset": value} if isinstance(value, str) else value

    @field_validator("move_to")
    @classmethod
    def _move_to(cls, folder: str) -> str:
        if not folder.strip("/.") or ".." in folder.split("/") or "\0" in folder:
            raise ValueError(f"found {folder!r}, expected a folder such as 'ingested'")
        return folder.rstrip("/")

    @property
    def template(self) -> TopicTemplate | None:
        """The template for the topics of the input's files; None if all files have the same
        topic."""
        return template_of(self.topic)

    @model_validator(mode="after")
    def _wildcards_for_the_topic(self) -> "InputSection":
        template = self.template
        for path in self.paths if template is not None else ():
            count = wildcard_count(path)
            if template is not None and count < template.places_max:
                raise ValueError(
                    f"found {count} wildcards in {path!r}, expected at least"
                    f" {template.places_max} for the topic {self.topic!r}"
                )
        return self

    @model_validator(mode="after")
    def _fields_of_lines(self) -> "InputSection":
        if self.fields and self.multiline is not None:
            raise ValueError(
                "found fields beside multiline, expected one of them: fields are added to lines"
                " that are JSON objects, line by line"
            )
        return self

    @model_validator(mode="after")
    def _events_of_lines(self) -> "InputSection":
        if self.line_end == "nul" and self.multiline is not None:
            raise ValueError(
                "found multiline beside line_end: nul, expected one of them: a record that ends"
                " with NUL already holds all of its lines"
            )
        return self

    @model_validator(mode="after")
    def _moved_out_of_sight(self) -> "InputSection":
        if self.after_ingest == "move":
            for path in self.paths:
                root = re.split(r"[*?\[]", path)[0].rpartition("/")[0]
                if f"{self.move_to}/".startswith(f"{root}/"):
                    raise ValueError(
                        f"found move_to {self.move_to!r} below {path!r}, expected a folder outside"
                        " the paths of all inputs"
                    )
        return self


def _default_inputs() -> tuple[InputSection, ...]:
    return tuple(
        InputSection(paths=(f"watched/{name}/**",), topic=f"logs.{name}")
        for name in ("access", "json", "text")
    )


class CollectorSection(_CollectorModel):
    """The section `collector:` of the configuration file."""

    instance: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,100}$")
    inputs: tuple[InputSection, ...] = Field(default_factory=_default_inputs)
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "gzip"
    scan_interval: DurationMs = Field(default=2_000, ge=100, le=60_000)
    forget_after: DurationMs = Field(default=7 * 86_400_000, ge=60_000)
    in_flight_bytes: SizeBytes = Field(default=32 << 20, ge=1 << 20, le=1 << 30)
    open_files: int = Field(default=256, ge=8, le=100_000)

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


class TopicSettings(_CollectorModel):
    """One topic that must exist. The value None means the cluster's default."""

    name: str
    partitions: int | None = Field(default=None, ge=1)
    replication: int | None = Field(default=None, ge=1)
    settings: dict[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        return check_topic_name(name)


class StatusAddress(_CollectorModel):
    """The address that serves /healthz, /status and /metrics. Port 0 stands for any free port."""

    host: str = "127.0.0.1"
    port: int = Field(default=8091, ge=0, le=65535)


class CollectorUpdate(_CollectorModel):
    """The part of a configuration that a running collector can apply."""

    section: CollectorSection
    topics: tuple[TopicSettings, ...] = ()


class ReloadSettings(_CollectorModel):
    """A file that is watched for changes, and the command that prints its CollectorUpdate.

    `sha256` is the checksum of the content from which the settings were made, in hexadecimal. A
    change is applied once the file was unchanged for `settled_ms`. This is 0 for a file that is
    always replaced as a whole.
    """

    file: Path
    command: tuple[str, ...]
    sha256: str | None = None
    settled_ms: int = Field(default=500, ge=0)


class CollectorSettings(_CollectorModel):
    """All settings of one collector process. Relative globs start at `home`."""

    part: str = "collector"
    section: CollectorSection = Field(default_factory=CollectorSection)
    bootstrap_servers: str
    home: str
    data_dir: str
    topics: tuple[TopicSettings, ...] = ()
    status: StatusAddress = Field(default_factory=StatusAddress)
    reload: ReloadSettings | None = None
    patience_ms: int = Field(default=60_000, ge=100)
    """How long a one-shot run waits for brokers that do not answer."""

    @model_validator(mode="before")
    @classmethod
    def _absolute(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name in ("home", "data_dir"):
                path = values.get(name)
                if isinstance(path, str) and not path.startswith("/"):
                    raise ValueError(f"{name}: found {path!r}, expected an absolute path")
        return values
