"""Turns the globs of the inputs into patterns for walking folders and matching names.

This module is pure; `files` walks the folders. `config/globs` describes the syntax. A name that
matches an exclude pattern is left out anywhere below the glob's fixed folder. A file that several
inputs match belongs to the first of them.
"""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from collector.config.globs import MAGIC, segments_of, translate
from collector.config.input_section import InputSection

HOME_PREFIX = "watched/"

NextSegments = frozenset[int]
"""The indices of the segments of a glob that the next name of a walk can match."""


@dataclass(frozen=True)
class Pattern:
    """One glob of one input. All files that it can match are at or below `root`.

    `segments` are the parts of the glob below the root. `depth` is the number of names that a match
    has below the root, or None for any number. A glob without wildcards has no segments, and its
    root is the glob itself.
    """

    input_index: int
    root: str
    segments: tuple[str, ...]
    exclude: tuple[str, ...]
    depth: int | None = field(init=False)
    _matcher: re.Pattern[str] = field(init=False, repr=False)
    _names: tuple[re.Pattern[str] | None, ...] = field(init=False, repr=False)
    """The regular expression for each segment; None for `**`."""
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
        """Tell whether the name of a file, or of a folder on the way to it, is excluded."""
        return self._excluder is not None and self._excluder.match(name) is not None

    def matches(self, below: str) -> bool:
        """Tell whether a path relative to the root matches the pattern."""
        return self._matcher.match(below) is not None

    def wildcards(self, path: str) -> tuple[str, ...] | None:
        """Return the texts that the wildcards match in a path; None if a walk does not find the
        path.
        """
        if not self.segments:
            return () if path == self.root else None
        below = path.removeprefix(f"{self.root.rstrip('/')}/")
        found = None if below == path else self._matcher.match(below)
        if found is None or any(self.excludes(name) for name in below.split("/")):
            return None
        # The text that `**` stands for ends with a slash.
        return tuple(word.removesuffix("/") for word in found.groups())

    @property
    def outset(self) -> NextSegments:
        """The indices of the segments that the first name below the root can match."""
        return self._with_skipped({0})

    def below(self, segments: NextSegments, name: str) -> NextSegments:
        """Return the indices of the segments that names inside this folder can match.

        The result is empty if nothing inside the folder can match. If two folders with the same
        content have the same result, the same names in them match.
        """
        reached = set()
        for index in segments:
            names = self._names[index]
            if names is None:
                reached.add(index)
            elif index + 1 < len(self._names) and names.match(name):
                reached.add(index + 1)
        return self._with_skipped(reached)

    def goes_deeper(self, segments: NextSegments) -> bool:
        """Tell whether subfolders of a folder with these segments can contain matches."""
        last = len(self._names) - 1
        return any(index < last or self._names[index] is None for index in segments)

    def _with_skipped(self, reached: set[int]) -> NextSegments:
        """Add the segment after each `**`, because `**` can stand for no folder.

        A `**` at the end of a glob cannot stand for no folder.
        """
        for index in sorted(reached):
            following = index
            while following + 1 < len(self._names) and self._names[following] is None:
                following += 1
                reached.add(following)
        return frozenset(reached)


def plan(inputs: Sequence[InputSection], home: str) -> tuple[Pattern, ...]:
    """Return the patterns of all inputs. Relative globs start at `home`."""
    return tuple(
        _pattern(index, "/" if glob.startswith("/") else home, glob, entry.exclude)
        for index, entry in enumerate(inputs)
        for glob in entry.paths
    )


def is_matched(patterns: Sequence[Pattern], path: str) -> bool:
    """Tell whether a walk with these patterns would find a file with this path."""
    return any(pattern.wildcards(path) is not None for pattern in patterns)


def record_key(path: str, home: str) -> str:
    """Return the path for a record key: relative to `home`, without a leading `watched/`."""
    if not path.startswith(f"{home}/"):
        return path
    return path[len(home) + 1 :].removeprefix(HOME_PREFIX)


def _pattern(index: int, folder: str, glob: str, exclude: tuple[str, ...]) -> Pattern:
    parts = segments_of(glob)
    fixed = next((i for i, part in enumerate(parts) if MAGIC & set(part)), len(parts))
    # Wildcard characters in the name of the folder itself have no special meaning.
    root = "/" + "/".join(segments_of(folder) + parts[:fixed])
    return Pattern(index, root, tuple(parts[fixed:]), exclude)
