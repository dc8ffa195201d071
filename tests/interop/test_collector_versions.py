"""Collectors and brokers of two versions work together: 1.0.0-rc1 and this one.

Each collector continues where the other version has stopped, and every line arrives once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import ROOT
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, TopicReader, inputs
from tests.harness.released import released_code, run_present, run_released
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

TOPIC = "t.versions"
PER_STEP = 200
ARRIVED_S = 60.0


class Lines:
    """The lines of one collector's file, and what has arrived of them."""

    def __init__(self, collector: CollectorProcess, bootstrap: str) -> None:
        self._log = collector.home / "watched" / "text" / "a.log"
        self._reader = TopicReader(bootstrap, TOPIC)
        self._count = 0

    def write(self) -> None:
        numbers = range(self._count, self._count + PER_STEP)
        with self._log.open("ab") as out:
            out.writelines(b"%d\n" % number for number in numbers)
        self._count += PER_STEP

    def rotate(self) -> None:
        self._log.rename(self._log.with_suffix(f".log.{self._count}"))

    def arrived_once(self) -> None:
        """Wait for all lines. Fail if one arrives twice or out of order."""
        expected = [b"%d" % number for number in range(self._count)]
        assert self._reader.values(self._count, ARRIVED_S) == expected

    def close(self) -> None:
        self._reader.close()


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released_code(tmp_path_factory.mktemp("released"))


def new_collector(
    folder: Path, broker: BrokerProcess, **keys: object
) -> tuple[CollectorProcess, Lines]:
    """Return a collector of a running broker, and the lines of its file. `keys` are added to its
    settings."""
    section = inputs(TOPIC) | {"instance": "host-1"} | keys
    collector = CollectorProcess(folder, broker.mill_bootstrap, section)
    return collector, Lines(collector, broker.bootstrap)


def take_turns(folder: Path, broker: BrokerProcess, codes: list[Path]) -> None:
    """Run a collector with one version after the other. Each gets lines while it runs, and
    finds lines of the time when none ran, in a file that was rotated."""
    collector, lines = new_collector(folder, broker)
    for code in codes:
        collector.code = code
        with collector:
            lines.write()
            lines.arrived_once()
            wait_until(lambda: collector.details()["lag_bytes_total"] == 0, ARRIVED_S, "no lag")
            assert not collector.status().problems
        lines.write()
        lines.rotate()
        lines.write()
    collector.code = ROOT
    with collector:
        lines.arrived_once()
        assert collector.details()["counters"].get("lost_possible", 0) == 0
    lines.close()


def test_collectors_of_both_versions_take_turns_at_a_broker_of_this_version(
    tmp_path: Path, released: Path
) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        take_turns(tmp_path, broker, [released, ROOT, released, ROOT])


def test_collectors_of_both_versions_take_turns_at_a_broker_of_1_0_0_rc1(
    tmp_path: Path, released: Path
) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    run_released(broker, released)
    with broker:
        take_turns(tmp_path, broker, [ROOT, released, ROOT])


def test_a_collector_of_a_group_works_while_its_broker_is_upgraded(
    tmp_path: Path, released: Path
) -> None:
    """Collectors of a group report and gather, which 1.0.0-rc1 does not know."""
    broker = BrokerProcess(tmp_path / "broker")
    run_released(broker, released)
    with broker:
        collector, lines = new_collector(tmp_path, broker, group="web", commit_interval="200ms")
        with collector:
            lines.write()
            lines.arrived_once()
            assert broker.stop() == 0, broker.log_text()
            lines.write()
            run_present(broker)
            broker.start()
            lines.arrived_once()
            lines.write()
            lines.arrived_once()
            wait_until(lambda: not collector.status().problems, ARRIVED_S, "no problem is left")
        lines.close()
