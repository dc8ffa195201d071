"""The reports of collectors: what is written is read, and nothing else does harm."""

import json
from dataclasses import replace

import pytest

from protocol.collector_report import (
    PROBLEMS_MAX,
    REPORT_BYTES_MAX,
    TEXT_CHARS_MAX,
    CollectorReport,
    UnreadableReport,
    decode,
    encode,
)
from protocol.status import Problem

REPORT = CollectorReport(
    instance="web-1",
    group="web",
    host="web-1.example.org",
    version="1.0.0",
    state="degraded",
    at_ms=2_000,
    started_at_ms=1_000,
    problems=(Problem("broker", "no acknowledgement"),),
    problems_total=1,
    files=3,
    lag_bytes=4,
    held_deleted_bytes=5,
    lines_total=6,
    last_commit_ms=1_500,
    commit_interval_ms=25,
    skew_ms=-7,
)


def test_a_report_is_read_as_it_was_written() -> None:
    assert decode(encode(REPORT)) == REPORT
    without = replace(REPORT, last_commit_ms=None, skew_ms=None, problems=(), problems_total=0)
    assert decode(encode(without)) == without


def test_keys_of_a_later_version_are_kept() -> None:
    later = json.loads(encode(REPORT)) | {"v": 2, "disk": {"free": 1}}
    found = decode(json.dumps(later).encode())
    assert found == replace(REPORT, more={"disk": {"free": 1}})
    assert json.loads(encode(found))["disk"] == {"free": 1}


def test_a_key_that_is_missing_has_its_default() -> None:
    found = decode(b'{"v":1,"instance":"a"}')
    assert (found.instance, found.state, found.files, found.skew_ms) == ("a", "", 0, None)


def test_the_longest_report_is_small() -> None:
    """1,000 collectors send one each ten seconds."""
    problem = Problem("a-long-code", "\N{LATIN SMALL LETTER A WITH DIAERESIS}" * 10_000)
    report = replace(REPORT, problems=(problem,) * 100, problems_total=100)
    found = decode(encode(report))
    assert len(encode(report)) < 4096
    assert len(found.problems) == PROBLEMS_MAX
    assert found.problems_total == 100
    assert len(found.problems[0].text) == TEXT_CHARS_MAX


def test_a_path_that_is_not_text_can_be_reported() -> None:
    assert encode(replace(REPORT, problems=(Problem("files", "a\udcff"),)))


def test_a_text_from_a_report_can_be_encoded() -> None:
    """Half of a surrogate pair would break the page, the API and the metrics of all collectors."""
    half = "web\\ud800"
    value = f'{{"v":1,"instance":"a","group":"{half}","problems":[{{"code":"c","text":"{half}"}}]}}'
    found = decode(value.encode())
    assert (found.group, found.problems[0].text) == ("web?", "web?")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"{}",
        b'{"v":"1","instance":"a"}',
        b'{"v":1}',
        b'{"v":1,"instance":7}',
        b"[" * 100_000,
        b'{"v":1,"instance":"a","pad":"' + b"x" * REPORT_BYTES_MAX + b'"}',
    ],
)
def test_what_is_no_report(value: bytes) -> None:
    with pytest.raises(UnreadableReport):
        decode(value)


def test_values_of_a_wrong_type_have_their_defaults() -> None:
    wrong = {
        "v": 1, "instance": "a", "host": 7, "files": "many", "lag_bytes": 1 << 70, "at_ms": True,
        "skew_ms": 1.5, "problems": [1, {"code": 2}, {"code": "x" * 1_000, "text": "y"}],
    }  # fmt: skip
    found = decode(json.dumps(wrong).encode())
    assert (found.host, found.files, found.lag_bytes, found.at_ms) == ("", 0, 0, 0)
    assert found.skew_ms is None
    assert found.problems == (Problem("", ""), Problem("x" * TEXT_CHARS_MAX, "y"))
