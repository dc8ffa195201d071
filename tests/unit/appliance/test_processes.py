"""Processes are identified reliably, a used port is shown with its process, and logs stay within
their limits."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from appliance.machine.processes import (
    ProcessRecord,
    boot_id,
    holder_of,
    port_is_free,
    read_record,
    record_of,
)
from appliance.mill.home import Home
from appliance.supervisor import children
from appliance.supervisor.logs import end_of, last_words, numbered, open_log, rotate, tail
from tests.harness.ports import free_port


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_a_record_names_a_living_process(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    record = record_of(sleeper.pid)
    assert record is not None
    assert record.is_alive()
    record.write(tmp_path / "a.json")
    assert read_record(tmp_path / "a.json") == record


def test_a_dead_process_is_dead_also_as_a_zombie(sleeper: subprocess.Popen[bytes]) -> None:
    record = record_of(sleeper.pid)
    assert record is not None
    assert record.signal(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not record.is_alive()
    assert not record.signal(signal.SIGTERM)


def test_a_stranger_with_the_same_id_is_not_ours(sleeper: subprocess.Popen[bytes]) -> None:
    record = record_of(sleeper.pid)
    assert record is not None
    earlier = ProcessRecord(record.pid, record.start_ticks - 1, record.boot_id)
    assert not earlier.is_alive()
    assert not earlier.signal(signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_record_of_an_earlier_boot_is_no_process(sleeper: subprocess.Popen[bytes]) -> None:
    record = record_of(sleeper.pid)
    assert record is not None
    assert not ProcessRecord(record.pid, record.start_ticks, "another-boot").is_alive()
    assert record.boot_id == boot_id()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"pid": 1}), "17"])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert read_record(path) is None
    assert read_record(tmp_path / "missing.json") is None


def test_a_port_is_free_or_has_a_holder() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not port_is_free("127.0.0.1", port)
        holder = holder_of(port)
        assert holder.pid == os.getpid()
        assert f"process {os.getpid()} (" in str(holder)
    assert port_is_free("127.0.0.1", free_port())


def test_a_port_taken_by_an_outgoing_connection_is_told_so() -> None:
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        port = client.getsockname()[1]
        assert not port_is_free("127.0.0.1", port)
        assert "for an outgoing connection" in str(holder_of(port))


def test_a_log_is_cut_in_place_and_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "part.log"
    descriptor = open_log(path)
    try:
        os.write(descriptor, b"a" * 100)
        assert not rotate(path, bytes_max=100)
        os.write(descriptor, b"b")
        assert rotate(path, bytes_max=100, old_files=2)
        # Rotation copies the log and truncates it, because the part keeps its open descriptor.
        os.write(descriptor, b"later\n")
        assert path.read_bytes() == b"later\n"
        assert numbered(path, 1).read_bytes() == b"a" * 100 + b"b"
        for _ in range(3):
            os.write(descriptor, b"c" * 101)
            assert rotate(path, bytes_max=100, old_files=2)
    finally:
        os.close(descriptor)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "part.log",
        "part.log.1",
        "part.log.2",
    ]


def test_a_log_that_is_not_there_has_no_end(tmp_path: Path) -> None:
    assert tail(tmp_path / "no.log", 5) == []
    assert not rotate(tmp_path / "no.log")
    (tmp_path / "x.log").write_bytes(b"one\ntwo\nthree \xff\n")
    assert tail(tmp_path / "x.log", 2) == ["two", "three \ufffd"]


def test_a_connection_that_lives_is_named_before_one_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = SimpleNamespace(laddr=SimpleNamespace(port=7), status="ESTABLISHED", pid=os.getpid())
    ended = SimpleNamespace(laddr=SimpleNamespace(port=7), status="TIME_WAIT", pid=None)
    monkeypatch.setattr(psutil, "net_connections", lambda kind: [ended, ours])
    assert holder_of(7).pid == os.getpid()


def test_of_javas_trace_the_frames_are_left_out_and_the_causes_stay() -> None:
    said = (
        "26/11/26 07:57:20 ERROR SparkContext: Error initializing SparkContext.\n"
        "org.apache.spark.SparkException: Cannot connect to master\n"
        "\tat org.apache.spark.deploy.Client.start(Client.scala:12)\n"
        "Caused by: java.io.IOException: Connection refused\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "\t... 12 more\n\n"
    )
    assert end_of(said, 2) == (
        "org.apache.spark.SparkException: Cannot connect to master\n"
        "Caused by: java.io.IOException: Connection refused"
    )
    assert end_of("", 2) == ""


def test_a_parts_last_words_are_its_last_error() -> None:
    log = [
        "2026-11-21T04:00:00.123Z ERROR stream metric top_paths has changed: new name traceback=x",
        "2026-11-21T04:00:00.200Z INFO stream stopped",
    ]
    assert last_words(log) == "metric top_paths has changed: new name"
    assert last_words(["Killed", ""]) == "Killed"
    # A process that was killed logs no reason. An earlier warning must not be shown as the reason.
    told = [
        "Killed",
        "2026-11-21T04:00:00.200Z WARNING broker-2 the event loop was late lag_ms=364",
    ]
    assert last_words(told) is None
    # Spark logs warnings as WARN, not WARNING. They are not errors either.
    assert last_words(["2026-11-27T08:22:41.861Z WARN spark MacAddressUtil: no address"]) is None
    assert last_words(["Warning: Java versions > Java 11 can only operate in restricted"]) is None
    assert last_words([]) is None


@contextmanager
def files_of(bytes_max: int) -> Iterator[None]:
    """Limit the size of files, so that a write beyond the limit fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_log_that_cannot_be_copied_stays_and_so_do_the_older_ones(tmp_path: Path) -> None:
    path = tmp_path / "part.log"
    kept = {path: b"a" * 300, numbered(path, 1): b"b", numbered(path, 2): b"c"}
    for one, data in kept.items():
        one.write_bytes(data)
    for _ in range(3):
        with files_of(200), pytest.raises(OSError, match="File too large"):
            rotate(path, bytes_max=100)
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == kept


def test_a_started_process_is_ours_though_the_disk_takes_no_record_of_it(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path / "millrace.yaml")
    home.run.mkdir(parents=True)

    async def run() -> int:
        with files_of(0):
            process = await children.start(home, "a", ["sleep", "60"])
        process.kill()
        return await process.wait()

    assert asyncio.run(run()) == -signal.SIGKILL
    assert list(home.run.iterdir()) == []
