"""The table that compares our broker with its peer, and rounds that other load disturbed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import session
from bench.beside import Row, markdown
from bench.measurement import Goal, Measurement, Peer, Run
from bench.session import Bench, Options

WORK = Row(
    "work",
    {"cpu_s_per_gb": "CPU-s per GB", "mb_per_s": "MB/s"},
    (Goal("cpu_s_per_gb", at_most=1 / 3, of="ratio"), Goal("mb_per_s", at_least=1.2, of="ratio")),
)
ONCE = Row("memory", {"pss_mib": "MiB"}, is_flushed=False)


def measurement(
    row: Row, flush: str, ours: dict[str, float], peer: dict[str, float]
) -> Measurement:
    beside = Peer("kafka", [Run(peer, 0.0)])
    return Measurement("broker", row.case(flush), [Run(ours, 0.0)], beside, row.goals_for(flush))


def test_a_row_shows_both_kinds_of_flushing_and_the_missed_goals() -> None:
    peer = {"cpu_s_per_gb": 2.0, "mb_per_s": 300.0}
    found = [
        measurement(WORK, "interval", {"cpu_s_per_gb": 0.5, "mb_per_s": 330.0}, peer),
        measurement(WORK, "ack", {"cpu_s_per_gb": 1.0, "mb_per_s": 150.0}, peer),
        measurement(ONCE, "interval", {"pss_mib": 20.0}, {"pss_mib": 400.0}),
    ]
    lines = markdown([WORK, ONCE], found, "one node")
    assert lines[2:] == [
        "| work: CPU-s per GB, MB/s | 2.0; 300.0 | 0.5 (0.25×); 330.0 (1.10×) "
        "| 1.0 (0.50×); 150.0 (0.50×) | CPU-s per GB ≤ 0.333×; **missed:** MB/s ≥ 1.2× |",
        "| memory: MiB | 400.0 | 20.0 (0.05×) |  |  |",
    ]


def test_a_ratio_is_that_of_the_rounds_with_its_range() -> None:
    pairs = [({"mb_per_s": 100.0}, {"mb_per_s": 50.0}), ({"mb_per_s": 40.0}, {"mb_per_s": 80.0})]
    ours, theirs = zip(*pairs, strict=True)
    found = Measurement(
        "broker",
        WORK.case("interval"),
        [Run(one, 0.0) for one in ours],
        Peer("kafka", [Run(one, 0.0) for one in theirs]),
        WORK.goals_for("interval"),
    )
    assert "70.0 (1.25×, 0.50–2.00)" in markdown([WORK], [found], "one node")[2]


def test_a_peer_that_syncs_stands_beside_our_own_syncing() -> None:
    row = Row("work", {"p50_ms": "p50 ms"}, is_peer_synced=True)
    figures = {"interval": (1.0, Peer("kafka", [Run({"p50_ms": 4.0}, 0.0)]))}
    figures["ack"] = (3.0, Peer("kafka, synced", [Run({"p50_ms": 6.0}, 0.0)]))
    found = [
        Measurement("cluster", row.case(flush), [Run({"p50_ms": ours}, 0.0)], peer)
        for flush, (ours, peer) in figures.items()
    ]
    assert markdown([row], found, "three nodes") == [
        "| work, three nodes | kafka | ours, `flush=interval` | ours, `flush=ack` | goal |",
        "|---|---|---|---|---|",
        "| work: p50 ms | 4.0; with fsync 6.0 | 1.0 (0.25×) | 3.0 (0.50×) |  |",
    ]


def test_without_a_peer_there_is_no_table() -> None:
    alone = Measurement("broker", "memory", [Run({"pss_mib": 20.0}, 0.0)])
    assert markdown([ONCE], [alone], "one node") == []


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(Options(runs=2, folder=tmp_path)) as bench:
        yield bench


def loads(monkeypatch: pytest.MonkeyPatch, *values: float) -> None:
    """Set the other load that each of the next runs will measure."""
    left = list(values)

    class FakeWatch:
        def __init__(self, _: object) -> None:
            self.other_load = left.pop(0)

        def __enter__(self) -> "FakeWatch":
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(session, "Watch", FakeWatch)


def test_disturbed_rounds_are_measured_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    loads(monkeypatch, 0.1, 0.1, 0.1, 0.9, 0.2, 0.1)
    numbers = iter(range(100))
    rounds = bench.in_rounds("case", [lambda: {"n": float(next(numbers))}] * 2)
    assert [[run.figures["n"] for run in runs] for runs in rounds.runs] == [[0, 4], [1, 5]]
    assert rounds.discarded == 1


def test_where_nothing_was_quiet_everything_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads(monkeypatch, *[0.9] * 4)
    rounds = bench.in_rounds("case", [lambda: {"n": 1.0}])
    assert (len(rounds.runs[0]), rounds.discarded) == (4, 0)
