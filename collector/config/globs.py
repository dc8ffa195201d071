"""Translates globs into regular expressions, and numbers their wildcards.

This module is pure. `*`, `?` and `[…]` match within one name. `**` matches any number of folders.
At the end of a glob it matches every file below. Every `*`, every `**` and every sequence of `?` is
a wildcard. Wildcards are numbered from 1, and each is a group of the regular expression. `[…]` is
not a wildcard.
"""

import fnmatch
import re
from collections.abc import Sequence

MAGIC = frozenset("*?[")
_TOKENS = re.compile(r"(\*+)|(\?+)|(\[!?\]?[^\]]*\])|(.)", re.DOTALL)


def segments_of(glob: str) -> list[str]:
    """Return the names in a glob, in order from the root."""
    return [part for part in glob.split("/") if part not in ("", ".")]


def wildcard_count(glob: str) -> int:
    """Return how many wildcards a glob has."""
    return re.compile(translate(segments_of(glob))).groups


def translate(segments: Sequence[str]) -> str:
    """Return a regular expression for a path that consists of these segments of a glob."""
    out = []
    for index, segment in enumerate(segments):
        is_last = index == len(segments) - 1
        if segment == "**":
            out.append("([^/]+(?:/[^/]+)*)" if is_last else "((?:[^/]+/)*)")
        else:
            out.append(_translate_name(segment) + ("" if is_last else "/"))
    return "".join(out) + r"\Z"


def _translate_name(segment: str) -> str:
    """Return the expression for one segment. Its wildcards do not match a slash."""
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
