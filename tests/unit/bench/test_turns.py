"""When several subjects are measured in turn, each run must be assigned to its own subject."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import session
from bench.beside import Row
from bench.measurement import Figures, Measurement
from bench.session import Bench, Options
from bench.turns import SYNCED, Beside, Measure, by_flush


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(session, "NOISY_CORES", float("inf"))
    with Bench(Options(runs=2, folder=tmp_path)) as bench:
        yield bench


ROW = Row("work", {"p50_ms": "p50 ms"})


class Order:
    """Records the order in which the subjects were measured."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def of(self, name: str, value: float) -> Measure:
        def measure() -> Figures:
            self.names.append(name)
            return {"p50_ms": value}

        return measure


def medians(found: Measurement) -> tuple[float, float | None]:
    peer = found.peer_figures
    return found.figures["p50_ms"].median, peer["p50_ms"].median if peer else None


def test_both_kinds_stand_beside_one_peer(bench: Bench) -> None:
    order = Order()
    ours = {"interval": order.of("interval", 1), "ack": order.of("ack", 2)}
    interval, ack = by_flush("part", bench, ROW, ours, Beside("kafka", order.of("kafka", 8)))
    assert order.names == ["interval", "kafka", "ack"] * 2
    assert (medians(interval), medians(ack)) == ((1, 8), (2, 8))
    assert (interval.case, ack.case) == ("work, flush=interval", "work, flush=ack")


def test_a_peer_that_syncs_stands_beside_ack_only(bench: Bench) -> None:
    order = Order()
    ours = {"interval": order.of("interval", 1), "ack": order.of("ack", 2)}
    beside = Beside("kafka", order.of("kafka", 8), order.of("synced", 9))
    interval, ack = by_flush("part", bench, ROW, ours, beside)
    assert order.names == ["interval", "kafka", "ack", "synced"] * 2
    assert (medians(interval), medians(ack)) == ((1, 8), (2, 9))
    assert interval.peer is not None and interval.peer.name == "kafka"
    assert ack.peer is not None and ack.peer.name == f"kafka, {SYNCED}"


def test_without_a_peer_ours_are_measured_alone(bench: Bench) -> None:
    order = Order()
    ours = {"interval": order.of("interval", 1), "ack": order.of("ack", 2)}
    interval, ack = by_flush("part", bench, ROW, ours, None)
    assert order.names == ["interval", "ack"] * 2
    assert (medians(interval), medians(ack)) == ((1, None), (2, None))
