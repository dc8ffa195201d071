"""Orders to a running collector: to change inputs, to forget or give up a file, to end."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.units import parse_moment_ms
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, TopicReader
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

PRINTS = "import pathlib,sys; sys.stdout.write(pathlib.Path(sys.argv[1]).read_text())"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as running:
        yield running


def section(*inputs: tuple[str, str]) -> dict[str, Any]:
    return {"inputs": [{"paths": [path], "topic": topic} for path, topic in inputs]}


class Followed(CollectorProcess):
    """A collector that reloads its configuration from a file, as from the appliance."""

    def __init__(self, folder: Path, bootstrap: str, first: dict[str, Any]):
        super().__init__(folder, bootstrap, first)
        self.file = folder / "wish.json"
        self.save(first)

    def save(self, section: dict[str, Any] | str) -> None:
        text = section if isinstance(section, str) else json.dumps({"section": section})
        draft = self.file.with_suffix(".new")
        draft.write_text(text)
        draft.replace(self.file)

    def settings_object(self) -> dict[str, Any]:
        reload = {
            "file": str(self.file),
            "command": [sys.executable, "-c", PRINTS, str(self.file)],
            "sha256": hashlib.sha256(self.file.read_bytes()).hexdigest(),
        }
        return {**super().settings_object(), "reload": reload}


class Writer(threading.Thread):
    """Appends numbered lines to files until it is stopped."""

    def __init__(self, paths: list[Path]):
        super().__init__()
        self.paths = paths
        self.written: list[bytes] = []
        self._ends = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._ends.wait(0.002):
            path = self.paths[number % len(self.paths)]
            line = b"%s %d" % (path.name.encode(), number)
            with path.open("ab") as out:
                out.write(line + b"\n")
            self.written.append(line)
            number += 1

    def stop(self) -> None:
        self._ends.set()
        self.join()


def test_inputs_change_under_a_writer_and_no_line_is_lost(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    both = section(("watched/access/**", "t.a"), ("watched/text/**", "t.b"))
    moved = section(("watched/access/**", "t.b"), ("watched/text/**", "t.a"))
    one = Followed(tmp_path, broker.mill_bootstrap, section(("watched/access/**", "t.a")))
    with one:
        pid = one.status().pid
        paths = [one.home / "watched" / name for name in ("access/a.log", "text/b.log")]
        writer = Writer(paths)
        writer.start()
        readers = [TopicReader(broker.bootstrap, topic) for topic in ("t.a", "t.b")]
        for wish in (both, moved, both, moved):
            one.save(wish)
            wanted = hashlib.sha256(one.file.read_bytes()).hexdigest()
            wait_until(lambda: one.details()["config_sha256"] == wanted, 30, "the inputs")  # noqa: B023
            count = len(writer.written) + 100
            wait_until(lambda: len(writer.written) >= count, 30, "lines for these inputs")  # noqa: B023
        writer.stop()

        def found() -> list[bytes]:
            return sorted(value for reader in readers for _, _, value in reader.poll())

        wait_until(lambda: len(found()) >= len(writer.written), 30, "all lines")
        assert found() == sorted(writer.written)
        assert one.status().pid == pid
        by_topic = [{value.split()[0] for _, _, value in reader.records} for reader in readers]
        assert by_topic == [{b"a.log", b"b.log"}] * 2
        for reader in readers:
            reader.close()


def test_a_fault_in_the_file_is_said_and_the_old_inputs_go_on(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    one = Followed(tmp_path, broker.mill_bootstrap, section(("watched/text/**", "t")))
    with one:
        one.save("{no json")
        wait_until(lambda: bool(one.status().problems), 30, "the problem")
        (problem,) = one.status().problems
        assert problem.code == "config"
        assert "the earlier inputs are still read" in problem.text
        (one.home / "watched/text/a.log").write_bytes(b"goes on\n")
        reader = TopicReader(broker.bootstrap, "t")
        assert reader.values(1) == [b"goes on"]
        reader.close()
        one.save(section(("watched/text/**", "t")))
        wait_until(lambda: not one.status().problems, 30, "no problem")


def test_a_file_is_forgotten_or_read_again_by_hand(broker: BrokerProcess, tmp_path: Path) -> None:
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section(("watched/**", "t")))
    for name in ("a", "b"):
        (collector.home / f"watched/text/{name}.log").write_bytes(b"%s\n" % name.encode())
    assert collector.run("--once")[0] == 0
    reader = TopicReader(broker.bootstrap, "t")
    assert sorted(reader.values(2)) == [b"a", b"b"]

    def order(*arguments: str) -> dict[str, Any]:
        code, said = collector.run(*arguments)
        assert code == 0, collector.log_text()
        found: dict[str, Any] = json.loads(said)
        return found

    shown = order("--again", "a.log")
    assert (shown["executed"], [one["lines"] for one in shown["files"]]) == (False, [1])
    assert collector.run("--once")[0] == 0
    assert order("--again", "a.log", "--execute")["executed"]
    assert collector.run("--once")[0] == 0
    assert sorted(reader.values(3)) == [b"a", b"a", b"b"]
    (collector.home / "watched/text/b.log").unlink()
    (refused,) = order("--again", "b.log", "--execute")["files"]
    assert "the file is gone" in refused["refusal"]
    (forgotten,) = order("--forget", "b.log", "--execute")["files"]
    assert forgotten["refusal"] is None
    assert order("--forget", "b.log")["files"] == []
    with collector:
        code, _ = collector.run("--again", "a.log", "--execute")
        assert code == 1
        assert "is in use" in collector.log_text()
        assert order("--again", "a.log")["executed"] is False
    assert sorted(reader.values(3)) == [b"a", b"a", b"b"]
    reader.close()


def test_brokers_that_are_away_are_told_with_the_moment_since_when(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    """The collector reports since when the brokers do not respond. Its retries must not change
    that time."""

    def told() -> str:
        return " ".join(one.text for one in collector.status().problems if one.code == "broker")

    def since_ms() -> int:
        found = re.search(r"since (\S+Z)", told())
        assert found is not None, told()
        return parse_moment_ms(found[1], 0)

    with CollectorProcess(tmp_path, broker.mill_bootstrap, section(("watched/**", "t"))) as (
        collector
    ):
        log = collector.home / "watched/text/a.log"
        assert told() == ""
        broker.kill9()
        before_ms = time.time_ns() // 1_000_000
        log.write_bytes(b"waits\n")
        wait_until(lambda: "no broker has acknowledged lines" in told(), 30, "the problem")
        after_ms = time.time_ns() // 1_000_000
        first_ms = since_ms()
        assert before_ms - 1_000 < first_ms < after_ms
        wait_until(lambda: "not ended the transaction yet" in told(), 30, "what was tried")
        assert since_ms() == first_ms
        broker.start()
        reader = TopicReader(broker.bootstrap, "t")
        assert reader.values(1) == [b"waits"]
        reader.close()
        wait_until(lambda: told() == "", 30, "no problem")
    broker.stop()
    late = CollectorProcess(tmp_path, broker.mill_bootstrap, section(("watched/**", "t")))
    late.spawn()
    collector = late
    try:
        wait_until(lambda: "answers since" in told(), 30, "the problem at the start")
        assert since_ms() >= after_ms - 1_000
    finally:
        late.kill9()


def once(tmp_path: Path, bootstrap: str) -> CollectorProcess:
    """Return a collector for `--once` whose input takes about ten seconds, because of a limit."""
    wanted = section(("watched/**", "t"))
    wanted["inputs"][0]["max_bytes_per_second"] = "1MiB"
    collector = CollectorProcess(tmp_path, bootstrap, wanted)
    (collector.home / "watched/text/a.log").write_bytes(b"line\n" * 2_000_000)
    return collector


class Impatient(CollectorProcess):
    """A collector that waits for brokers for only one second."""

    def settings_object(self) -> dict[str, Any]:
        return {**super().settings_object(), "patience_ms": 1_000}


def test_a_one_shot_run_without_brokers_gives_up(tmp_path: Path) -> None:
    collector = Impatient(tmp_path, f"127.0.0.1:{free_port()}", section(("watched/**", "t")))
    code, _ = collector.run("--once")
    assert code == 5
    assert "no answer from the brokers" in collector.log_text()


def test_one_whose_brokers_stall_gives_up_and_says_what_is_missing(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    wanted = section(("watched/**", "t"))
    wanted["inputs"][0]["max_bytes_per_second"] = "2MiB"
    collector = Impatient(tmp_path, broker.mill_bootstrap, wanted)
    path = collector.home / "watched/text/a.log"
    path.write_bytes(b"".join(b"%0100d\n" % number for number in range(300_000)))
    process = collector.launch("--once", stdout=subprocess.PIPE)
    reader = TopicReader(broker.bootstrap, "t")
    wait_until(lambda: len(reader.poll()) > 0, 30, "the first lines")
    reader.close()
    assert broker.process is not None
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        said, _ = process.communicate(timeout=60)
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)
    assert process.returncode == 5
    last = json.loads(said.splitlines()[-1])
    assert last["event"] == "done"
    assert any("no answer from the brokers" in text for text in last["incomplete"])


def test_one_that_is_interrupted_says_that_it_is_not_complete(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    collector = once(tmp_path, broker.mill_bootstrap)
    process = collector.launch("--once", stdout=subprocess.PIPE)
    reader = TopicReader(broker.bootstrap, "t")
    wait_until(lambda: len(reader.poll()) > 0, 30, "the first lines")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(said.splitlines()[-1])["incomplete"] == ["stopped before all files were read"]
    reader.close()
