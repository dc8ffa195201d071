"""`millrace topic`, `group`, `produce`, `consume`, `config`, `broker`, `dump-log` on one broker."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.app import main
from tests.harness.broker import BrokerProcess
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

AT_ONCE_S = 5.0


class Said:
    """The exit code and the output of a command."""

    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code, self.raw, self.err = code, out, err
        self.out = out.decode(errors="replace")

    @property
    def data(self) -> Any:
        return json.loads(self.out)["data"]


Run = Callable[..., Said]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    with BrokerProcess(tmp_path_factory.mktemp("commands"), settings) as broker:
        yield broker


@pytest.fixture
def millrace(broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command in this process. Unless `connects` is False, the
    command uses the test's broker."""

    def run(*arguments: str, stdin: bytes = b"", connects: bool = True) -> Said:
        out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
        given = tmp_path / "stdin"
        given.write_bytes(stdin)
        servers = ["-b", broker.bootstrap] if connects else []
        with (
            given.open() as source,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            monkeypatch.setattr("sys.stdin", source)
            code = main([*arguments, *servers])
        out.flush()
        return Said(int(code), out.buffer.getvalue(), err.getvalue())

    return run


def test_a_topic_lives_and_dies(millrace: Run) -> None:
    assert (
        millrace("topic", "create", "t1", "-p", "2", "-c", "retention.ms=60000", "--dry-run").code
        == 0
    )
    assert millrace("topic", "describe", "t1").code == 4
    made = millrace("topic", "create", "t1", "-p", "2", "-c", "retention.ms=60000", "--json").data
    assert made == {"topic": "t1", "made": True, "existed": False}
    assert millrace("topic", "create", "t1").code == 1
    assert "exists already" in millrace("topic", "create", "t1", "--if-not-exists").err
    rows = millrace("topic", "describe", "t1", "--json").data
    assert [(row["partition"], row["leader"], row["isr"]) for row in rows] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]
    shown = millrace("topic", "describe", "t1")
    assert "retention.ms=60000" in shown.err
    heads = ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR"]
    assert shown.out.splitlines()[0].split() == heads
    assert millrace("topic", "alter", "t1", "-p", "3", "--delete-config", "retention.ms").code == 0
    [row] = millrace("topic", "list", "-r", "t1", "--json").data
    assert (row["partitions"], row["replicas"], row["under_replicated"]) == (3, 1, 0)
    assert millrace("topic", "alter", "t1", "-p", "2").code == 1
    refused = millrace("topic", "delete", "t1")
    assert refused.code == 2
    assert "add --yes" in refused.err
    assert "would delete t1: 3 partitions" in millrace("topic", "delete", "t1", "--dry-run").err
    told = millrace("topic", "delete", "t1", "--yes", "--json")
    assert (told.code, told.data) == (0, [{"topic": "t1", "partitions": 3, "deleted": True}])
    assert millrace("topic", "delete", "t1", "--yes").code == 4


def test_records_go_in_and_come_out_again(millrace: Run, tmp_path: Path) -> None:
    millrace("topic", "create", "t2", "-p", "1")
    assert millrace("produce", "t2", "-K", ":", "-H", "h:1", stdin=b"k:v\nk2:\xff\n").code == 0
    told = millrace("produce", "t2", "--json", stdin=b"")
    assert (told.data["sent"], told.data["stored"], told.data["failed"]) == (0, 0, 0)
    file = tmp_path / "lines.txt"
    file.write_bytes(b"three\nfour")
    assert (
        "2 of 2 records stored"
        in millrace("produce", "t2", str(file), "-k", "fix", "-z", "gzip").err
    )
    said = millrace("consume", "t2", "-o", "start", "-e", "-f", r"%p/%o %k=%s [%h]\n")
    assert said.raw == b"0/0 k=v [h=1]\n0/1 k2=\xff [h=1]\n0/2 fix=three []\n0/3 fix=four []\n"
    rows = [
        json.loads(line)
        for line in millrace("consume", "t2", "-o", "-3", "-e", "--json").out.splitlines()
    ]
    assert [row["offset"] for row in rows] == [1, 2, 3]
    assert (rows[0]["value"], rows[0]["value_base64"], rows[1]["value"]) == ("/w==", True, "three")
    assert rows[0]["headers"] == [{"name": "h", "value": "1"}]
    assert millrace("consume", "t2", "-o", "2", "-n", "1").out == "three\n"
    assert millrace("consume", "t2", "-o", "@0", "-e", "-n", "9").out.count("\n") == 4
    assert millrace("consume", "t2", "-o", "@1h", "-e").out.count("\n") == 4
    assert millrace("group", "list", "--json").data == [] or all(
        not row["group"].startswith("console") for row in millrace("group", "list", "--json").data
    )
    [end] = millrace("topic", "offsets", "t2", "--json").data
    assert end == {"topic": "t2", "partition": 0, "offset": 4}
    assert millrace("topic", "offsets", "t2", "--time", "start", "-O", "csv").out == (
        "topic,partition,offset\nt2,0,0\n"
    )


