"""Lines that no plan can count, dropped into a running stream: set aside, and no other line lost.

What an expression raises is NULL for its line, so these lines break what is beneath: the heap, and
the time that anyone would wait.
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
# A JVM that has just started, on a busy machine, needs seconds for its first good lines.
HANG_S = 15.0

# A gigabyte for a line that carries the mark, twice the heap; others are left as they are.
GREEDY = f"length(repeat(left(line, 10), IF(line LIKE '%{MARK}%', 100000000, 1))) > 0"
# For a line of many a's that ends otherwise, this tries all ways to cut it into twenty.
ENDLESS = "line NOT RLIKE '^(.*a){20}$'"

LINES_A_TRANSACTION = 20

SURVIVES = "0"
ENDS = "5"


def section(where: str, depth: str) -> dict[str, Any]:
    """A count of lines by file. `depth` says whether a fatal error of a task ends the JVM."""
    return {
        "from": {"app": {"topic": TOPIC, "format": "raw"}},
        "heap": "512MiB",
        "defaults": {"windows": ["all"]},
        "spark": {"spark.executor.killOnFatalError.depth": depth},
        "metrics": [
            {"name": "by_file", "from": "app", "key": "file", "measure": "count", "where": where}
        ],
    }


@dataclass
class Rig:
    """A stream over a broker and both sinks, and what was sent. Whoever waits here restarts it."""

    broker: BrokerProcess
    mysql: MySqlServer
    database: MySqlSettings
    stream: StreamProcess
    good: int = 0
    marked: list[bytes] = field(default_factory=list)
    restarts: int = 0
    seen: list[PartStatus] = field(default_factory=list)

    def send(self, lines: int, marked: dict[int, bytes]) -> None:
        """So many lines, some of them replaced by others.

        They come in transactions, some of them aborted: markers and what nobody may see take
        offsets, too.
        """
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "transactional.id": "quarantine"}
        )
        producer.init_transactions(60)
        for start in range(0, lines, LINES_A_TRANSACTION):
            producer.begin_transaction()
            self._produce(producer, {0: greedy(start)}, range(1))
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
        """What the stream says of itself, kept where it is degraded; a dead one is started."""
        assert self.stream.process is not None
        if (code := self.stream.process.poll()) is not None:
            assert code == 1, self.stream.log_text()[-4_000:]
            self.stream.process = None
            self.restarts += 1
            self.stream.spawn_run()
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

    def counted(self) -> int:
        found = self.rows("SELECT SUM(`count`) AS n FROM windows WHERE metric = 'by_file'")
        return int(found[0]["n"] or 0)

    def poison(self) -> int:
        found = self.rows("SELECT SUM(`count`) AS n FROM unparsed WHERE reason = 'poison'")
        return int(found[0]["n"] or 0)

    def wait_counted(self) -> PartStatus:
        """Wait until every line is counted or set aside, once; returns the status after that."""

        def is_through() -> PartStatus | None:
            status = self.look()
            is_done = self.counted() == self.good and self.poison() == len(self.marked)
            return status if is_done and status and not status.problems else None

        status = wait_until(is_through, DEADLINE_S, "all lines counted", progress=self.look_back)
        assert status is not None
        assert (self.counted(), self.poison()) == (self.good, len(self.marked))
        kept = self.rows("SELECT line FROM unparsed_lines WHERE reason = 'poison'")
        assert sorted(row["line"] for row in kept) == sorted(self.marked)
        assert {str(row["reason"]) for row in self.rows("SELECT reason FROM unparsed")} == {
            "poison"
        }
        assert (status.state, status.ready) == (PartState.RUNNING, True)
        return status

    def look_back(self) -> tuple[int, int]:
        """What moves while the work goes on."""
        return self.restarts, len(self.seen)

    def wait_searching(self, sentences: int) -> None:
        """Wait until the stream has said so many things about a search."""
        before = len(self.seen)

        def has_said() -> bool:
            self.look()
            return len(self.seen) >= before + sentences

        wait_until(has_said, DEADLINE_S, "a search")


@pytest.fixture
def rig_of(
    tmp_path: Path, mysql_server: MySqlServer, redis_server: RedisServer
) -> Iterator[Callable[[str, str], Rig]]:
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(tmp_path))

        def make(where: str, depth: str) -> Rig:
            database = mysql_server.new_database()
            sinks = SinksSettings(mysql=database, redis=redis_server.settings)
            given = section(where, depth)
            stream = StreamProcess(tmp_path, given, sinks, broker.mill_bootstrap)
            stack.callback(stream.kill9)
            return Rig(broker, mysql_server, database, stream)

        yield make


def sentences(rig: Rig) -> list[str]:
    """What was said about searches, in order."""
    return [
        problem.text for one in rig.seen for problem in one.problems if problem.code == "poison"
    ]


def greedy(number: int) -> bytes:
    return f"{number} is {MARK} ".encode() + b"x" * 2_000 + b" end"


def test_lines_that_need_too_much_memory_are_set_aside_over_kills(
    rig_of: Callable[[str, str], Rig],
) -> None:
    chance = seeded("stream-quarantine")
    rig = rig_of(GREEDY, SURVIVES)
    rig.stream.start()
    rig.send(2_000, {number: greedy(number) for number in chance.sample(range(2_000), 2)})
    begin = time.monotonic()
    status = rig.wait_counted()
    tell(f"2,000 lines, 2 of them poison: counted in {time.monotonic() - begin:.1f} s")
    assert rig.restarts == 0
    assert all(one.state is PartState.DEGRADED for one in rig.seen)
    assert [one["offset"] for one in details(status)["poison"]] != []
    assert details(status)["poison_total"] == 2
    for one in details(status)["poison"]:
        place = f"{one['file']}: the line at {TOPIC}, partition {one['partition']},"
        place += f" offset {one['offset']} cannot be counted and is set aside: OutOfMemoryError: "
        assert any(text.startswith(place) for text in sentences(rig)), sentences(rig)
    for _ in range(2):
        rig.send(200, {number: greedy(number) for number in chance.sample(range(200), 2)})
        rig.wait_searching(chance.randrange(1, 8))
        rig.stream.kill9()
        rig.stream.start()
    rig.wait_counted()
    assert not (rig.stream.data_dir / "suspects.json").exists()
    assert "x" * 2_000 not in rig.stream.log_text()


def test_a_line_that_ends_java_is_set_aside_after_some_starts(
    rig_of: Callable[[str, str], Rig],
) -> None:
    rig = rig_of(GREEDY, ENDS)
    rig.stream.start()
    rig.send(60, {41: greedy(41)})
    rig.wait_counted()
    # The batch twice, the piece of two lines once, the line at most twice; one by bad luck.
    assert 3 <= rig.restarts <= 6
    assert any(text.startswith("Java has ended while it counted") for text in sentences(rig))
    assert not (rig.stream.data_dir / "suspects.json").exists()


def test_a_line_that_would_never_end_is_set_aside(rig_of: Callable[[str, str], Rig]) -> None:
    rig = rig_of(ENDLESS, SURVIVES)
    patch = f"import stream.halving as h; h.HANG_S = h.SEARCH_HANG_S = {HANG_S}"
    run = "from stream.__main__ import main; raise SystemExit(main())"
    rig.stream.command = [sys.executable, "-c", f"{patch}; {run}"]
    rig.stream.start()
    rig.send(60, {17: b"a" * 100 + MARK.encode()})
    status = rig.wait_counted()
    assert 3 <= rig.restarts <= 6
    (one,) = details(status)["poison"]
    assert one["reason"] == "Java ended or stood still"
    assert "it stood still, and was killed" in rig.stream.log_text()


def details(status: PartStatus) -> dict[str, Any]:
    return dict(status.details)
