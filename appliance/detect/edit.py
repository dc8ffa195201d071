"""Inserts a proposal into the text of a configuration file, and removes it again.

This module is pure. Text is only inserted, at the positions of the sections that the YAML parser
reports. So all other lines keep their comments, order, blanks and quotes. The new text is then
parsed and compared with the expected values.
"""

import copy
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from appliance.config.document import read_document
from appliance.detect.detection import Proposal
from appliance.detect.yaml_text import entry, flow, item

_SOURCE = "the configuration file"


class EditRefused(Exception):
    """Raised when the configuration cannot be edited safely. The text says why."""


@dataclass(frozen=True, slots=True)
class Edited:
    """The new text, and the inserted texts in the order in which they were inserted."""

    text: str
    inserted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Addition:
    """The text to insert into a list or a mapping of a section.

    `lines` is inserted if the list or mapping is written as a block, `pieces` if it is written in
    brackets.
    """

    section: str
    key: str
    lines: Sequence[str]
    pieces: Sequence[str]
    is_list: bool


def with_proposal(
    text: str, proposal: Proposal, default_inputs: Sequence[Mapping[str, object]]
) -> Edited:
    """Insert the inputs and the metrics.

    `default_inputs` are the inputs that are in effect if the file names none. In that case they are
    inserted too, because the new input would replace them. Raises EditRefused, and ConfigFaults if
    the text is not YAML.
    """
    before = _values(text)
    inputs = [proposal.collector]
    if _at(before, "collector", "inputs") is None:
        inputs = [*default_inputs, *inputs]
    name, stream = proposal.name, dict(proposal.stream)
    additions = (
        _Addition(
            "collector",
            "inputs",
            [line for one in inputs for line in item(one)],
            [flow(dict(one)) for one in inputs],
            is_list=True,
        ),
        _Addition(
            "stream", "from", entry(name, stream), [flow({name: stream})[1:-1]], is_list=False
        ),
        _Addition(
            "stream",
            "metrics",
            [line for metric in proposal.metrics for line in item(metric)],
            [flow(dict(metric)) for metric in proposal.metrics],
            is_list=True,
        ),
    )
    inserted = []
    for addition in additions:
        offset, piece = _insertion(text, addition)
        text = text[:offset] + piece + text[offset:]
        inserted.append(piece)
    if _values(text) != _expected(before, inputs, proposal):
        raise EditRefused("the lines cannot be inserted without a change of other keys")
    return Edited(text, tuple(inserted))


def without(text: str, inserted: Sequence[str], name: str, metrics: Sequence[str]) -> str:
    """Remove inserted pieces. Raises EditRefused if a piece has changed since it was inserted."""
    before = _values(text)
    for piece in reversed(inserted):
        if text.count(piece) != 1:
            raise EditRefused("the inserted lines have been changed since")
        text = text.replace(piece, "")
    after = _values(text)
    gone = [one for one in _names(before) if one not in _names(after)]
    sources = _mapping(before, "from"), _mapping(after, "from")
    if set(gone) != set(metrics) or [one for one in sources[0] if one not in sources[1]] != [name]:
        raise EditRefused("the removal of the inserted lines would change other keys")
    return text


def _values(text: str) -> dict[str, object]:
    return read_document(io.StringIO(text, newline=None).read(), _SOURCE).root


def _at(root: Mapping[str, object], section: str, key: str) -> object:
    inner = root.get(section)
    return inner.get(key) if isinstance(inner, Mapping) else None


