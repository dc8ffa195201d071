"""Find the places where a file iterates over a set, because the order of a set is arbitrary.

Which expressions are sets is derived from the file alone: literals, calls, annotated names, and
expressions made of these. A set may be passed to functions such as `sorted` and `len`, because they
do not depend on the order.
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
    """Yield line and text of each expression that iterates over a set in the set's own order."""
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
    """Yield the nodes of a scope, except the nodes of functions inside it."""
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
    """Return the names in a scope that are sets: local variables, and attributes that the file
    annotates as sets."""
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
    """Return True for a view of a dict's keys, which has the order of the dict. Combining two views
    gives a set."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".keys")
