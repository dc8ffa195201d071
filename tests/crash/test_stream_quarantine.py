"""Lines that make a query fail arrive in a running stream. No other line is lost or has to wait.

If an expression raises or returns a value that is too large, the value is NULL for that line and
metric. If an expression other than a pattern match takes too long, the stream kills the JVM until
it has found the line and set it aside.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from protocol.status import PartState, PartStatus, StatusUnavailable
from sinks.config import MySqlSettings, SinksSettings
from tests.harness.broker import BrokerProcess
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.seed import seeded
from tests.harness.stream import StreamProcess
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "logs.app"
MARK = "POISON"
DEADLINE_S = 200.0
# On a busy machine a JVM that has just started needs seconds for its first harmless lines.
HANG_S = 15.0
HURRIED = f"import stream.quarantine.in_hand as i; h.SEARCH_HANG_S = i.SEARCH_HANG_S = {HANG_S}"

# On a marked line these expressions need more than the heap, more than the stack, or years. On
# other lines they are harmless.
REPEATED = f"length(repeat(left(line, 10), IF(line LIKE '%{MARK}%', 100000000, 1))) > 0"
LISTED = f"size(sequence(1L, IF(line LIKE '%{MARK}%', 300000000L, 1L))) > 0"
RECURSIVE = f"repeat(line, IF(line LIKE '%{MARK}%', 1000, 1)) RLIKE '^(.|b)*$'"
BACKTRACKING = "line NOT RLIKE '^(.*x){20}y'"

# On a marked line `levenshtein` takes 16 × 10^12 steps, and no pattern match is involved. On
# another line it takes some hundred.
_LONG = f"repeat(line, IF(line LIKE '%{MARK}%', 4000000 div length(line), 1))"
ENDLESS = f"levenshtein({_LONG}, concat({_LONG}, 'x')) > 0"

LINES_A_TRANSACTION = 20

BY_FILE = {"name": "by_file", "from": "app", "key": "file", "measure": "count"}
ALL = {"name": "of_all", "from": "app", "measure": "count"}


def section(*metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        "from": {"app": {"topic": TOPIC, "format": "raw"}},
        "heap": "512MiB",
        "defaults": {"windows": ["all"]},
        "metrics": list(metrics),
    }


@dataclass
class Rig:
    """A stream with a broker and both sinks, and the lines sent to it. The methods that wait also
    restart a stream that has died."""

    broker: BrokerProcess
    mysql: MySqlServer
    database: MySqlSettings
    stream: StreamProcess
    good: int = 0
    marked: list[bytes] = field(default_factory=list)
    restarts: int = 0
    seen: list[PartStatus] = field(default_factory=list)

    def send(self, lines: int, marked: dict[int, bytes]) -> None:
        """Send `lines` lines. `marked` maps the numbers of marked lines to their text.

        The lines are sent in transactions, some of which are aborted. So markers and aborted
        records use offsets, too.
        """
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "transactional.id": "quarantine"}
        )
        producer.init_transactions(60)
        for start in range(0, lines, LINES_A_TRANSACTION):
            producer.begin_transaction()
            self._produce(producer, {0: marked_line(start)}, range(1))
            producer.flush(60)
            producer.abort_transaction(60)
            producer.begin_transaction()
            self._produce(producer, marked, range(start, min(lines, start + LINES_A_TRANSACTION)))
            producer.commit_transaction(60)
        self.good += lines - len(marked)
        self.marked += marked.values()

    @staticmethod
    def _produce(producer: Producer, marked: dict[int, bytes], numbers: range) -> None:
        for number in numbers:
            line = marked.get(number, f"good line {number}".encode())
            producer.produce(TOPIC, line, key=f"app/{number % 5}.log".encode())

    def look(self) -> PartStatus | None:
        """Return the stream's status, and record it if it is degraded. Restart a stream that has
        died."""
        assert self.stream.process is not None
        if (code := self.stream.process.poll()) is not None:
            assert code == 1, self.stream.log_text()[-4_000:]
            self.stream.process = None
            self.restarts += 1
            self.stream.spawn()
        try:
            status = self.stream.status()
        except StatusUnavailable:
            return None
        if status.problems and (not self.seen or self.seen[-1].problems != status.problems):
            self.seen.append(status)
        return status

    def rows(self, query: str) -> list[dict[str, Any]]:
        with self.mysql.connect(self.database) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def counted(self, metric: str = "by_file") -> int:
        found = self.rows(f"SELECT SUM(`count`) AS n FROM windows WHERE metric = '{metric}'")
        return int(found[0]["n"] or 0)

    def reasons(self) -> dict[str, int]:
        """Return the number of lines that were not counted, by reason."""
        found = self.rows("SELECT reason, SUM(`count`) AS n FROM unparsed GROUP BY reason")
        return {str(row["reason"]): int(row["n"]) for row in found}

    def poison(self) -> int:
        return self.reasons().get("poison", 0)

    def wait_counted(self) -> PartStatus:
        """Wait until every line is counted or set aside. Return the final status."""

        def is_through() -> PartStatus | None:
            status = self.look()
            is_done = self.counted() == self.good and self.poison() == len(self.marked)
            return status if is_done and status and not status.problems else None

        status = wait_until(is_through, DEADLINE_S, "all lines counted", progress=self.look_back)
        assert status is not None
        assert (self.counted(), self.poison()) == (self.good, len(self.marked))
        kept = self.rows("SELECT line FROM unparsed_lines WHERE reason = 'poison'")
        assert sorted(row["line"] for row in kept) == sorted(self.marked)
        assert set(self.reasons()) == {"poison"}
        assert (status.state, status.ready) == (PartState.RUNNING, True)
        return status

    def look_back(self) -> tuple[int, int]:
        """Return numbers that change while the work makes progress: restarts and degraded
        statuses."""
        return self.restarts, len(self.seen)

    def wait_searching(self, sentences: int) -> None:
        """Wait until the stream has reported `sentences` more problems."""
        before = len(self.seen)

        def has_said() -> bool:
            self.look()
            return len(self.seen) >= before + sentences

        wait_until(has_said, DEADLINE_S, "a search")


@pytest.fixture
def rig_of(
    tmp_path: Path, mysql_server: MySqlServer, redis_server: RedisServer
) -> Iterator[Callable[..., Rig]]:
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(tmp_path))

        def make(*metrics: dict[str, Any], patch: str = "") -> Rig:
            database = mysql_server.new_database()
            sinks = SinksSettings(mysql=database, redis=redis_server.settings)
            stream = StreamProcess(tmp_path, section(*metrics), sinks, broker.mill_bootstrap)
            if patch:
                run = "from stream.__main__ import main; raise SystemExit(main())"
                stream.command = [
                    sys.executable,
                    "-c",
                    f"import stream.quarantine.bisection as h; {patch}; {run}",
                ]
            stack.callback(stream.kill9)
            return Rig(broker, mysql_server, database, stream)

        yield make


def sentences(rig: Rig) -> list[str]:
    """Return the problems reported about searches for a line, in order."""
    return [
        problem.text for one in rig.seen for problem in one.problems if problem.code == "poison"
    ]


def marked_line(number: int) -> bytes:
    return f"{number} is {MARK} ".encode() + b"x" * 2_000 + b" end"


@pytest.mark.parametrize("where", [REPEATED, LISTED, RECURSIVE, BACKTRACKING])
def test_lines_that_one_metric_cannot_count_delay_no_other_metric(
    rig_of: Callable[..., Rig], where: str
) -> None:
    chance = seeded("stream-quarantine")
    rig = rig_of({**BY_FILE, "where": where}, ALL)
    rig.stream.start()
    rig.send(2_000, {number: marked_line(number) for number in chance.sample(range(2_000), 20)})
    begin = time.monotonic()

    def is_through() -> bool:
        rig.look()
        return rig.counted("of_all") == 2_000

    wait_until(is_through, DEADLINE_S, "all lines counted")
    tell(f"2,000 lines, 20 of them too much for {where}: {time.monotonic() - begin:.1f} s")
    assert rig.counted() == rig.good == 1_980
    assert rig.reasons() == {"expression_null:by_file": 20}
    assert (rig.restarts, sentences(rig)) == (0, [])


def test_a_line_that_would_never_end_is_set_aside_over_kills(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of({**BY_FILE, "where": ENDLESS}, patch=f"h.HANG_S = h.SEARCH_HANG_S = {HANG_S}")
    rig.stream.start()
    rig.send(60, {17: marked_line(17)})
    status = rig.wait_counted()
    assert 3 <= rig.restarts <= 6
    (one,) = details(status)["poison"]
    assert one["reason"] == "Java ended or hung"
    assert any(text.startswith("Java ended while it counted") for text in sentences(rig))
    rig.send(20, {3: marked_line(3)})
    rig.wait_searching(1)
    rig.stream.kill9()
    rig.stream.start()
    rig.wait_counted()
    assert not (rig.stream.data_dir / "suspects.json").exists()
    log = rig.stream.log_text()
    assert "the JVM was killed, because it made no progress on logs.app" in log
    assert "x" * 2_000 not in log


def test_a_metric_is_taken_out_while_a_line_takes_it_for_ever(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of({**BY_FILE, "where": ENDLESS}, ALL, patch=f"h.HANG_S = 3600.0; {HURRIED}")
    rig.stream.start()
    rig.send(60, {17: marked_line(17)})
    wait_until(lambda: rig.look() is not None, DEADLINE_S, "the stream runs")
    rig.stream.change(section(ALL))

    def is_through() -> bool:
        rig.look()
        return rig.counted("of_all") == 60

    wait_until(
        is_through, DEADLINE_S, "the line is counted without the metric", progress=rig.look_back
    )
    assert rig.restarts <= 1
    assert rig.reasons() == {}


def details(status: PartStatus) -> dict[str, Any]:
    return dict(status.details)
