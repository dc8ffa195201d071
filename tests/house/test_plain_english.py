"""Phrases that `docs/style.md` bans, and class names with two meanings. Their number may only fall.

Each limit below is the count when it was set. Lower a limit after you have rewritten sentences, and
never raise it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict

from tests.house import tree

IDIOM = re.compile(
    r"\b(?:whoever|whomever|whom|anew|lest|nobody|somebody|ones? that|what there is|hears? of"
    r"|is told|vouch(?:es)?|by itself|in the hands? of|(?:is|are) to be [a-z]+(?:ed|en))\b"
    r"|\bmeanwhile[.;]|(?:^|[.:;]\s+)who\b",
    re.IGNORECASE,
)
TEXTS = (".html", ".java", ".js", ".md", ".py", ".sh", ".yaml")
# These two files name the phrases in order to ban them.
EXEMPT = ("docs/style.md", "tests/house/test_plain_english.py")

IDIOMS_MAX = {
    "appliance": 1,
    "broker": 1,
    "docs": 20,
    "monitor": 1,
    "tests": 27,
}
"""The largest number of banned phrases by top-level folder. A folder that is not listed may have
none."""

DOUBLE_NAMES_MAX = 10
"""The most class names that stand for two or more classes in the rooms of the product."""


def idioms_in(text: str) -> list[str]:
    """Return every banned phrase of a text, in order."""
    return [match.group(0) for match in IDIOM.finditer(text)]


def test_the_phrases_are_found_and_plain_sentences_pass() -> None:
    riddle = "Whoever waits is told.\nWho left: nobody. It is to be written anew meanwhile."
    assert len(idioms_in(riddle)) == 7
    assert idioms_in("The broker tells each waiting request which offset it reached.") == []


def test_banned_phrases_only_become_fewer() -> None:
    found: Counter[str] = Counter()
    for name in tree.files():
        if name.endswith(TEXTS) and name not in EXEMPT:
            found[name.split("/")[0]] += len(idioms_in((tree.ROOT / name).read_text()))
    above = {
        room: f"{count} phrases, at most {IDIOMS_MAX.get(room, 0)}"
        for room, count in found.items()
        if count > IDIOMS_MAX.get(room, 0)
    }
    assert above == {}, "rewrite the sentences you added; docs/style.md says how"


def test_a_class_name_has_one_meaning() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in tree.modules():
        if module.room not in ("bench", "tests"):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(module.path)
    doubles = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert len(doubles) <= DOUBLE_NAMES_MAX, doubles
