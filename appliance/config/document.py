"""Parses YAML text into plain values, and keeps the position of each value in the file.

The parser accepts only what a settings file needs: mappings with text keys, lists, and the scalars
null, true/false, integers, decimals and text. So `no`, `1:30` and dates stay text, and no tag can
create an object. Faults are collected and not raised, unless the text is not YAML at all.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from appliance.config.faults import ConfigFault, ConfigFaults, Path, key_text

TEXT_BYTES_MAX = 1 << 20
NODES_MAX = 50_000
DEPTH_MAX = 32

_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?\Z")
_CORE_TAGS = {
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "value")
}


@dataclass(frozen=True, slots=True)
class SourceMark:
    """A position in a source. Lines and columns are numbered from 1. 0 means that the source has no
    lines."""

    source: str
    line: int = 0
    column: int = 0


@dataclass(slots=True)
class Document:
    """The values of one file. `keys` and `values` map a path to the position of its key and of its
    value. `faulty` has the paths of the faults."""

    source: str
    root: dict[str, object] = field(default_factory=dict)
    keys: dict[Path, SourceMark] = field(default_factory=dict)
    values: dict[Path, SourceMark] = field(default_factory=dict)
    faults: list[ConfigFault] = field(default_factory=list)
    faulty: set[Path] = field(default_factory=set)

    def mark_of(self, path: Path, *, key: bool = False) -> SourceMark:
        """Return the position of the value (or the key) at a path.

        If the path has no position, return the position of the closest mapping or list around it.
        """
        marks = self.keys if key else self.values
        for length in range(len(path), 0, -1):
            mark = marks.get(path[:length])
            if mark is not None:
                return mark
        return SourceMark(self.source, 1, 1)

    def add(self, path: Path, found: str, expected: str, *, key: bool = False) -> None:
        """Append a fault at a path."""
        self.add_at(self.mark_of(path, key=key), path, found, expected)

    def add_at(self, mark: SourceMark, path: Path, found: str, expected: str) -> None:
        """Append a fault at a given position, for a path whose position is not stored."""
        self.faulty.add(path)
        self.faults.append(
            ConfigFault(mark.source, mark.line, mark.column, key_text(path), found, expected)
        )


def read_document(text: str, source: str) -> Document:
    """Parse a file's text. Raises ConfigFaults if it is not YAML, or if its top level is not a
    mapping."""
    document = Document(source)
    if len(text) > TEXT_BYTES_MAX:
        raise ConfigFaults(
            [
                ConfigFault(
                    source, 1, 1, "(the file)", f"{len(text)} characters", f"≤ {TEXT_BYTES_MAX}"
                )
            ]
        )
    node = _compose(text, source)
    if node is None:
        return document
    value = _Reader(document).read(node, (), 0)
    if not isinstance(value, dict):
        raise ConfigFaults(
            [
                ConfigFault(
                    source,
                    1,
                    1,
                    "(the file)",
                    "no mapping",
                    "a mapping of sections such as `collector:`",
                )
            ]
        )
    document.root = value
    return document


def read_scalar(text: str) -> object:
    """Parse the text of a value from outside of a file as YAML; if it is not YAML, return the
    text."""
    try:
        node = _compose(text, "")
    except ConfigFaults:
        return text
    scratch = Document("")
    value = None if node is None else _Reader(scratch).read(node, (), 0)
    return text if scratch.faults else value


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        loader = yaml.SafeLoader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
            return node
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        problem = (error.problem or "text that is not YAML").removeprefix("found ")
        raise ConfigFaults(
            [ConfigFault(source, line, column, "(YAML)", problem, "YAML")]
        ) from error
    except (yaml.YAMLError, RecursionError) as error:
        problem = str(error).splitlines()[0]
        raise ConfigFaults([ConfigFault(source, 1, 1, "(YAML)", problem, "YAML")]) from error


class _Reader:
    """Turns YAML nodes into values. The number of nodes is limited, because aliases that repeat
    other aliases can make a small file huge."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0
        self.is_endless = False

    def read(self, node: yaml.Node, path: Path, depth: int) -> object:
        self.count += 1
        mark = self._mark(node)
        self.document.values[path] = mark
        if depth > DEPTH_MAX or self.count > NODES_MAX:
            if not self.is_endless:
                self.is_endless = True
                self._fault(node, path[:1], "values nested or repeated without end", "a plain file")
            return None
        if node.tag not in _CORE_TAGS:
            self._fault(node, path, f"the tag {node.tag}", "a plain value")
            return None
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, path, depth))
        if isinstance(node, yaml.SequenceNode):
            return [
                self.read(child, (*path, index), depth + 1)
                for index, child in enumerate(node.value)
            ]
        text = str(node.value)
        is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
        return plain_value(text) if is_plain else text

    def _pairs(
        self, node: yaml.MappingNode, path: Path, depth: int
    ) -> Iterator[tuple[str, object]]:
        seen: set[str] = set()
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, path, "a key that is not a text", "a text as key")
                continue
            key = str(key_node.value)
            child = (*path, key)
            if key in seen:
                self._fault(key_node, child, "the key a second time", "every key once")
                continue
            seen.add(key)
            self.document.keys[child] = self._mark(key_node)
            yield key, self.read(value_node, child, depth + 1)

    def _mark(self, node: yaml.Node) -> SourceMark:
        start = node.start_mark
        return SourceMark(self.document.source, start.line + 1, start.column + 1)

    def _fault(self, node: yaml.Node, path: Path, found: str, expected: str) -> None:
        self.document.add_at(self._mark(node), path, found, expected)


def plain_value(text: str) -> object:
    """Return the value of an unquoted scalar."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    if _INTEGER.match(text) and len(text) <= 20:
        return int(text)
    if _DECIMAL.match(text) and len(text) <= 40:
        return float(text)
    return text