def _mapping(root: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = _at(root, "stream", key)
    return found if isinstance(found, Mapping) else {}


def _names(root: Mapping[str, object]) -> list[str]:
    found = _at(root, "stream", "metrics")
    metrics = found if isinstance(found, list) else []
    return [str(one.get("name")) for one in metrics if isinstance(one, Mapping)]


def _expected(
    before: Mapping[str, object], inputs: Sequence[Mapping[str, object]], proposal: Proposal
) -> dict[str, object]:
    """Return the values that the file must have after the insertion."""
    root: dict[str, object] = copy.deepcopy(dict(before))
    collector = dict(_section(root, "collector"))
    stream = dict(_section(root, "stream"))
    collector["inputs"] = [*_list(collector.get("inputs")), *map(dict, inputs)]
    sources = stream.get("from")
    known = dict(sources) if isinstance(sources, Mapping) else {}
    stream["from"] = {**known, proposal.name: dict(proposal.stream)}
    stream["metrics"] = [*_list(stream.get("metrics")), *map(dict, proposal.metrics)]
    return {**root, "collector": collector, "stream": stream}


def _section(root: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = root.get(name)
    return found if isinstance(found, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _insertion(text: str, addition: _Addition) -> tuple[int, str]:
    """Return the position at which an addition must be inserted, and its text for that position."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    section = [f"{addition.section}:", *_indented([f"{addition.key}:"], 2)]
    block = [*section, *_indented(addition.lines, 4)]
    if root is None:
        return _after_line(text, len(text), block)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise EditRefused("the top level of the file is not a mapping in YAML's block style")
    inner = _child(root, addition.section)
    if inner is None:
        return _after_line(text, len(text), block)
    below = [f"{addition.key}:", *_indented(addition.lines, 2)]
    key, node = inner
    if _is_empty(node):
        column = key.start_mark.column + 2
        return _after_line(text, key.end_mark.index, _indented(below, column))
    if not isinstance(node, yaml.MappingNode):
        raise EditRefused(f"`{addition.section}` is not a mapping")
    found = _child(node, addition.key)
    if found is not None:
        return _into(text, addition, *found)
    if node.flow_style:
        opening, closing = "[]" if addition.is_list else "{}"
        return _in_brackets(
            text, node, f"{addition.key}: {opening}{', '.join(addition.pieces)}{closing}"
        )
    return _after_line(text, _end(node), _indented(below, node.start_mark.column))


def _into(text: str, addition: _Addition, key: yaml.Node, node: yaml.Node) -> tuple[int, str]:
    """Return position and text of an addition to an existing list or mapping."""
    if _is_empty(node):
        lines = _indented(addition.lines, key.start_mark.column + 2)
        return _after_line(text, key.end_mark.index, lines)
    kind = yaml.SequenceNode if addition.is_list else yaml.MappingNode
    if not isinstance(node, kind):
        wanted = "list" if addition.is_list else "mapping"
        raise EditRefused(f"`{addition.section}.{addition.key}` is not a {wanted} in the file")
    if node.flow_style:
        return _in_brackets(text, node, ", ".join(addition.pieces))
    return _after_line(text, _end(node), _indented(addition.lines, node.start_mark.column))


def _in_brackets(text: str, node: yaml.CollectionNode, piece: str) -> tuple[int, str]:
    """Return position and text of a piece that comes after the last entry and before the closing
    bracket.
    """
    closing = node.end_mark.index - 1
    if not node.value:
        return closing, piece
    last = _end_of_entry(node)
    rest = text[last:closing]
    is_parted = any("," in line.split("#")[0] for line in rest.splitlines())
    return (closing, f" {piece}") if is_parted else (last, f", {piece}")


def _after_line(text: str, index: int, lines: Sequence[str]) -> tuple[int, str]:
    """Return position and text of lines that come after the line that contains `index`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    block = "".join(f"{line}{newline}" for line in lines)
    if index == 0 or text[index - 1] == "\n":
        return index, block
    end = text.find("\n", index)
    if end < 0:
        return len(text), newline + block.removesuffix(newline)
    return end + 1, block


def _child(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == name:
            return key, value
    return None


def _is_empty(node: yaml.Node) -> bool:
    """Return whether a key has no text after it. The word `null` is a text, which is refused
    later."""
    return isinstance(node, yaml.ScalarNode) and node.start_mark.index == node.end_mark.index


def _end(node: yaml.Node) -> int:
    """Return the end of the last text of a node, without the blank lines and comments after it."""
    if isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        return _end_of_entry(node)
    return int(node.end_mark.index)


def _end_of_entry(node: yaml.CollectionNode) -> int:
    last = node.value[-1]
    if isinstance(last, tuple):
        key, value = last
        return int(key.end_mark.index) if _is_empty(value) else _end(value)
    return _end(last)


def _indented(lines: Sequence[str], blanks: int) -> list[str]:
    return [f"{' ' * blanks}{line}" for line in lines]
