"""The texts that the program can print: every string of its source, with `…` for filled-in
values."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from appliance.mill.home import CODE

ROOMS = ("appliance", "broker", "collector", "monitor", "protocol", "sinks", "stream")
FILLED = "…"


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or FILLED for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None and right is None else (left or FILLED) + (right or FILLED)
    return None


def sources() -> Iterator[Path]:
    """Yield the program's own source files."""
    for room in ROOMS:
        yield from sorted((CODE / room).rglob("*.py"))


@cache
def literals() -> tuple[str, ...]:
    """Return all texts. F-strings and sums of texts count as one text."""
    found = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.expr) and (text := _text(node)):
                found.add(text)
    return tuple(sorted(found))


def is_said(message: str) -> bool:
    """Return True if one text of the program contains all parts of `message` between the `…`, in
    order."""
    stretches = [stretch for stretch in message.split(FILLED) if stretch]

    def has_all(text: str) -> bool:
        at = 0
        for stretch in stretches:
            found = text.find(stretch, at)
            if found < 0:
                return False
            at = found + len(stretch)
        return True

    return any(has_all(text) for text in literals())
