"""Verifiable clients of any library as processes, and the check of their output.

    with Verifiable(families.LIBRDKAFKA, cluster.bootstrap, tmp_path) as client:
        ...
        client.finish()
    report = client.judge(cluster.bootstrap)

`words` describes the output of a client. The client's topics must exist with `words.PARTITIONS`
partitions each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.harness import ROOT
from tests.harness.checker import Report, Rules, check
from tests.harness.history import Outcome, Place, ReadLog, SendLog
from tests.harness.recorded import read_everything
from tests.harness.verifiable.words import (
    CA_VARIABLE,
    PARTITIONS,
    PASSWORD_VARIABLE,
    PER_TRANSACTION,
    USER_VARIABLE,
    topics_of,
)
from tests.harness.wait import wait_until

END_DEADLINE_S = 150.0
"""The time for the last responses. The libraries of Java and Python wait for up to two minutes."""


@dataclass(frozen=True, slots=True)
class Family:
    """A client library, and the command that runs it as a verifiable client."""

    name: str
    version: Callable[[], str]
    command: Callable[[Path], tuple[str, ...]]
    """Returns the command, given a folder for the files that it needs. Skips the test if the
    library is not available."""

    is_transactional: bool = True
    chooses_partitions: bool = False
    """True if the client chooses the partition of a number. Otherwise the number decides."""

    answers_at_its_end: bool = False
    """True if the client reports acknowledgements only at its end."""

    allowed: Mapping[str, str] = field(default_factory=dict)
    """Errors that Kafka returns too, as `doing exception`, each with the reason."""

    environment: Callable[[], Mapping[str, str]] = dict

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the topics that the client writes and reads."""
        return topics_of(self.name) if self.is_transactional else (self.name,)

    @property
    def places(self) -> list[Place]:
        """Return all partitions of its topics."""
        return [(topic, number) for topic in self.topics for number in range(PARTITIONS)]


@dataclass(slots=True)
class _Sent:
    """An acknowledged record."""

    partition: int
    offset: int
    transaction: int


