"""The command line of the bench, and a part that it runs as `make bench` does."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import cluster
from bench.move_figures import GOALS
from bench.parts import PARTS
from bench.servers import FLUSH
from bench.session import ROOT
from tests.harness.wait import wait_until


def test_all_parts_but_the_longest_are_the_default() -> None:
    names, options = command.parse_arguments([])
    longest = ("catch-up", "cluster", "fleet", "formats", "growth", "moves", "storm")
    assert names == [name for name in PARTS if name not in longest]
    assert command.parse_arguments(["growth"])[0] == ["growth"]
    assert command.parse_arguments(["cluster", "--rounds", "2"])[1].runs == 2
    assert (options.quick, options.runs, options.size_bytes) == (False, 3, 10**9)


def test_quick_is_small() -> None:
    names, options = command.parse_arguments(["broker", "--quick"])
    assert names == ["broker"]
    assert (options.quick, options.runs, options.size_bytes) == (True, 1, 5 * 10**7)


@pytest.mark.parametrize(
    "arguments", [["brokers"], ["--size", "much"], ["--runs", "0"], ["--runs", "few"], ["--fast"]]
)
def test_wrong_arguments_end_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.parse_arguments(arguments)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.live
def test_a_part_prints_lines_then_a_table_and_leaves_nothing(tmp_path: Path) -> None:
    done = run("encode", "--quick", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert {line["schema"] for line in lines} == {"bench/1"}
    assert {line["part"] for line in lines} == {"encode"}
    assert all(line["ratio"]["lines_per_cpu_s"]["median"] > 0 for line in lines)
    assert "lines_per_cpu_s" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.live
def test_three_brokers_are_measured_and_their_leaders_ended(tmp_path: Path) -> None:
    done = run("cluster", "--quick", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert {line["case"] for line in lines} == {
        row.case(flush) for row in cluster.ROWS for flush in FLUSH
    }
    ends = [line for line in lines if "p99_s" in line["figures"]]
    assert [len(line["values"]["gap_s"]) for line in ends] == [1, 1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.live
def test_a_topic_that_gets_replicas_is_measured(tmp_path: Path) -> None:
    done = run("moves", "--quick", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (line,) = map(json.loads, done.stdout.splitlines())
    figures = {name: one["median"] for name, one in line["figures"].items()}
    assert {goal["figure"] for goal in line["goals"]} == {goal.figure for goal in GOALS}
    assert 2 * 0.05 <= figures["copied_gb"] < 2 * 0.055, "each added replica counts"
    assert figures["throttled_mb_per_s"] < 6, "three brokers, each with at most 1 MB/s"
    assert figures["beside_write_max_ms"] / 1e3 < figures["copy_s"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.live
def test_a_terminated_bench_ends_its_broker_and_removes_its_folder(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", "broker", "--quick", "--folder", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ,
    )
    try:
        wait_until(lambda: list(tmp_path.glob("bench-*/*broker/broker-1")), 60, "a broker's data")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == command.EXIT_TERMINATED
    finally:
        process.kill()
        process.wait()
    assert list(tmp_path.iterdir()) == []
