"""A mill on three hosts, five machines that only collect, and a log on the main host, for tests.

Each has its own network namespace. The scene has a fault for each process, host and link, and reads
what the page says about it.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sinks.keys import NULL_TEXT
from tests.e2e.hosted_mill import HOSTS, HostedMill, hosted_mill
from tests.e2e.joined_machine import Log, LogWriter, Machine, Rotation
from tests.e2e.mill import SHIPPED
from tests.e2e.reading import Reading
from tests.harness.chaos import pause
from tests.harness.wait import wait_until

MACHINES = (11, 12, 13, 14, 15)
"""The network namespaces of the machines that only collect."""
MAIN = NULL_TEXT
"""The key in Redis under which the lines of the main host are counted; NULL in MySQL. Its collector
has no trust group, so its records have no name of a collector."""
PARTS = ("collector", "stream", "monitor", "redis", "mysql")
"""The parts of the main host that get SIGKILL, besides its broker."""
LINES_OF_A_FILE = 4_000
METRICS = """
    - {name: lines_by_host, from: access, key: host, measure: count, windows: [all]}
    - {name: numbers_by_host, from: access, key: host, measure: sum, value: bytes, windows: [all]}
"""
PAUSE_S_MAX = 3.0
CUT_S = (10.0, 20.0)
"""The shortest and the longest cut. A cut lasts longer if the page has not named it yet."""
NAMED_S = 180.0
WHOLE_S = 400.0
STALLED_S = 600.0
"""The longest time without progress while there are lines to write or to count."""
LOOK_S = 0.25


def config() -> str:
    """Return the shipped file, with the metrics that count by host."""
    return SHIPPED.read_text().replace("  metrics:", f"  metrics:{METRICS}", 1)


def log_of(number: int) -> Log:
    """Return how the log of a machine is written. The machines differ in the kind of rotation."""
    kinds = (*Rotation,)
    return Log(0, LINES_OF_A_FILE, kinds[number % len(kinds)])


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that fails and comes back. `run` returns when it is back."""

    name: str
    run: Callable[[], None]


