"""One input of the collector: which files are read, how, and to which topic their lines go.

The module uses only the values that it gets. Every error names what was found and what was
expected. The appliance shows it with file, line and key.
"""

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from collector.config.base import CollectorModel, DurationMs, SizeBytes
from collector.config.encoding_names import UTF_8, canonical_name
from collector.config.globs import wildcard_count
from collector.config.headers import FieldValue, check_fields, check_headers
from collector.config.multiline_section import MultilineSection
from collector.config.topics import TopicTemplate, template_of
from protocol.collector_report import COLLECTORS_TOPIC

POSITIONS_TOPIC = "millrace.positions"
GROUP_POSITIONS_PREFIX = f"{POSITIONS_TOPIC}."  # the name of a trust group follows
DEAD_LETTERS_TOPIC = "millrace.dead-letters"
DEFAULT_EXCLUDE = (".*", "*~", "*.swp", "*.tmp", "*.part")
LINE_BYTES_MIN = 1024  # a line up to this length is never overlong, whatever a topic accepts


def check_topic_name(name: str) -> str:
    """Check Kafka's rule for topic names; raises ValueError with what was expected."""
    legal = name and len(name) <= 249 and name not in (".", "..")
    if not legal or not all(c.isascii() and (c.isalnum() or c in "._-") for c in name):
        raise ValueError(
            f"found {name!r}, expected a topic name: 1 to 249 of letters, digits, '.', '_', '-'"
        )
    return name


def check_input_topic(name: str) -> None:
    """Check the name of a topic for an input's lines; raises ValueError."""
    check_topic_name(name)
    is_own = name in (POSITIONS_TOPIC, DEAD_LETTERS_TOPIC, COLLECTORS_TOPIC)
    if is_own or name.startswith((GROUP_POSITIONS_PREFIX, "__")):
        raise ValueError(f"found {name!r}, expected a topic of your own, not an internal one")


class InputSection(CollectorModel):
    """One input: the lines of the files that match these globs go to this topic."""

    paths: tuple[str, ...] = Field(
        min_length=1,
        description="globs of the files, from the mill's folder or absolute; `**` matches folders"
        " at any depth. A file belongs to the first input that matches it",
        examples=[["watched/app/**", "/var/log/app/*.log"]],
    )
    topic: str = Field(
        description="the topic of the lines. `{1}` stands for what the first wildcard of the glob"
        " matched, see [topics by a part of the path](#topics-by-a-part-of-the-path)",
        examples=["logs.app"],
    )
    max_topics: int = Field(
        default=100,
        ge=1,
        le=1_000,
        description="at most so many topics are made from one template",
        examples=[20],
    )
    exclude: tuple[str, ...] = Field(
        default=DEFAULT_EXCLUDE,
        description="patterns for the names of files, folders and links that are passed over",
        examples=[["*.bak", "old"]],
    )
    start: Literal["beginning", "end"] = Field(
        default="beginning",
        description="where the collector begins with files that exist when the input is new."
        " `end`: only lines that are added to them later are read",
        examples=["end"],
    )
    key: Literal["path", "host", "none"] = Field(
        default="path",
        description="the key of the records. Lines of a host with the same key keep their order."
        " `path`: the name under which the file was first seen",
        examples=["host"],
    )
    headers: dict[str, str] = Field(
        default_factory=dict,
        description="headers of each record. `{host}` is this machine's name, in a container the"
        " container's. At most 16, their names of 100 bytes and not beginning with `millrace.`,"
        " their values of 1000",
        examples=[{"host": "{host}", "env": "production"}],
    )
    fields: dict[str, FieldValue] = Field(
        default_factory=dict,
        description="fields that are added to each line that is a JSON object: text, numbers, true"
        " and false. A key that the line already has is not changed. Other lines are not changed,"
        " and are counted in `fields_not_put`. Not with `multiline`. Every line is parsed for this:"
        " if your readers can use headers, `headers` takes a twelfth of the time",
        examples=[{"host": "{host}", "shard": 3}],
    )
    encoding: str = Field(
        default=UTF_8,
        description="how the file is written; records are UTF-8. `utf-16` (by its byte order"
        " mark), `utf-16-le`, `utf-16-be`, `latin-1`, `windows-1252`, `gbk`, `gb18030`,"
        " `shift_jis`, `euc_jp`, `euc_kr`, `big5`, `koi8-r` and Python's other codecs for text in"
        " which each line can be decoded alone. A byte order mark before a line is removed, also"
        " in the middle of a file. A file with the mark of UTF-16 is read as UTF-16 without a"
        " setting",
        examples=["windows-1252"],
    )
    on_invalid: Literal["keep", "replace", "dead_letter"] = Field(
        default="keep",
        description="bytes that are not valid in this encoding: `keep` (UTF-8 as it is, else each"
        " as `\\xNN`), `replace` by U+FFFD, or the whole line as a `dead_letter`",
        examples=["replace"],
    )
    line_end: Literal["cut", "keep", "nul"] = Field(
        default="cut",
        description="`cut` removes a CR before the newline, `keep` keeps it. With `nul`, a record"
        " ends with a NUL byte, as GELF sends it, and newlines are part of it; not with"
        " `multiline`",
        examples=["nul"],
    )
    flush_after: DurationMs | None = Field(
        default=None,
        ge=100,
        le=86_400_000,
        description="how long nothing may be added to a file until its last line becomes a record"
        " without its line end, for files that end without one, such as CloudTrail's. null: it"
        " waits. It is sent once, also over restarts. Bytes that are added later begin another"
        " record, so choose more than the longest pause within a line",
        examples=["5s"],
    )
    strip_ansi: bool = Field(
        default=False,
        description="true: colours and other escape sequences of terminals (ECMA-48) are removed"
        " from each line, before `multiline` and the stream's format see it",
        examples=[True],
    )
    multiline: MultilineSection | None = Field(
        default=None,
        description="which lines are one record, see [multi-line events](#multi-line-events)."
        " null: each line is a record",
        examples=["java", {"start": r"^\d{4}-\d\d-\d\d", "max_age": "2s"}],
    )
    max_line_bytes: SizeBytes = Field(
        default=1 << 20,
        ge=LINE_BYTES_MIN,
        le=1 << 30,
        description="the longest line, in bytes of the file; nearly 8 MiB fit a record (of"
        " encodings other than UTF-8: nearly 2 MiB)",
        examples=["4MiB"],
    )
    on_overlong: Literal["split", "cut", "dead_letter"] = Field(
        default="split",
        description="a longer line: `split` into several records, `cut`, or its first bytes as a"
        " `dead_letter`",
        examples=["dead_letter"],
    )
    after_ingest: Literal["keep", "move", "delete"] = Field(
        default="keep",
        description="`delete` a file, or `move` it to `move_to`, once all of it is committed and"
        " 5 s old. Use it only for files that are dropped whole: what a writer adds after a pause"
        " is lost. A file without its last line end, with more than one name or with damage is"
        " left in place",
        examples=["move"],
    )
    move_to: str = Field(
        default="ingested",
        description="the folder for `after_ingest: move`, from the mill's folder",
        examples=["archive/done"],
    )
    max_bytes_per_second: SizeBytes | None = Field(
        default=None,
        ge=64 << 10,
        description="how fast the files of this input are read, all together, one block (1 MiB at"
        " most) at a time. null: no limit",
        examples=["1MiB"],
    )

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
        """The template for the topics of its files; None if all files have the same topic."""
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