def test_a_transaction_that_breaks_off_is_not_seen(millrace: Run) -> None:
    millrace("topic", "create", "t3", "-p", "1")
    whole = ("--transactional-id", "tx", "--per-transaction", "2")
    assert millrace("produce", "t3", *whole, "-K", ":", stdin=b"a:1\nb:2\nc:3\nnokey\n").code == 1
    committed = millrace("consume", "t3", "-o", "start", "-e", "--read-committed")
    assert committed.out == "1\n2\n"
    assert millrace("produce", "t3", *whole, stdin=b"4\n").code == 0
    assert millrace("consume", "t3", "-o", "start", "-e", "--read-committed").out == "1\n2\n4\n"
    assert millrace("consume", "t3", "-o", "start", "-e").out.splitlines()[-1] == "4"


def test_a_group_is_read_moved_and_deleted(millrace: Run) -> None:
    millrace("topic", "create", "t4", "-p", "2")
    millrace("produce", "t4", "-p", "0", stdin=b"a\nb\nc\n")
    assert millrace("consume", "t4", "-g", "g4", "-o", "start", "-n", "2").out == "a\nb\n"
    rows = millrace("group", "describe", "g4", "--json").data
    lag = {row["partition"]: (row["current_offset"], row["lag"]) for row in rows}
    assert lag[0] == (2, 1)
    # The group continues at its committed offset: no record is read twice or skipped.
    assert millrace("consume", "t4", "-g", "g4", "-e").out == "c\n"
    shown = millrace("group", "seek", "g4", "--to", "start", "--topic", "t4:0", "--json")
    assert shown.data[0] | {"group": ""} == {
        "group": "", "topic": "t4", "partition": 0, "current_offset": 3, "new_offset": 0,
    }  # fmt: skip
    assert "add --execute to do it" in shown.err
    assert millrace("group", "seek", "g4", "--to", "-2", "--topic", "t4:0", "--execute").code == 0
    assert millrace("consume", "t4", "-g", "g4", "-e").out == "b\nc\n"
    assert millrace("group", "describe", "absent").code == 4
    [state] = millrace("group", "describe", "g4", "--state", "--json").data
    assert (state["state"], state["members"]) == ("Empty", 0)
    assert millrace("group", "delete-offsets", "g4", "--topic", "t4:1", "--yes").code == 0
    assert millrace("group", "delete", "g4").code == 2
    told = millrace("group", "delete", "g4", "--yes", "--json").data
    assert told == [{"group": "g4", "deleted": True, "error": None}]
    assert millrace("group", "delete", "g4", "--yes").code == 4


def test_settings_are_read_and_changed(millrace: Run) -> None:
    millrace("topic", "create", "t5")
    assert millrace("config", "set", "topic", "t5", "retention.ms=1000", "--dry-run").code == 0
    assert millrace("config", "get", "topic", "t5", "--json").data == []
    assert millrace("config", "set", "topic", "t5", "retention.ms=1000").code == 0
    [row] = millrace("config", "get", "topic", "t5", "--json").data
    assert (row["name"], row["value"], row["source"]) == (
        "retention.ms",
        "1000",
        "DYNAMIC_TOPIC_CONFIG",
    )
    [row] = millrace("config", "get", "topic", "t5", "segment.bytes", "--json").data
    assert row["source"] == "DEFAULT_CONFIG"
    assert millrace("config", "set", "topic", "t5", "nonsense=1").code == 1
    assert millrace("config", "set", "topic", "t5", "--delete", "retention.ms").code == 0
    assert millrace("config", "get", "topic", "absent").code == 4
    assert len(millrace("config", "get", "broker", "1", "--all", "--json").data) > 20


def test_config_get_offers_the_kinds_that_the_broker_has(millrace: Run) -> None:
    for kind, name in (("topic", "t5"), ("broker", "1"), ("broker-logger", "1")):
        found = millrace("config", "get", kind, name, "--all", "--json")
        assert found.code == 0 and found.data, kind
    assert millrace("config", "get", "group", "g").code == 1, "our brokers have none of groups"
    unknown = millrace("config", "get", "broker", "1", "nonsense")
    assert (unknown.code, "config get broker 1 --all` lists" in unknown.err) == (4, True)