class NetworkScene:
    """The mill, the machines and the writers of all logs."""

    def __init__(self, mill: HostedMill, machines: list[Machine], chance: random.Random) -> None:
        self.mill = mill
        self.machines = machines
        self.chance = chance
        self.named_s: dict[str, float] = {}
        """The longest time from a fault until the page named what was away, by fault."""
        self._began = (0.0, 0)
        """The beginning of the current fault, in monotonic seconds and in Unix milliseconds."""
        self._reading = Reading(mill.main)
        main_logs = mill.main.home.folder / "watched" / "access"
        self.writers = {one.name: one.writer for one in machines}
        self.writers[MAIN] = LogWriter(main_logs, 1, log_of(1))

    # What is written and counted, by host.

    def allow(self, limit: int) -> None:
        """Let each host write until its log has had this number of lines."""
        for writer in self.writers.values():
            writer.limit = limit

    def wait_until_written(self) -> None:
        """Wait until each host has written the lines that it may."""
        wait_until(
            lambda: all(one.count == one.limit for one in self.writers.values()),
            STALLED_S,
            "the lines of each host",
            progress=self.written,
            every_s=LOOK_S,
        )

    def written(self) -> dict[str, tuple[int, int]]:
        """Return the number of lines of each host, and the sum of the numbers in them."""
        counts = {name: one.count for name, one in self.writers.items()}
        return {name: (one, one * (one - 1) // 2) for name, one in counts.items()}

    def in_mysql(self) -> dict[str, tuple[int, int]]:
        """Return the number of lines and the sum of their numbers, by host, in MySQL."""
        query = "SELECT k1, value FROM windows WHERE metric = %s AND size_s = 0"
        with self.mill.inside(1):
            lines, sums = (
                {key or MAIN: int(value) for key, value in self._reading.mysql(query, metric)}
                for metric in ("lines_by_host", "numbers_by_host")
            )
        return {name: (lines[name], sums[name]) for name in lines}

    def in_redis(self) -> dict[str, tuple[int, int]]:
        """Return the number of lines and the sum of their numbers, by host, in Redis."""
        with self.mill.inside(1):
            lines, sums = (
                self._reading.redis(f"mill:{metric}:all")
                for metric in ("lines_by_host", "numbers_by_host")
            )
        return {name: (int(lines[name]), int(sums[name])) for name in lines if name[0] != "@"}

    def wait_until_counted(self) -> None:
        """Wait until every line is counted in MySQL and in Redis, and check that none is counted
        twice."""
        self._wait_until_counted("MySQL", self.in_mysql)
        self._wait_until_counted("Redis", self.in_redis)

    def _wait_until_counted(
        self, place: str, counted: Callable[[], dict[str, tuple[int, int]]]
    ) -> None:
        wait_until(
            lambda: counted() == self.written(),
            STALLED_S,
            f"every line counted once in {place}; written: {self.written()}",
            progress=counted,
            every_s=LOOK_S,
        )

    # What the page says.

    def page_says(self) -> list[str]:
        """Return the faults that the page shows now, and its events since the current fault began,
        in lower case."""
        with self.mill.inside(1):
            faults = [row["text"] for row in self._reading.api("health")]
            events = self._reading.api("events?limit=200")
        texts = [*faults, *(row["text"] for row in events if row["at_ms"] >= self._began[1])]
        return [text.lower() for text in texts]

    def health(self) -> dict[str, str]:
        """Return what the page says of each collector of another machine."""
        with self.mill.inside(1):
            return {row["collector"]: row["health"] for row in self._reading.api("collectors")}

    def wait_until_named(self, fault: str, is_named: Callable[[], bool], what: str) -> None:
        """Wait until `is_named`, and note the time since the fault began."""
        wait_until(is_named, NAMED_S, what, every_s=LOOK_S)
        took_s = time.monotonic() - self._began[0]
        self.named_s[fault] = max(took_s, self.named_s.get(fault, 0))

    def wait_until_page_names(self, fault: str, *phrases: str) -> None:
        """Wait until the page says one of these phrases."""
        self.wait_until_named(
            fault,
            lambda: any(one in text for text in self.page_says() for one in phrases),
            f"the page says {' or '.join(phrases)}",
        )

    def wait_until_away_for_host_2(self, fault: str) -> None:
        """Wait until `status` on host 2 says that the broker of the main host is away."""
        self.wait_until_named(
            fault,
            lambda: self.mill.others(2)[1] == "out of service",
            "`status` on host 2 says that broker 1 is out of service",
        )

    def wait_until_whole(self) -> None:
        """Wait until all parts of the main host and the brokers of all hosts work."""
        wait_until(self._is_whole, WHOLE_S, "a whole mill", every_s=LOOK_S)

    def _is_whole(self) -> bool:
        parts = self._reading.parts()
        with self.mill.inside(1):
            brokers = self._reading.api("brokers")
        states = {row["node_id"]: row["state"] for row in brokers}
        healthy = all(row["state"] == "healthy" for row in parts.values())
        assert healthy and states == dict.fromkeys(HOSTS, "up"), (
            {name: row["state"] for name, row in parts.items()},
            states,
        )
        return True

    # Faults.

    def faults(self) -> list[Fault]:
        """Return one fault of each kind for each process, host and link."""
        found = [Fault(f"kill {part}", partial(self.kill_part, part)) for part in PARTS]
        for host in HOSTS:
            found += [
                Fault(f"kill broker-{host}", partial(self.kill_broker, host)),
                Fault(f"kill host {host}", partial(self.kill_host, host)),
                Fault(f"cut host {host}", partial(self.cut_host, host)),
            ]
        for machine in self.machines:
            found += [
                Fault(f"kill {machine.name}", partial(self.kill_collector, machine)),
                Fault(f"cut {machine.name}", partial(self.cut_machine, machine)),
            ]
        return [*found, Fault("machines away", self.all_machines_away)]

    def inject(self, fault: Fault) -> None:
        """Let something fail and come back."""
        self._began = time.monotonic(), int(time.time() * 1000)
        fault.run()

    def _moment(self) -> None:
        pause(self.chance.uniform(0, PAUSE_S_MAX))

    def kill_part(self, part: str) -> None:
        """Send SIGKILL to a part of the main host."""
        record = self._reading.process(part)
        assert record.signal(signal.SIGKILL), f"{part} had ended already"
        if part == "monitor":
            # The page is away itself, so ask the supervisor.
            self.wait_until_named(
                "kill monitor",
                lambda: self._reading.parts()[part]["pid"] != record.pid,
                "the supervisor has started another monitor",
            )
        else:
            self.wait_until_page_names(
                f"kill {part}", f"{part} was restarted", f"{part} does not answer"
            )

    def kill_broker(self, host: int) -> None:
        """Send SIGKILL to the broker of a host. Its supervisor starts it again."""
        if host == 1:
            self.kill_part("broker-1")
            return
        self.mill.kill_broker(host)
        self.wait_until_page_names(
            f"kill broker-{host}",
            f"broker {host} does not answer",
            f"broker {host} is out of service",
        )

    def kill_host(self, host: int) -> None:
        """Send SIGKILL to everything on a host, and start the host again."""
        self.mill.kill_host(host)
        if host == 1:
            self.wait_until_away_for_host_2("kill host 1")
        else:
            self.wait_until_page_names(f"kill host {host}", f"broker {host} does not answer")
        self._moment()
        back = self.mill.run(host, "up")
        assert back.code == 0, f"{back.err}\n{self.mill.ends(host)}"

    def cut_host(self, host: int) -> None:
        """Pull the cable of a host."""
        end_s = time.monotonic() + self.chance.uniform(*CUT_S)
        with self.mill.cut_off(host):
            if host == 1:
                self.wait_until_page_names("cut host 1", "broker 2 does not answer")
                self.wait_until_page_names("cut host 1", "broker 3 does not answer")
                self.wait_until_away_for_host_2("cut host 1 (status on host 2)")
            else:
                self.wait_until_page_names(f"cut host {host}", f"broker {host} does not answer")
            pause(max(0.0, end_s - time.monotonic()))

    def kill_collector(self, machine: Machine) -> None:
        """Send SIGKILL to the collector of a machine, and start it again."""
        machine.kill()
        self._moment()
        machine.start()

    def cut_machine(self, machine: Machine) -> None:
        """Pull the cable of a machine."""
        with machine.cut_off():
            pause(self.chance.uniform(*CUT_S))

    def all_machines_away(self) -> None:
        """Kill the collectors of some machines and cut off the others, until the page names each of
        them."""
        names = {one.name for one in self.machines}
        with ExitStack() as stack:
            for machine in self.machines:
                if self.chance.random() < 0.5:
                    machine.kill()
                    stack.callback(machine.start)
                else:
                    stack.enter_context(machine.cut_off())
                self._moment()
            self.wait_until_named(
                "machines away",
                lambda: {name for name, one in self.health().items() if one == "silent"} == names,
                "the page names each machine that is silent",
            )
        wait_until(
            lambda: "silent" not in self.health().values(),
            NAMED_S,
            "no machine is silent",
            every_s=LOOK_S,
        )


@contextmanager
def network_scene(folder: Path, chance: random.Random) -> Iterator[NetworkScene]:
    """Yield a scene whose hosts and machines run. No line is written yet."""
    # The mill counts millions of lines here, so let the JVM use its optimising compiler, which
    # tests/conftest.py disables.
    environ = {"JDK_JAVA_OPTIONS": ""}
    with hosted_mill(folder, config(), machines=MACHINES, environ=environ) as mill:
        for host in HOSTS[1:]:
            mill.joins(host, folder)
        mill.up()
        machines = [Machine(mill.spaces, folder, one, log_of(one)) for one in MACHINES]
        scene = NetworkScene(mill, machines, chance)
        try:
            for machine in machines:
                machine.host.prefix = mill.prefix
                machine.joins(partial(mill.run, 1), folder)
                machine.start()
            yield scene
        finally:
            for writer in scene.writers.values():
                writer.stop()
            for machine in machines:
                machine.kill()
