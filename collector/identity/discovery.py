"""Globs into plans: where to walk, which names match, which are left out.

Floor: ground of the room. Pure: walking the folders is `files`' work. `*` and `?` and `[…]` match
within one name, `**` stands for any number of folders; a glob that ends in `**` takes every file
below. Names matching an exclude pattern are left out wherever they stand below the glob's fixed
folder. Of several inputs that match a file the first one has it.
"""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from collector.config.settings import InputSection

_MAGIC = frozenset("*?[")
_TOKENS = re.compile(r"(\*+)|(\?)|(\[!?\]?[^\]]*\])|(.)", re.DOTALL)
HOME_PREFIX = "watched/"


@dataclass(frozen=True)
class Pattern:
    """One glob of one input: everything it can match lies at or below `root`.

    `segments` are the glob's parts below the root; `depth` is how many names a match has below it,
    None for any number. A glob without wildcards is its own root, with no segments.
    """

    input_index: int
    root: str
    segments: tuple[str, ...]
    exclude: tuple[str, ...]
    depth: int | None = field(init=False)
    _matcher: re.Pattern[str] = field(init=False, repr=False)
    _excluder: re.Pattern[str] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        depth = None if "**" in self.segments else len(self.segments)
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "_matcher", re.compile(_translate(self.segments), re.DOTALL))
        excluder = "|".join(fnmatch.translate(pattern) for pattern in self.exclude)
        object.__setattr__(self, "_excluder", re.compile(excluder) if excluder else None)

    def excludes(self, name: str) -> bool:
        """Whether a name on the way is left out, folder or file."""
        return self._excluder is not None and self._excluder.match(name) is not None

    def matches(self, below: str) -> bool:
        """Whether a path relative to the root is one of the glob's files."""
        return self._matcher.match(below) is not None

    def enters(self, level: int) -> bool:
        """Whether folders `level` names below the root can hold matches."""
        return self.depth is None or level < self.depth


def plan(inputs: Sequence[InputSection], home: str) -> tuple[Pattern, ...]:
    """The patterns of all inputs, relative globs taken from `home`."""
    return tuple(
        _pattern(index, glob if glob.startswith("/") else f"{home}/{glob}", entry.exclude)
        for index, entry in enumerate(inputs)
        for glob in entry.paths
    )


def is_matched(patterns: Sequence[Pattern], path: str) -> bool:
    """Whether a walk by these patterns would find a file under this name."""
    for pattern in patterns:
        if not pattern.segments:
            if path == pattern.root:
                return True
            continue
        folder = f"{pattern.root.rstrip('/')}/"
        below = path.removeprefix(folder)
        if below == path or not pattern.matches(below):
            continue
        if not any(pattern.excludes(name) for name in below.split("/")):
            return True
    return False


def record_key(path: str, home: str) -> str:
    """The path as records are keyed by it: below home without the leading `watched/`."""
    if not path.startswith(f"{home}/"):
        return path
    return path[len(home) + 1 :].removeprefix(HOME_PREFIX)


def _pattern(index: int, glob: str, exclude: tuple[str, ...]) -> Pattern:
    parts = [part for part in glob.split("/") if part not in ("", ".")]
    fixed = next((i for i, part in enumerate(parts) if _MAGIC & set(part)), len(parts))
    return Pattern(index, "/" + "/".join(parts[:fixed]), tuple(parts[fixed:]), exclude)


def _translate(segments: Sequence[str]) -> str:
    """A regular expression for the whole path below the root."""
    out = []
    for index, segment in enumerate(segments):
        is_last = index == len(segments) - 1
        if segment == "**":
            out.append("[^/]+(?:/[^/]+)*" if is_last else "(?:[^/]+/)*")
        else:
            out.append(_translate_name(segment) + ("" if is_last else "/"))
    return "".join(out) + r"\Z"


def _translate_name(segment: str) -> str:
    """One name of the glob; its wildcards do not cross a slash."""
    out = []
    for star, one, choice, literal in _TOKENS.findall(segment):
        if star:
            out.append("[^/]*")
        elif one:
            out.append("[^/]")
        elif choice:
            inner = fnmatch.translate(choice).removeprefix("(?s:").removesuffix(r")\Z")
            out.append(f"(?!/){inner}")
        else:
            out.append(re.escape(literal))
    return "".join(out)
