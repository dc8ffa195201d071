"""Formats as data: one small YAML file per format, shipped in `stream/formats` or by the user.

A file has the name of the format, its columns with their meaning, and the *reader*, which is the
built-in format that splits its lines, with the reader's keys. `format: NAME` in an input means the
same as writing these keys there.

Programs call `load_formats(folders)` to read the files of some folders; a file in a later folder
replaces one of the same name. `Format.recognise(lines)` returns the share of lines that have the
format. It needs no JVM, because it evaluates the patterns with Python's `re`. A high share means
that the format can read the lines, not that no other format can. So compare the shares of all
formats. Prefer a format with `signs` or its own columns to `json`, `logfmt` and `csv`, because
these three accept many kinds of files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType

import yaml
from pydantic import Field, ValidationError, field_validator

from stream.config.base import NAME, Names, Section
from stream.config.formats import FORMAT_COLUMNS
from stream.config.groups import PatternFault, python_pattern
from stream.config.headers import HeaderKeys, header_fields
from stream.config.recognition import LineTest, Verdict, line_test, plain_text
from stream.config.times import Time, listed
from stream.config.windows import fault

SHIPPED = Path(__file__).parents[1] / "formats"

# The keys of an input that a format replaces, in addition to its columns.
_AS_IN_INPUT = "as in an input of `stream.from`"
_INPUT_KEYS = ("reader", "pattern", "delimiter", "quote", "escape", "comment", "header", "tz")


class FormatFault(ValueError):
    """The error for a format file that cannot be used. It has the file's path and the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class FormatColumn(Section):
    """A column of a format: its type, its meaning (`about`), and its address (`at`, else its
    name)."""

    type: str = Field(
        default="string", description="as in `columns` of an input", examples=["bigint"]
    )
    about: str = Field(description="what the column means", examples=["number of the order"])
    at: str | None = Field(
        default=None,
        description="the group, path, key or field. null: the column's name",
        examples=["order"],
    )


