"""Several paths into a JSON line are passed in one function call."""

from stream.parse.json_paths import json_texts


def test_paths_are_told_as_json() -> None:
    assert json_texts("line", [("a",), ("l", 0, "b")]) == (
        """millrace_json(line, '[["a"], ["l", 0, "b"]]')"""
    )


def test_a_key_may_hold_quotes_and_backslashes() -> None:
    r"""The function takes the path from an SQL literal, so a backslash is escaped twice."""
    assert json_texts("line", [('a"b',), ("it's\\",)]) == (
        r"""millrace_json(line, '[["a\\"b"], ["it\'s\\\\"]]')"""
    )
