"""The laws of the broker's wiring, applied to the tree and to planted faults."""

import pytest

from tests.house import tree, wiring
from tests.house.tree import module

MANY = "class B:\n    def told(self):\n        pass\n\n    def f(self, part):\n        {}\n"


def broker() -> list[tree.Module]:
    return [one for one in tree.modules() if one.room == "broker"]


def test_no_hook_is_assigned_from_outside() -> None:
    modules = broker()
    methods = wiring.method_names(modules)
    assert len(methods) > 1_000
    assert [one for of in modules for one in wiring.hooks(of, methods)] == []


def test_no_class_uses_private_names_of_a_base_in_another_file() -> None:
    assert [one for of in broker() for one in wiring.private_names_of_bases(of)] == []


@pytest.mark.parametrize(
    "line",
    [
        "part.hook = self.told",
        "part.inner.hook = self",
        "self.part.hook = lambda: None",
        "part.hooks += [self.told]",
        "part.hook = made",
    ],
)
def test_a_hook_is_seen(line: str) -> None:
    planted = module("broker/node/x.py", "def made():\n    pass\n\n\n" + MANY.format(line))
    assert len(list(wiring.hooks(planted, wiring.method_names([planted])))) == 1


@pytest.mark.parametrize(
    "line",
    ["self.part = part.told", "part.count = 1", "part.end = self.end", "part.names = [part]"],
)
def test_what_is_no_hook_is_let_be(line: str) -> None:
    kept = module("broker/node/x.py", MANY.format(line))
    assert list(wiring.hooks(kept, wiring.method_names([kept]))) == []


def test_a_private_name_of_a_base_is_seen() -> None:
    text = "from broker.a import A\n\n\nclass B(A):\n    def f(self):\n        return self._x\n"
    assert len(list(wiring.private_names_of_bases(module("broker/b.py", text)))) == 1
    own = text + "\n    def _x(self):\n        pass\n"
    assert list(wiring.private_names_of_bases(module("broker/b.py", own))) == []
