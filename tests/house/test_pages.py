"""Decisions and changelog fragments have the form that readers and the release steps expect."""

import re

from tests.house import tree

DECISIONS = sorted((tree.ROOT / "docs" / "decisions").glob("[0-9]*.md"))
HEAD = re.compile(
    r"# (\d{4}):? \S.*\n\nDate: \d{4}-\d\d-\d\d\. Status: (?:accepted|superseded by (\d{4}))\.\n"
)


def test_a_decision_has_its_number_a_date_and_a_status() -> None:
    heads = {path.name: HEAD.match(path.read_text()) for path in DECISIONS}
    assert [name for name, head in heads.items() if head is None or head[1] != name[:4]] == []


def test_a_superseded_decision_names_one_that_exists() -> None:
    numbers = {path.name[:4] for path in DECISIONS}
    heads = [HEAD.match(path.read_text()) for path in DECISIONS]
    successors = {head[2] for head in heads if head is not None and head[2]}
    assert "0010" in successors
    assert successors <= numbers


def test_a_changelog_fragment_has_a_number_and_a_heading() -> None:
    fragments = sorted((tree.ROOT / "changelog.d").glob("[0-9]*.md"))
    assert [
        path.name
        for path in fragments
        if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name)
        or not path.read_text().startswith("# ")
    ] == []
