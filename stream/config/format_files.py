"""Formats as data: one small YAML file for each, shipped (`stream/formats`) or a user's.

A file says what the format is called, which reader takes its lines apart and with which keys, which
columns it has and what they mean. `format: NAME` of an input stands for these keys.

For programs: `load_formats(folders)` reads the files of some folders, later folders over earlier
ones. `Format.recognise(lines)` is the share of lines that have the format; it needs no JVM, because
it reads the patterns by Python's `re`. A share says that the lines can be read, not that no other
format reads them too: compare the shares of all formats, and prefer a format with `signs` or
columns of its own to `json`, `logfmt` and `csv`, which read many files.
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

from stream.config.base import Names, Section
from stream.config.formats import FORMAT_COLUMNS
from stream.config.groups import PatternFault, python_pattern
from stream.config.recognition import LineTest, Verdict, line_test, plain_text
from stream.config.times import Time
from stream.config.windows import fault

SHIPPED = Path(__file__).parents[1] / "formats"

NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
# The keys of an input that a format stands for, beside its columns.
_INPUT_KEYS = ("reader", "pattern", "delimiter", "quote", "escape", "comment", "header", "tz")


class FormatFault(ValueError):
    """A file of a format that cannot be used: its path, and why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class FormatColumn(Section):
    """A column: its type, what it means, and where it is found (by default under its own name)."""

    type: str = "string"
    about: str
    at: str | None = None


class Format(Section):
    """A format of lines.

    `signs` is a regular expression that is found in every line of the format, where its reader
    takes lines of other formats too. `multiline` is the rule by which the collector joins lines to
    events, as an input of the collector has it. `samples` are lines as they are found in files.
    """

    name: str
    title: str
    reader: str = "regex"
    pattern: str | None = None
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    comment: str | None = None
    header: Names | None = None
    tz: str | None = None
    time: Time | None = None
    columns: dict[str, FormatColumn] = Field(default={})
    signs: str | None = None
    multiline: str | dict[str, str | bool] | None = None
    samples: tuple[str, ...] = ()

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
        """The keys of an input that the format stands for."""
        keys: dict[str, object] = {
            key: value for key in _INPUT_KEYS if (value := getattr(self, key)) is not None
        }
        if self.time is not None:
            keys["time"] = self.time
        if self.columns:
            keys["columns"] = {
                name: f"{column.at or name} {column.type}" for name, column in self.columns.items()
            }
        return keys

    def completed(self, given: Mapping[str, object]) -> dict[str, object]:
        """An input's keys with those of the format beside them; what the input says counts."""
        keys = self.input_keys()
        own = {key: value for key, value in given.items() if value is not None}
        columns, more = keys.get("columns"), own.get("columns")
        if isinstance(columns, dict) and isinstance(more, Mapping):
            own["columns"] = {**columns, **more}
        return {**keys, **own}

    def recognise(self, lines: Sequence[str]) -> float:
        """The share of lines that have the format, from 0 to 1; 0 where there are none.

        Empty lines, and headers and comments of the format, are left out. Lines of a format with
        `multiline` must have been joined to events.
        """
        judged = [verdict for verdict in self.verdicts(lines) if verdict is not None]
        return sum(judged) / len(judged) if judged else 0.0

    def verdicts(self, lines: Sequence[str]) -> list[Verdict]:
        """For each line, whether it has the format; None for a line that `recognise` leaves out."""
        return list(self._test.verdicts([plain_text(line) for line in lines]))

    def matches(self, line: str) -> bool:
        """Whether one line has the format."""
        return self.recognise([line]) == 1.0

    @cached_property
    def _test(self) -> LineTest:
        return line_test(self)


def parse_format(name: str, text: str) -> Format:
    """The format of a file's text; `name` is the file's. Raises ValueError for what is wrong."""
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {error}") from error
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
    """The formats of all files `*.yaml` in some folders by name; a missing folder has none.

    A format of a later folder takes the place of its namesake. Raises FormatFault.
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
    """The names of the shipped formats."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yaml")))


@cache
def _shipped(name: str) -> Format:
    return _read(SHIPPED / f"{name}.yaml")


_users: ContextVar[Mapping[str, Format]] = ContextVar("formats", default=MappingProxyType({}))


@contextmanager
def users_formats(formats: Mapping[str, Format]) -> Iterator[None]:
    """Let inputs that are validated within name a user's formats beside the shipped ones."""
    token = _users.set(formats)
    try:
        yield
    finally:
        _users.reset(token)


def format_names() -> tuple[str, ...]:
    """The names of all formats of files that an input may have."""
    return tuple(sorted({*shipped_names(), *_users.get()}))


def shipped_input(name: str) -> dict[str, object] | None:
    """The keys of an input that names a shipped format and says nothing else; None for others."""
    if name in FORMAT_COLUMNS or name not in shipped_names():
        return None
    return _shipped(name).completed({"topic": "any", "format": name})


def completed_input(given: object) -> object:
    """An input's keys, with those for which its format stands beside them."""
    if not isinstance(given, Mapping) or given.get("reader") is not None:
        return given
    name = given.get("format")
    found = find_format(name) if isinstance(name, str) and name not in FORMAT_COLUMNS else None
    return given if found is None else found.completed(given)


def find_format(name: object) -> Format | None:
    """The format of a name, a user's before a shipped one."""
    users = _users.get().get(str(name))
    if users is not None:
        return users
    return _shipped(str(name)) if name in shipped_names() else None
