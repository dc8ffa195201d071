"""Our `kafka-*` commands beside Kafka's own on one broker: the same lines, or a reason."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.dump.scan import Batches
from appliance.home import CODE
from tests.harness.broker import BrokerProcess
from tests.harness.kafka_commands import CASES, MAINS, NAME, Case
from tests.harness.tools import KafkaTools

pytestmark = [pytest.mark.live, pytest.mark.slow]

DEADLINE_S = 120.0
THEIRS, OURS = "aaaa", "bbbb"

# What Java's logging prints between the lines of a tool, and what it says of its own options.
_CHATTER = re.compile(r"^(WARN|ERROR|INFO|\tat |Caused by| ?\(org\.apache)|^\s*$")
_SAID_BY_JAVA = re.compile(r" Enable debug logging for additional detail\.$")


@dataclass(frozen=True, slots=True)
class Stage:
    """The broker, Kafka's tools, and the files that both are given."""

    broker: BrokerProcess
    tools: KafkaTools
    files: Path

    def ours(self, tool: str, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        servers = [] if tool == "dump-log" else ["--bootstrap-server", self.broker.bootstrap]
        command = [str(CODE / "bin" / f"kafka-{tool}"), *servers, *arguments]
        return _ended(command, stdin)

    def theirs(self, tool: str, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        command = self.tools.command(MAINS[tool], *arguments)
        if tool == "dump-log":
            at = command.index("--bootstrap-server")
            command = command[:at] + command[at + 2 :]
        return _ended(command, stdin)


def _ended(command: list[str], stdin: str) -> tuple[int, str, str]:
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A broker with a bit of everything, and copies of its files."""
    folder = tmp_path_factory.mktemp("beside")
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "log.index.interval.bytes": 64,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }
    with BrokerProcess(folder, settings) as broker:
        stage = Stage(broker, KafkaTools(folder / "tools", broker.bootstrap), folder / "files")
        stage.files.mkdir()
        for name, partitions, options in (
            ("logs", 2, ["--config", "retention.ms=7777777"]),
            ("plain", 1, []),
            ("transactions", 1, []),
        ):
            made = ["--create", "--topic", name, "--partitions", str(partitions), *options]
            assert stage.ours("topics", *made)[0] == 0
        for side in (THEIRS, OURS):
            assert stage.ours("topics", "--create", "--topic", f"made{side}")[0] == 0
            plan = {"partitions": [{"topic": f"made{side}", "partition": 0, "offset": 1}]}
            (stage.files / f"delete-{side}.json").write_text(json.dumps({**plan, "version": 1}))
        named = [{"topic": "plain", "partition": 0}, {"topic": "logs", "partition": 1}]
        (stage.files / "elect.json").write_text(json.dumps({"partitions": named}))
        _fill(stage)
        for path, name in (
            ("logs-0/{}.log", "logs-0.log"),
            ("logs-0/{}.index", "logs-0.index"),
            ("logs-0/{}.timeindex", "logs-0.timeindex"),
            ("transactions-0/{}.log", "transactions-0.log"),
            ("__consumer_offsets-0/{}.log", "offsets.log"),
            ("__transaction_state-0/{}.log", "state.log"),
            ("__cluster_metadata-0/{}.log", "metadata.log"),
        ):
            own = stage.files / name.rsplit(".", 1)[0]
            own.mkdir(exist_ok=True)
            source = broker.log_dir / path.format("0" * 20)
            shutil.copyfile(source, own / source.name)
            if source.suffix == ".log":
                _without_zeros(own / source.name)
        yield stage


def _without_zeros(path: Path) -> None:
    """Cut a copy behind its last batch: at the zeros of a log in use Kafka's tool gives up."""
    batches = Batches(memoryview(path.read_bytes()))
    assert all(batch.is_valid for batch in batches)
    assert batches.fault is None
    os.truncate(path, batches.end)


def _fill(stage: Stage) -> None:
    """Records with keys, headers and nulls; a group that has read some; transactions."""
    command = [sys.executable, "-m", "appliance"]
    broker = ["-b", stage.broker.bootstrap]
    for partition, lines in (("0", "a:1\nb:2\nc:3\n"), ("1", "d:4\ne:5\nf:6\n")):
        sent = ["produce", "logs", "-K", ":", "-p", partition, "-H", "h:x"]
        subprocess.run([*command, *sent, *broker], input=lines, text=True, check=True, cwd=CODE)
    whole = ["produce", "transactions", "--transactional-id", "tx", "-p", "0"]
    subprocess.run(
        [*command, *whole, *broker], input="committed\n", text=True, check=True, cwd=CODE
    )
    read = ["consume", "logs", "-g", "readers", "-o", "start", "-n", "4"]
    subprocess.run([*command, *read, *broker], check=True, cwd=CODE, capture_output=True)


def arguments_of(case: Case, stage: Stage, side: str) -> list[str]:
    """The words of a call, with the side's own names and files."""
    words = case.arguments.replace(NAME, side).split()
    return [re.sub(r"@([^,]+)", lambda one: _path(stage, one[1]), word) for word in words]


def _path(stage: Stage, name: str) -> str:
    if name.endswith(".json"):
        return str(stage.files / name)
    stem, _, suffix = name.rpartition(".")
    return str(stage.files / stem / f"{'0' * 20}.{suffix}")


def lines_of(text: str) -> list[str]:
    """The lines of a tool, without what only Java says, whatever their order."""
    shown = text.replace(THEIRS, NAME).replace(OURS, NAME)
    lines = [_SAID_BY_JAVA.sub("", line) for line in shown.splitlines()]
    return sorted(line for line in lines if not _CHATTER.search(line))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.tool} {case.arguments}"[:90])
def test_the_same_is_printed(case: Case, stage: Stage) -> None:
    ours = stage.ours(case.tool, *arguments_of(case, stage, OURS), stdin=case.stdin)
    theirs = stage.theirs(case.tool, *arguments_of(case, stage, THEIRS), stdin=case.stdin)
    told = f"Kafka: {theirs}\nours: {ours}"
    assert (theirs[0], ours[0]) == case.codes, told
    is_same = lines_of(theirs[1]) == lines_of(ours[1])
    assert is_same == (case.differs is None), told


def test_what_was_produced_is_the_same(stage: Stage) -> None:
    """Keys, values, nulls and headers of the two topics that the two producers have filled."""
    shown = []
    for side in (THEIRS, OURS):
        options = [f"print.{part}=true" for part in ("partition", "key", "headers")]
        asked = [word for one in options for word in ("--formatter-property", one)]
        code, out, _ = stage.ours(
            "console-consumer",
            *("--topic", f"made{side}", "--from-beginning", "--max-messages", "3"),
            *("--formatter-property", "null.literal=NIL", *asked),
        )
        assert code == 0
        shown.append(sorted(out.splitlines()))
    assert shown[0] == shown[1]