def test_brokers_and_their_logs(millrace: Run, broker: BrokerProcess) -> None:
    millrace("topic", "create", "t6", "-p", "2")
    [row] = millrace("broker", "list", "--json").data
    assert (row["broker"], row["controller"], row["answers"]) == (1, True, True)
    assert row["leads"] == row["replicas"] == row["in_sync"] >= 2
    rows = millrace("broker", "describe", "1", "--json").data
    assert {(one["topic"], one["partition"]) for one in rows} >= {("t6", 0), ("t6", 1)}
    assert millrace("broker", "describe", "7").code == 4
    whole = millrace("broker", "describe", "--json").data
    assert (whole["controller"], whole["quorum"]["leader"]) == (1, 1)
    [own] = whole["brokers"]
    assert (own["state"], own["voter"], own["controller"]) == ("in service", True, True)
    assert own["leads"] == whole["counts"]["partitions"] == len(whole["partitions"])
    assert {row["leader_epoch"] for row in whole["partitions"]} == {0}
    shown = millrace("broker", "describe")
    assert "offline" in shown.err and "LAST_KNOWN_ELR" in shown.out
    assert millrace("broker", "describe", "-O", "csv").out.startswith("topic,partition,leader,")
    millrace("produce", "t6", "-p", "0", stdin=b"x\n")
    folder = broker.log_dir / "t6-0"
    checked = millrace("dump-log", str(folder), "--json", connects=False)
    assert checked.code == 0, checked.err
    assert checked.data["batches"] == 1
    printed = millrace("dump-log", str(folder), "--print-data", connects=False)
    assert "payload: x" in printed.out


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "alter", "absent", "-p", "5"),
        ("topic", "alter", "absent", "-c", "retention.ms=1"),
        ("config", "set", "topic", "absent", "retention.ms=1"),
        ("config", "set", "topic", "absent", "retention.ms=1", "--dry-run"),
        ("config", "set", "broker", "9", "log.cleaner.threads=2"),
        ("produce", "absent"),
    ],
)
def test_what_is_not_there_is_told_at_once(millrace: Run, command: tuple[str, ...]) -> None:
    """The command must fail at once. A client library alone would retry until its timeout, because
    the topic could be created in the meantime."""
    began_s = time.monotonic()
    said = millrace(*command)
    assert (said.code, said.out) == (4, "")
    assert "does not exist" in said.err
    assert time.monotonic() - began_s < AT_ONCE_S


def test_while_a_broker_takes_nothing_it_is_said_how_far_it_is(
    broker: BrokerProcess, millrace: Run, tmp_path: Path
) -> None:
    """`produce` must print how many records are stored. Otherwise it would print nothing while its
    producer retries."""
    millrace("topic", "create", "t8", "-p", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", "produce", "t8", "-b", broker.bootstrap],
        env={**os.environ, "MILLRACE_HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert broker.process is not None
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        wait_until(
            lambda: millrace("consume", "t8", "-o", "start", "-e").out == "one\n", 30, "it came"
        )
        os.kill(broker.process.pid, signal.SIGSTOP)
        process.stdin.write(b"two\n")
        process.stdin.flush()
        told = next(line for line in process.stderr if line.startswith(b"2 sent, "))
        assert told.startswith(b"2 sent, 1 stored, ")
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_no_broker_answers(millrace: Run) -> None:
    for command in (("topic", "list"), ("group", "list"), ("broker", "list")):
        said = millrace(*command, "-b", "127.0.0.1:1", "--timeout", "0.5", connects=False)
        assert said.code == 5
        assert "no broker answers" in said.err


def test_a_damaged_log_is_exit_code_3(millrace: Run, broker: BrokerProcess, tmp_path: Path) -> None:
    millrace("topic", "create", "t7", "-p", "1")
    millrace("produce", "t7", stdin=b"hello\n")
    name = f"{0:020}.log"
    data = bytearray((broker.log_dir / "t7-0" / name).read_bytes())
    data[70] ^= 1
    damaged = tmp_path / name
    damaged.write_bytes(data)
    said = millrace("dump-log", str(damaged), connects=False)
    assert said.code == 3
    assert "the checksum of the batch does not match" in said.out
    assert os.path.basename(damaged) in said.out
