"""`lag`: its output from the monitor's rows, and its exit codes."""

import json
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.appliance.scripted_monitor import answering
from tests.unit.appliance.test_commands import run


def row(group: str, lag: int | None, known: int = 2) -> dict[str, Any]:
    return {
        "group": group,
        "state": "Stable",
        "lag": lag,
        "known": known if lag is not None else 0,
        "partitions": 2,
        "time_lag_ms": 61_000,
    }


def monitor(
    home: Path,
    rows: list[dict[str, Any]],
    groups: list[str],
    errors: list[str] | None = None,
    kafka_ago_ms: int | None = 0,
    looked_ago_ms: int = 0,
) -> AbstractContextManager[None]:
    """Run a monitor that answers with these lag rows and these groups.

    The monitor's last cycle ended `looked_ago_ms` ago. The brokers answered `kafka_ago_ms` before
    that. If `kafka_ago_ms` is None, they never answered.
    """
    ts_ms = round(time.time() * 1000) - looked_ago_ms
    faults = [{"source": "broker 1", "text": text} for text in errors or []]
    totals = {name: row(name, 0) for name in groups} | {one["group"]: one for one in rows}
    return answering(
        home,
        lambda path: {
            "data": list(totals.values()) if "per=group" in path else rows,
            "errors": faults,
            "ts_ms": ts_ms,
            "kafka_at_ms": None if kafka_ago_ms is None else ts_ms - kafka_ago_ms,
        },
    )


def test_an_unknown_group_is_reported_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitor(tmp_path, [row("a", 1)], ["a", "mine"]):
        code, out, err = run(monkeypatch, tmp_path, "lag", "min")
    assert (code, out) == (4, [])
    assert (
        "group 'min' has committed no offset; groups with committed offsets: a, mine;"
        " did you mean mine?" in err[0]
    )


def test_lags_that_are_all_unknown_are_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitor(tmp_path, [row("a", None)], ["a"], ["gives no answer"]):
        code, out, err = run(monkeypatch, tmp_path, "lag")
    assert code == 3
    assert "unknown" in out[1]
    assert err == ["millrace: no lag is known: broker 1: gives no answer"]


@pytest.mark.parametrize("kafka_ago_ms", [None, 600])
@pytest.mark.parametrize("options", [[], ["mine"], ["--fail-on", "5"], ["--json"]])
def test_of_brokers_that_do_not_answer_no_lag_is_known_and_no_group_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka_ago_ms: int | None, options: list[str]
) -> None:
    with monitor(tmp_path, [], [], ["no answer"], kafka_ago_ms):
        code, _, err = run(monkeypatch, tmp_path, "lag", *options)
    assert code == 3
    assert err == ["millrace: no lag is known: broker 1: no answer"]


def test_lags_are_printed_and_filtered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monitor(tmp_path, [row("a", 1), row("b", 20)], ["a", "b"]):
        code, out, _ = run(monkeypatch, tmp_path, "lag", "b")
        assert code == 0
        assert out[0].split() == ["GROUP", "STATE", "LAG", "KNOWN", "PARTITIONS", "TIME_LAG"]
        assert out[1].split() == ["b", "Stable", "20", "2", "2", "1m", "1s"]
        assert len(out) == 2
        code, out, _ = run(monkeypatch, tmp_path, "lag", "--json")
        assert [one["lag"] for one in json.loads(out[0])["data"]] == [1, 20]


