"""Globs into plans: where to walk, which names match, which are left out.

Floor: ground of the room. Pure: walking the folders is `files`' work. What a glob means is told in
`config/globs`. Names matching an exclude pattern are left out wherever they stand below the glob's
fixed folder. Of several inputs that match a file the first one has it.
"""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from collector.config.globs import MAGIC, segments_of, translate
from collector.config.settings import InputSection

HOME_PREFIX = "watched/"

Standing = frozenset[int]
"""The segments of a glob that the next name of a walk may match."""


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
    _names: tuple[re.Pattern[str] | None, ...] = field(init=False, repr=False)
    """What each segment matches; None for `**`."""
    _excluder: re.Pattern[str] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        depth = None if "**" in self.segments else len(self.segments)
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "_matcher", re.compile(translate(self.segments), re.DOTALL))
        names = tuple(
            None if part == "**" else re.compile(translate([part]), re.DOTALL)
            for part in self.segments
        )
        object.__setattr__(self, "_names", names)
        excluder = "|".join(fnmatch.translate(pattern) for pattern in self.exclude)
        object.__setattr__(self, "_excluder", re.compile(excluder) if excluder else None)

    def excludes(self, name: str) -> bool:
        """Whether a name on the way is left out, folder or file."""
        return self._excluder is not None and self._excluder.match(name) is not None

    def matches(self, below: str) -> bool:
        """Whether a path relative to the root is one of the glob's files."""
        return self._matcher.match(below) is not None

    def wildcards(self, path: str) -> tuple[str, ...] | None:
        """What the wildcards stand for in a path that a walk would find; None for any other."""
        if not self.segments:
            return () if path == self.root else None
        below = path.removeprefix(f"{self.root.rstrip('/')}/")
        found = None if below == path else self._matcher.match(below)
        if found is None or any(self.excludes(name) for name in below.split("/")):
            return None
        # What stands for folders ends with a slash.
        return tuple(word.removesuffix("/") for word in found.groups())

    @property
    def outset(self) -> Standing:
        """Where a walk stands at the root: which segments the next name may match."""
        return self._with_skipped({0})

    def below(self, standing: Standing, name: str) -> Standing:
        """Where a walk stands in a folder of this name; empty if no match can lie below it.

        Two folders with one content and one standing hold the same matches.
        """
        reached = set()
        for index in standing:
            names = self._names[index]
            if names is None:
                reached.add(index)
            elif index + 1 < len(self._names) and names.match(name):
                reached.add(index + 1)
        return self._with_skipped(reached)

    def goes_deeper(self, standing: Standing) -> bool:
        """Tell whether folders of a folder with this standing can hold matches."""
        last = len(self._names) - 1
        return any(index < last or self._names[index] is None for index in standing)

    def _with_skipped(self, reached: set[int]) -> Standing:
        """`**` also stands for no folder at all, unless it is the last segment."""
        for index in sorted(reached):
            following = index
            while following + 1 < len(self._names) and self._names[following] is None:
                following += 1
                reached.add(following)
        return frozenset(reached)


def plan(inputs: Sequence[InputSection], home: str) -> tuple[Pattern, ...]:
    """The patterns of all inputs, relative globs taken from `home`."""
    return tuple(
        _pattern(index, "/" if glob.startswith("/") else home, glob, entry.exclude)
        for index, entry in enumerate(inputs)
        for glob in entry.paths
    )


def is_matched(patterns: Sequence[Pattern], path: str) -> bool:
    """Whether a walk by these patterns would find a file under this name."""
    return any(pattern.wildcards(path) is not None for pattern in patterns)


def record_key(path: str, home: str) -> str:
    """The path as records are keyed by it: below home without the leading `watched/`."""
    if not path.startswith(f"{home}/"):
        return path
    return path[len(home) + 1 :].removeprefix(HOME_PREFIX)


def _pattern(index: int, folder: str, glob: str, exclude: tuple[str, ...]) -> Pattern:
    parts = segments_of(glob)
    fixed = next((i for i, part in enumerate(parts) if MAGIC & set(part)), len(parts))
    # The folder is no glob, whatever its name has in it.
    root = "/" + "/".join(segments_of(folder) + parts[:fixed])
    return Pattern(index, root, tuple(parts[fixed:]), exclude)
