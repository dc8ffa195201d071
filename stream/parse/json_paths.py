"""Declared json paths as one schema in which every leaf is text.

Floor: pure, no JVM. A line is taken apart once, by `from_json` with this schema; Spark then gives
each scalar exactly as it is written. A place that is wanted both as a whole and in parts is read
as text, and its parts out of that text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stream.config.expression import quote_name, quote_text

Steps = tuple[str | int, ...]


@dataclass(slots=True)
class JsonNode:
    """A place in the document: wanted as a whole, or for what is below it."""

    is_wanted: bool = False
    below: dict[str, "JsonNode"] = field(default_factory=dict)
    element: "JsonNode | None" = None

    @property
    def is_text(self) -> bool:
        """Read as text: a leaf, or wanted in more than one shape."""
        shapes = self.is_wanted + bool(self.below) + (self.element is not None)
        return self.is_wanted or shapes > 1


def json_tree(paths: Sequence[Steps]) -> dict[str, JsonNode]:
    """The places that some paths name, by the first step."""
    root = JsonNode()
    for path in paths:
        node = root
        for step in path:
            if isinstance(step, int):
                node.element = node.element or JsonNode()
                node = node.element
            else:
                node = node.below.setdefault(step, JsonNode())
        node.is_wanted = True
    return root.below


def json_fields(tree: dict[str, JsonNode]) -> str:
    """The columns of a schema, as Spark's DDL has them: ``a STRING, b STRUCT<…>``."""
    return ", ".join(f"{quote_name(name)} {_type(node)}" for name, node in sorted(tree.items()))


def json_text(tree: dict[str, JsonNode], fields: str, steps: Steps) -> str:
    """The expression for the text at a path, given the parsed line."""
    node = JsonNode(below=tree)
    found = fields
    for step in steps:
        # Down to here is text, although there is more below: read it again.
        reread = node.is_text
        if isinstance(step, int):
            assert node.element is not None
            node = node.element
            array = f"from_json({found}, {quote_text(f'ARRAY<{_type(node)}>')})"
            found = f"get({array if reread else found}, {step})"
        else:
            node = node.below[step]
            struct = f"from_json({found}, {quote_text(f'{quote_name(step)} {_type(node)}')})"
            found = f"{struct if reread else found}.{quote_name(step)}"
    return found


def _type(node: JsonNode) -> str:
    if node.is_text:
        return "STRING"
    if node.element is not None:
        return f"ARRAY<{_type(node.element)}>"
    inner = ", ".join(f"{quote_name(name)}: {_type(n)}" for name, n in sorted(node.below.items()))
    return f"STRUCT<{inner}>"