@pytest.mark.parametrize(
    ("rows", "options", "code", "word"),
    [
        ([row("a", 20)], ["--fail-on", "20"], 0, ""),
        ([row("a", 21)], ["--fail-on", "20"], 3, "a: lag 21, expected ≤ 20"),
        ([row("a", 21)], ["--fail-above", "20", "--watch"], 3, "a: lag 21, expected ≤ 20"),
        ([row("a", 1, known=1)], ["--fail-on", "20"], 3, "a: lag unknown"),
        (
            [{**row("a", 21), "topic": "t"}],
            ["--per", "topic", "--fail-on", "20"],
            3,
            "a, t: lag 21, expected ≤ 20",
        ),
        (
            [{"group": "a", "topic": "t", "partition": 3, "lag": 21}],
            ["--per", "partition", "--fail-on", "20"],
            3,
            "a, t-3: lag 21, expected ≤ 20",
        ),
        ([], ["--fail-on", "0"], 0, "no group has committed anything yet"),
        ([row("a", 1)], ["--per", "broker"], 2, "expected partition, topic or group"),
        ([row("a", 1)], ["--every", "soon"], 2, "duration"),
        (
            [{**row("a", 1), "topic": "t"}],
            ["--topic", "u"],
            4,
            "no committed offset of any group for topic 'u'",
        ),
    ],
)
def test_how_it_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[dict[str, Any]],
    options: list[str],
    code: int,
    word: str,
) -> None:
    with monitor(tmp_path, rows, ["a"] if rows else []):
        found, _, err = run(monkeypatch, tmp_path, "lag", *options)
    assert found == code, err
    assert word in "\n".join(err)


def test_a_topic_that_only_other_groups_read_is_not_called_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row("a", 1) | {"topic": "t"}, row("b", 1) | {"topic": "u"}]
    with monitor(tmp_path, rows, ["a", "b"]):
        code, _, err = run(monkeypatch, tmp_path, "lag", "a", "--topic", "u")
    assert (code, err) == (4, ["millrace: there is no committed offset of a for topic 'u'"])


def test_moments_in_milliseconds_are_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitor(tmp_path, [row("a", 1) | {"looked_at_ms": 1_795_765_773_339}], ["a"]):
        _, out, _ = run(monkeypatch, tmp_path, "lag")
        assert out[0].split() == ["GROUP", "STATE", "LAG", "KNOWN", "PARTITIONS", "TIME_LAG"]
        _, out, _ = run(monkeypatch, tmp_path, "lag", "--json")
    assert json.loads(out[0])["data"][0]["looked_at_ms"] == 1_795_765_773_339


def test_a_group_of_which_not_even_the_partitions_are_known_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a group has no row per partition. Without a check it would look like a group without
    lag."""
    unread = row("b", None) | {"partitions": 1}
    waits = row("c", None) | {"partitions": None}
    by_partition = [{"group": "a", "topic": "t", "partition": 0, "lag": 1}]
    whole = row("a", 1) | {"partitions": 1, "known": 1}
    empty = row("d", None) | {"partitions": 0}

    def answer(path: str) -> dict[str, Any]:
        now_ms = round(time.time() * 1000)
        rows = [whole, unread, waits, empty] if "per=group" in path else by_partition
        return {"data": rows, "errors": [], "ts_ms": now_ms, "kafka_at_ms": now_ms}

    with answering(tmp_path, answer):
        for options, code, said in (
            (["--fail-on", "9"], 3, "b: lag unknown"),
            (["c"], 3, "c: lag unknown"),
            (["a", "--fail-on", "9"], 0, None),
            (["a", "d", "--topic", "t", "--fail-on", "9"], 0, None),
            (["e"], 4, "group 'e' has committed no offset"),
        ):
            found, _, err = run(monkeypatch, tmp_path, "lag", "--per", "partition", *options)
            assert found == code, (options, err)
            assert said is None or said in err[-1]


def test_a_monitor_that_looks_no_more_knows_no_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitor(tmp_path, [row("a", 1)], ["a"], looked_ago_ms=125_000):
        code, out, err = run(monkeypatch, tmp_path, "lag", "--fail-on", "5")
    assert (code, out) == (3, [])
    assert err == ["millrace: no lag is known: the monitor last asked the brokers 2m 5s ago"]


def test_numbers_are_aligned_also_below_an_unknown_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitor(tmp_path, [row("a", None), row("b", 5)], ["a", "b"]):
        code, out, _ = run(monkeypatch, tmp_path, "lag")
    assert code in (0, 3)
    head, _, second = out[:3]
    end = head.index("LAG") + len("LAG")
    assert second[:end].endswith("  5")
