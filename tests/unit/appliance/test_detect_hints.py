"""`status` names files that are not read or not parsed, with the command that adds an input."""

import pytest

from appliance.cli import detect_hints
from appliance.cli.detect_hints import not_parsed_hints, unmatched_hints, watched_path
from protocol.status import PartState, PartStatus, StatusUnavailable

UNMATCHED = {"unmatched": ["/mill/watched/odd/a.log"], "unmatched_total": 3}
UNPARSED = {
    "unparsed": [
        {"topic": "t", "file": "text/a.log", "reason": "format:combined", "count": 7},
        {"topic": "t", "file": "text/b.log", "reason": "format:combined", "count": 1_200},
        {"topic": "t", "file": "text/c.log", "reason": "expression_null:m", "count": 90_000},
    ]
}


def test_files_without_an_input() -> None:
    assert list(unmatched_hints(UNMATCHED)) == [
        "3 files in watched/ match no input, so nothing of it is read:"
        " `./millrace detect /mill/watched/odd/a.log` proposes an input"
    ]
    assert list(unmatched_hints({"unmatched": [], "unmatched_total": 0})) == []
    # A collector of an older version does not report unmatched files.
    assert list(unmatched_hints({})) == []


def test_lines_of_another_format() -> None:
    assert list(not_parsed_hints(UNPARSED)) == [
        "1,200 lines of watched/text/b.log are not combined, since the stream's start:"
        " `./millrace detect watched/text/b.log` names their format"
    ]
    assert list(not_parsed_hints({"unparsed": UNPARSED["unparsed"][2:]})) == []
    assert list(not_parsed_hints({})) == []
    assert watched_path("/srv/a.log") == "/srv/a.log"


def test_parts_are_asked_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(host: str, port: int, timeout_s: float) -> PartStatus:
        if port == 3:
            raise StatusUnavailable("refused")
        details = UNMATCHED if port == 1 else UNPARSED
        return PartStatus("x", PartState.RUNNING, True, 0, 0, details=details)

    monkeypatch.setattr(detect_hints, "fetch_status", answer)
    rows = [
        {"part": "collector", "state": "healthy", "address": "127.0.0.1:1"},
        {"part": "stream", "state": "degraded", "address": "127.0.0.1:2"},
        {"part": "stream", "state": "healthy", "address": "127.0.0.1:3"},
        {"part": "stream", "state": "failed", "address": "127.0.0.1:2"},
        {"part": "monitor", "state": "healthy", "address": "127.0.0.1:1"},
        {"part": "collector", "state": "healthy", "address": "-"},
    ]
    assert len(detect_hints.detect_hints(rows)) == 2
