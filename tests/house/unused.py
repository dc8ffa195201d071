"""Top-level names that no product code uses; uses in tests do not count."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.house.tree import Module

_WORD = re.compile(r"\w+")


def unused(modules: Iterable[Module], texts: Iterable[str]) -> list[str]:
    """Constants, aliases and functions of these files that neither they nor these texts, templates
    and the like, name a second time.

    What a decorator registers, and classes of messages, which register themselves, are used.
    """
    product = list(modules)
    words: Counter[str] = Counter()
    for text in (*(one.text for one in product), *texts):
        words.update(_WORD.findall(text))
    return [
        f"{one.path}: {name}" for one in product for name in _defined(one.tree) if words[name] == 1
    ]


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.decorator_list:
                yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