class Format(Section):
    """A format of lines, as its file defines it.

    `signs` is a regular expression that matches somewhere in every line of the format. A format
    needs it if its reader also accepts lines of other formats. `multiline` is the rule by which the
    collector joins lines to events, as in an input of the collector. `samples` are lines from real
    files.
    """

    name: str = Field(description="the name of the file without `.yaml`", examples=["shop"])
    title: str = Field(description="what the format is called", examples=["The log of our shop"])
    reader: str = Field(
        default="regex",
        description="the built-in format that splits the lines: `regex`, `json`, `logfmt`, `csv`,"
        " `w3c`, `cef`, `syslog`, `combined` or `common`",
        examples=["csv"],
    )
    pattern: str | None = Field(
        default=None, description=_AS_IN_INPUT, examples=[r"^(?<ts>\S+) (?<order>\d+)$"]
    )
    delimiter: str | None = Field(default=None, description=_AS_IN_INPUT, examples=[";"])
    quote: str | None = Field(default=None, description=_AS_IN_INPUT, examples=["'"])
    escape: str | None = Field(default=None, description=_AS_IN_INPUT, examples=["\\"])
    comment: str | None = Field(default=None, description=_AS_IN_INPUT, examples=["#"])
    header: Names | None = Field(default=None, description=_AS_IN_INPUT, examples=["ts,order"])
    tz: str | None = Field(default=None, description=_AS_IN_INPUT, examples=["Europe/Berlin"])
    time: Time | None = Field(
        default=None,
        description=_AS_IN_INPUT,
        examples=[{"column": "ts", "layout": "%d.%m.%Y %H:%M:%S"}],
    )
    columns: dict[str, FormatColumn] = Field(
        default={},
        description="the columns, each with the keys below",
        examples=[{"order_id": {"type": "bigint", "about": "number of the order", "at": "order"}}],
    )
    signs: str | None = Field(
        default=None,
        description="a regular expression that matches in every line, if the reader also accepts"
        " lines of other formats",
        examples=['"order":'],
    )
    multiline: str | dict[str, str | bool] | None = Field(
        default=None,
        description="how the collector joins lines to events, as in an input of the collector",
        examples=[{"start": r"^\d\d\.\d\d\.\d{4} "}],
    )
    samples: tuple[str, ...] = Field(
        default=(), description="lines of real files", examples=[["01.07.2024 10:00:00 17"]]
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not NAME.match(value):
            raise fault(repr(value), "1 to 48 of a-z, 0-9 and _, beginning with a letter")
        return value

    @field_validator("pattern", "signs")
    @classmethod
    def _check_pattern(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(python_pattern(value), re.ASCII)
            except re.error as error:
                raise fault(f"a pattern with {error}", "a regular expression") from error
            except PatternFault as error:
                raise fault(error.found, error.expected) from error
        return value

    def input_keys(self) -> dict[str, object]:
        """Return the keys of an input that `format: NAME` is short for."""
        keys: dict[str, object] = {
            key: value for key in _INPUT_KEYS if (value := getattr(self, key)) is not None
        }
        if self.time is not None:
            keys["time"] = self.time
        if self.columns:
            keys["columns"] = {
                name: _declaration(name, column) for name, column in self.columns.items()
            }
        return keys

    def completed(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return the keys of an input combined with those of the format.

        A key that the input has itself takes precedence. Columns of both are merged. If the input
        has its own header, columns of the format that are not in that header do not exist.
        """
        keys = self.input_keys()
        own = {key: value for key, value in given.items() if value is not None}
        if self.header is not None and "header" in own:
            keys["columns"] = self._columns_in({**keys, **own})
        columns, more = keys.get("columns"), own.get("columns")
        if isinstance(columns, dict) and isinstance(more, Mapping):
            own["columns"] = {**columns, **more}
        return {**keys, **own}

    def _columns_in(self, keys: Mapping[str, object]) -> dict[str, str]:
        """Return the columns whose fields are in the header of an input with these keys."""
        header = listed(keys["header"])
        texts = tuple(header) if isinstance(header, list | tuple) else ()
        if not all(isinstance(text, str) for text in texts):
            return {}  # the header has a fault, which its own validation reports
        fields = header_fields(HeaderKeys({**keys, "header": texts}))
        return {
            name: _declaration(name, column)
            for name, column in self.columns.items()
            if (column.at or name) in fields or (column.at or name).isdigit()
        }

    def recognise(self, lines: Sequence[str]) -> float:
        """Return the share of lines that have the format, from 0 to 1; 0 if there are no lines.

        Empty lines, headers and comments do not count. The caller must have joined the lines to
        events if the format has `multiline`.
        """
        judged = [verdict for verdict in self.verdicts(lines) if verdict is not None]
        return sum(judged) / len(judged) if judged else 0.0

    def verdicts(self, lines: Sequence[str]) -> list[Verdict]:
        """Return for each line whether it has the format.

        None for a line that does not count: an empty line, a header or a comment.
        """
        return list(self._test.verdicts([plain_text(line) for line in lines]))

    def matches(self, line: str) -> bool:
        """Tell whether one line has the format."""
        return self.recognise([line]) == 1.0

    @cached_property
    def _test(self) -> LineTest:
        return line_test(self)


def _declaration(name: str, column: FormatColumn) -> str:
    return f"{column.at or name} {column.type}"


def parse_format(name: str, text: str) -> Format:
    """Parse the text of a format's file; `name` is the file's name. Raises ValueError."""
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {error}") from error
    if not isinstance(said, dict):
        raise fault("no keys", "keys such as title, pattern and columns")
    if said.setdefault("name", name) != name:
        raise fault(f"name {said['name']!r}", f"the name of the file, {name}")
    try:
        return Format.model_validate(said)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise ValueError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from error


def load_formats(folders: Sequence[Path] = (SHIPPED,)) -> dict[str, Format]:
    """Return the formats of all files `*.yaml` in some folders, by their names.

    A format in a later folder replaces one of the same name. A missing folder has no formats.
    Raises FormatFault.
    """
    found: dict[str, Format] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            found[path.stem] = _read(path)
    return found


def _read(path: Path) -> Format:
    try:
        return parse_format(path.stem, path.read_text())
    except (OSError, ValueError) as error:
        raise FormatFault(path, str(error)) from error


@cache
def shipped_names() -> tuple[str, ...]:
    """Return the names of the shipped formats."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


@cache
def _shipped(name: str) -> Format:
    return _read(SHIPPED / f"{name}.yaml")


_users: ContextVar[Mapping[str, Format]] = ContextVar("formats", default=MappingProxyType({}))


@contextmanager
def users_formats(formats: Mapping[str, Format]) -> Iterator[None]:
    """Let inputs that are validated inside this context also use the formats of a user."""
    token = _users.set(formats)
    try:
        yield
    finally:
        _users.reset(token)


def format_names() -> tuple[str, ...]:
    """Return the names of all formats that are defined by files, shipped ones and the user's."""
    return tuple(sorted({*shipped_names(), *_users.get()}))


def shipped_input(name: str) -> dict[str, object] | None:
    """Return all keys of an input that has only `format: NAME`; None if no such format ships."""
    if name in FORMAT_COLUMNS or name not in shipped_names():
        return None
    return _shipped(name).completed({"topic": "any", "format": name})


def completed_input(given: object) -> object:
    """Return an input's keys combined with those of its format, if a file defines that format."""
    if not isinstance(given, Mapping) or given.get("reader") is not None:
        return given
    name = given.get("format")
    found = find_format(name) if isinstance(name, str) and name not in FORMAT_COLUMNS else None
    return given if found is None else found.completed(given)


def find_format(name: object) -> Format | None:
    """Return the format with a name, or None. A user's format replaces a shipped one."""
    users = _users.get().get(str(name))
    if users is not None:
        return users
    return _shipped(str(name)) if name in shipped_names() else None
