"""Find top-level names that no product code uses. Uses in tests do not count."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.house.tree import Module

_WORD = re.compile(r"\w+")


def unused(modules: Iterable[Module], texts: Iterable[str]) -> list[str]:
    """Return the constants, aliases and functions that the product names only once.  `texts` are
    other files, such as templates, in which a name counts as used too. Functions that a decorator
    registers count as used, and so do message classes, which register themselves.
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
