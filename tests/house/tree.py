"""The repository as the laws read it. Every file is read and parsed only once."""

import ast
import gc
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "protocol",
    "broker",
    "collector",
    "sinks",
    "stream",
    "monitor",
    "appliance",
    "bench",
    "tests",
)


@dataclass(frozen=True)
class Module:
    """One Python file: its path in the repository, its text, its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts of the path, the last one without `.py`."""
        return tuple(self.path.removesuffix(".py").split("/"))

    @property
    def room(self) -> str:
        """Return the top-level folder."""
        return self.parts[0]


def module(path: str, text: str) -> Module:
    """Return a file made from a text, to try the laws on planted faults."""
    return Module(path, text, ast.parse(text, path))


@cache
def files() -> tuple[str, ...]:
    """Return every file that is or could be committed, by its path in the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        names = listed.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        # Without git (an archive), every file in the rooms is part of the tree.
        found = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()]
        names = [str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts]
    return tuple(sorted({name for name in names if name and (ROOT / name).is_file()}))


@cache
def modules() -> tuple[Module, ...]:
    """Return every Python file of the rooms and of `setup/` that can be parsed."""
    return tuple(of for of in _parsed().values() if of is not None)


def unreadable() -> list[str]:
    """Return the files that are not valid Python. A separate test reports them. So they do not make
    every law fail."""
    return [name for name, of in _parsed().items() if of is None]


@cache
def _parsed() -> dict[str, Module | None]:
    """Return every Python file by path, parsed; None if the running Python cannot parse it.  The
    trees have millions of nodes, which live until the process ends. With garbage collection, this
    takes five times as long as the parsing. So collection is off, and the nodes are frozen.
    """
    names = [n for n in files() if n.endswith(".py") and n.split("/")[0] in (*ROOMS, "setup")]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        found = {name: _module_of(name) for name in names}
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
    return found


def _module_of(name: str) -> Module | None:
    try:
        return module(name, (ROOT / name).read_text(encoding="utf-8"))
    except SyntaxError:
        return None


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return every text file with its content. A file that is not UTF-8 is not a text."""
    found = []
    for name in files():
        try:
            found.append((name, (ROOT / name).read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return tuple(found)