class Verifiable:
    """One running client."""

    def __init__(
        self,
        family: Family,
        bootstrap: str,
        folder: Path,
        ca: Path | None = None,
        login: tuple[str, str] | None = None,
    ) -> None:
        """Start the client. `ca` is the CA that it trusts, if the bootstrap servers have TLS.
        `login` is its user and password, if it must log in.
        """
        security = {} if ca is None else {CA_VARIABLE: str(ca)}
        if login is not None:
            security |= {USER_VARIABLE: login[0], PASSWORD_VARIABLE: login[1]}
        self.family = family
        self.errors: Counter[str] = Counter()
        """The errors that reached the application, as `doing exception`."""
        self.shown: list[str] = []
        """The first of these errors in full, and the client's own log."""
        self.words: set[str] = set()
        self._sent: dict[str, dict[int, _Sent]] = {topic: {} for topic in family.topics}
        self._promised = Counter[str](dict.fromkeys(family.topics, 0))
        self._ends: dict[int, bool] = {}
        self._given = ReadLog(f"{family.name}-reader", is_read_committed=True)
        self._read: dict[str, set[int]] = {topic: set() for topic in family.topics}
        self._process = subprocess.Popen(
            [*family.command(folder / family.name), bootstrap, family.name],
            cwd=ROOT,
            env=os.environ | dict(family.environment()) | security,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Make the client and its child processes one process group, so that one signal ends
            # all.
            start_new_session=True,
        )
        self._said = folder / f"{family.name}.jsonl"
        """The whole output, for the analysis of a failure."""
        self._listener = threading.Thread(target=self._listen, name=f"listens to {family.name}")
        self._listener.start()

    def progress(self) -> dict[str, int]:
        """Return for each topic the number of records acknowledged, and of records read."""
        read = {f"{topic} read": len(numbers) for topic, numbers in self._read.items()}
        if self.family.answers_at_its_end:
            return read
        return read | {f"{topic} promised": count for topic, count in self._promised.items()}

    @property
    def given_again(self) -> int:
        """Return how many records the client's group got twice. A lost commit can cause this."""
        given = sum(1 for place in self._given.offsets for _ in self._given.records(place))
        return given - sum(map(len, self._read.values()))

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._said.open("w") as said:
            for line in self._process.stdout:
                said.write(line)
                try:
                    event = json.loads(line)
                except ValueError:
                    self._show(line.rstrip())
                    continue
                self._hear(event)

    def _hear(self, event: dict[str, Any]) -> None:
        match event["name"]:
            case "producer_send_success":
                self._hear_sent(event)
            case "transaction_ended":
                number, is_committed = event["transaction"], event["is_committed"]
                self._ends[number] = is_committed
                self._promised[event["topic"]] += PER_TRANSACTION if is_committed else 0
            case "record_data":
                place = (event["topic"], event["partition"])
                self._given.read(place, event["offset"], event["value"].encode())
                self._read[event["topic"]].add(int(event["value"]))
            case "partitions_assigned":
                for topic, partition in event["partitions"]:
                    self._given.move((topic, partition))
            case "error":
                self.errors[f"{event['doing']} {event['exception']}"] += 1
                self._show(json.dumps(event))
            case "log":
                self._show(event["line"])
            case word:
                self.words.add(word)

    def _hear_sent(self, event: dict[str, Any]) -> None:
        number = int(event["value"])
        one = _Sent(event["partition"], event["offset"], event["transaction"])
        assert number not in self._sent[event["topic"]], f"{number} is acknowledged twice"
        self._sent[event["topic"]][number] = one
        self._promised[event["topic"]] += one.transaction < 0

    def _show(self, line: str) -> None:
        if len(self.shown) < 200:
            self.shown.append(line)

    def missing(self) -> list[str]:
        """Return the acknowledged records that the client's group has not read yet."""
        return [
            f"{topic}: {number} at {one.partition}, {one.offset}"
            for topic, sent in self._sent.items()
            for number, one in sent.copy().items()
            if self._is_promised(one) and number not in self._read[topic]
        ]

    def _is_promised(self, one: _Sent) -> bool:
        return one.transaction < 0 or self._ends.get(one.transaction, False)

    def check_alive(self) -> None:
        """Raise SystemExit if the process has ended, so that a wait for the client ends at once."""
        if self._process.poll() is not None:
            raise SystemExit(f"a client has ended; {self._about()}")

    def finish(self) -> None:
        """Stop writing, wait until the client's group has read everything, and stop reading."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write("\n")
        stdin.flush()
        self._wait_until(lambda: "writing_ended" in self.words, "every record has its answer")
        self._wait_until(lambda: not self.missing(), "its group has read everything")
        stdin.close()
        assert self._process.wait(END_DEADLINE_S) == 0, self._about()
        self._listener.join()
        assert "shutdown_complete" in self.words, self._about()

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, END_DEADLINE_S, what)
        except AssertionError as late:
            raise AssertionError(f"{late}; {self._about()}") from None

    def _about(self) -> str:
        return f"{self.family.name}: {self.missing()[:20]} {self.errors} {self.shown[-20:]}"

    def judge(self, bootstrap: str) -> Report:
        """Check the client's output against the stored records. Errors are not checked here."""
        last = read_everything(
            bootstrap, self.family.places, name=f"{self.family.name}-last", is_read_committed=True
        )
        standing = {topic: set[int]() for topic in self.family.topics}
        for (topic, _), values in last.values.items():
            standing[topic].update(map(int, values))
        sends = [self._send_log(topic, standing[topic]) for topic in self.family.topics]
        return check(sends, [self._given, last], rules=Rules())

    def _send_log(self, topic: str, standing: set[int]) -> SendLog:
        """Return the client's records as a SendLog, in the order of their numbers.

        A record can be in the log although the client never reported it. The times are all 0 and
        not compared, because a client prints an acknowledgement later than it gets it.
        """
        sent = self._sent[topic]
        log = SendLog(f"{self.family.name} {topic}")
        for number in sorted(sent.keys() | standing):
            one = sent.get(number)
            if one is None and self.family.chooses_partitions:
                # The client chose the partition and did not report it, so the partition is unknown
                # here. Without a send the checker reports the record as a phantom.
                continue
            partition = number % PARTITIONS if one is None else one.partition
            transaction = -1 if topic == self.family.name else number // PER_TRANSACTION
            log.invoke((topic, partition), b"%d" % number, 0, transaction=transaction)
            if one is not None:
                log.ok(len(log) - 1, one.offset, 0)
        for transaction in log.ends:
            if transaction in self._ends:
                is_committed = self._ends[transaction]
                log.end(transaction, Outcome.OK if is_committed else Outcome.FAILED)
        return log

    def __enter__(self) -> Verifiable:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()
