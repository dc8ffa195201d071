"""Find the places where a file iterates over a set, because the order of a set is arbitrary.

The file alone shows what is a set: literals, calls, annotated names, and what is derived from
these. Functions such as `sorted` and `len` do not depend on the order.
"""

import ast
import re
from collections.abc import Iterator

_ORDER_DOES_NOT_MATTER = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}
_TAKES_ITS_ORDER = {
    "dict.fromkeys",
    "enumerate",
    "iter",
    "list",
    "next",
    "reversed",
    "tuple",
    "zip",
}
_SET_TYPE = re.compile(r"(?:set|frozenset|AbstractSet|MutableSet|Set)\b")


def gone_through(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Return line and text of each set that is iterated in its own order."""
    for scope in _scopes(tree):
        known = _sets_in(tree, scope)
        harmless = {
            id(argument)
            for call in _own_nodes(scope)
            if isinstance(call, ast.Call) and ast.unparse(call.func) in _ORDER_DOES_NOT_MATTER
            for argument in call.args
        }
        for node in _own_nodes(scope):
            if isinstance(node, ast.Set):
                harmless.update(map(id, node.elts))
        for node in _own_nodes(scope):
            if id(node) in harmless:
                continue
            for line, found in _in_order(node):
                if _is_set(found, known):
                    yield line, ast.unparse(found)


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, without the functions inside it."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _own_nodes(node)


def _in_order(node: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    if isinstance(node, ast.For):
        yield node.lineno, node.iter
    elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        yield from ((node.lineno, one.iter) for one in node.generators)
    elif isinstance(node, ast.Starred):
        yield node.lineno, node.value
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in _TAKES_ITS_ORDER:
        yield from ((node.lineno, one) for one in node.args)


def _sets_in(tree: ast.Module, scope: ast.AST) -> set[str]:
    """Return the names of sets in a scope: local ones, and attributes that the file declares as
    sets."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and _SET_TYPE.match(ast.unparse(node.annotation)):
            found.add(ast.unparse(node.target))
    for parameter in _parameters(scope):
        if parameter.annotation and _SET_TYPE.match(ast.unparse(parameter.annotation)):
            found.add(parameter.arg)
    for node in _own_nodes(scope):
        if isinstance(node, ast.Assign) and _is_set(node.value, found):
            found.update(ast.unparse(target) for target in node.targets)
    return found


def _parameters(scope: ast.AST) -> list[ast.arg]:
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    return [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]


def _is_set(node: ast.expr, known: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        return called in ("set", "frozenset") or called.endswith((".difference", ".union"))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.Sub):
        return any(_is_set(one, known) or _is_keys(one) for one in (node.left, node.right))
    return ast.unparse(node) in known


def _is_keys(node: ast.expr) -> bool:
    """Return True for a view of keys, which is iterated in order. A combination of two views is
    a set."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".keys")
