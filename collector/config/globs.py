"""Globs as regular expressions, and which of their wildcards is which.

Floor: ground of the room. Pure. `*` and `?` and `[…]` match within one name, `**` stands for any
number of folders; a glob that ends in `**` takes every file below. Every `*`, `**` and run of `?`
is a wildcard and has a group of its own, counted from 1; `[…]` is none.
"""

import fnmatch
import re
from collections.abc import Sequence

MAGIC = frozenset("*?[")
_TOKENS = re.compile(r"(\*+)|(\?+)|(\[!?\]?[^\]]*\])|(.)", re.DOTALL)


def segments_of(glob: str) -> list[str]:
    """The names that a glob is made of, from the root on."""
    return [part for part in glob.split("/") if part not in ("", ".")]


def wildcard_count(glob: str) -> int:
    """How many wildcards a glob has."""
    return re.compile(translate(segments_of(glob))).groups


def translate(segments: Sequence[str]) -> str:
    """A regular expression for the whole path below where the segments begin."""
    out = []
    for index, segment in enumerate(segments):
        is_last = index == len(segments) - 1
        if segment == "**":
            out.append("([^/]+(?:/[^/]+)*)" if is_last else "((?:[^/]+/)*)")
        else:
            out.append(_translate_name(segment) + ("" if is_last else "/"))
    return "".join(out) + r"\Z"


def _translate_name(segment: str) -> str:
    """One name of the glob; its wildcards do not cross a slash."""
    out = []
    for stars, ones, choice, literal in _TOKENS.findall(segment):
        if stars:
            out.append("([^/]*)")
        elif ones:
            out.append(f"([^/]{{{len(ones)}}})")
        elif choice:
            inner = fnmatch.translate(choice).removeprefix("(?s:").removesuffix(r")\Z")
            out.append(f"(?!/){inner}")
        else:
            out.append(re.escape(literal))
    return "".join(out)
