"""Find hidden connections between the parts of the broker.

A part gets the objects that it calls through its constructor, or through a method of a named
interface (`report_to`). So the types show which part calls which. A hook is a call that no type
shows, because an object sets an attribute of another object to a function or to `self`.
"""

import ast
from collections.abc import Iterable, Iterator

from tests.house.tree import Module


def method_names(modules: Iterable[Module]) -> set[str]:
    """Return the names of all methods that are not properties."""
    return {
        function.name
        for of in modules
        for cls in ast.walk(of.tree)
        if isinstance(cls, ast.ClassDef)
        for function in cls.body
        if isinstance(function, ast.FunctionDef) and not function.decorator_list
    }


def hooks(of: Module, methods: set[str]) -> Iterator[str]:
    """Yield each assignment that sets an attribute of another object to a function or `self`."""
    of_classes = {
        id(one) for cls in ast.walk(of.tree) if isinstance(cls, ast.ClassDef) for one in cls.body
    }
    functions = {
        one.name
        for one in ast.walk(of.tree)
        if isinstance(one, ast.FunctionDef) and id(one) not in of_classes
    }
    imported = {
        alias.asname or alias.name
        for one in ast.walk(of.tree)
        if isinstance(one, ast.Import)
        for alias in one.names
    }

    def is_callable(value: ast.expr | None) -> bool:
        match value:
            case ast.Lambda():
                return True
            case ast.Name(id=name):
                return name == "self" or name in functions
            case ast.Attribute(attr=name):
                return name in methods
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return any(isinstance(one, ast.Attribute | ast.Name) for one in parts)
        return False

    for node in ast.walk(of.tree):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        else:
            continue
        if isinstance(node.value, ast.List | ast.Tuple) and not isinstance(node, ast.AugAssign):
            continue
        for target in targets:
            if _is_foreign(target, imported) and is_callable(node.value):
                yield f"{of.path}:{node.lineno}: {ast.unparse(node)}"


def _is_foreign(target: ast.expr, imported: set[str]) -> bool:
    """Return True for an attribute of another object that is not a Python module."""
    if not isinstance(target, ast.Attribute):
        return False
    owner = target.value
    return not (isinstance(owner, ast.Name) and owner.id in {"self", "cls", *imported})


def private_names_of_bases(of: Module) -> Iterator[str]:
    """No class uses private names of a base class that another file defines."""
    own = {one.name for one in of.tree.body if isinstance(one, ast.ClassDef)}
    for cls in of.tree.body:
        if not isinstance(cls, ast.ClassDef):
            continue
        bases = [ast.unparse(one).partition("[")[0] for one in cls.bases]
        if not [one for one in bases if one not in own and one not in ("Protocol", "Generic")]:
            continue
        used: dict[str, int] = {}
        defined = {
            one.name for one in cls.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for node in ast.walk(cls):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            if node.attr.startswith("_") and not node.attr.startswith("__"):
                if isinstance(node.ctx, ast.Store):
                    defined.add(node.attr)
                else:
                    used.setdefault(node.attr, node.lineno)
        for name in sorted(used.keys() - defined):
            yield f"{of.path}:{used[name]}: {cls.name} uses {name} of {', '.join(bases)}"
