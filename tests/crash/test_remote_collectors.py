"""Collectors on other machines, each in its own network namespace, while parts and links fail.

The mill runs three brokers on one machine and is open to the others. Brokers and collectors get
SIGKILL, and links are cut. Every line is in the topic once, and MySQL has its count by machine.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.crash.test_mill_under_load import HEALTHY_S, STALLED_S, has_come
from tests.e2e.joined_machine import Machine
from tests.e2e.mill import SHIPPED, TempMill, temp_mill
from tests.e2e.reading import Reading
from tests.harness.namespaces import Namespaces, can_be_made, ip, own_network
from tests.harness.ports import free_ports
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(3_600)]

TOPIC = "logs.access"
ADDRESS = "10.77.0.1"
"""The address of the mill's machine, which all other machines reach."""
HOSTS = (1, 2, 3)
ROUNDS = 3
CUT_S = 20.0
"""The length of a cut. It is longer than the time limit of a transaction."""
METRIC = "    - {name: lines_by_machine, from: access, key: remote_addr, measure: count}\n"
PASSWORD = "correct-horse-battery"


def config() -> str:
    """Return the shipped file of an open mill, with one metric more and no files of its own."""
    head, _, rest = SHIPPED.read_text().partition("  metrics:")
    first, _, rest = rest.partition("\n")
    network = f"network: {{open: [kafka], listen: 0.0.0.0, names: [{ADDRESS}], login: users}}"
    return f"{network}\n{head}  metrics:{first}\n{METRIC}{rest}"


class Scene:
    """The open mill and the other machines."""

    def __init__(self, mill: TempMill, machines: list[Machine], chance: random.Random) -> None:
        self.reading = Reading(mill)
        self.machines = machines
        self.chance = chance
        self.mill = mill

    def passes(self, seconds: float) -> None:
        wait_until(partial(has_come, time.monotonic() + seconds), 600, "the next fault")

    def is_whole(self) -> None:
        wait_until(
            lambda: all(one["state"] == "healthy" for one in self.reading.parts().values()),
            HEALTHY_S,
            "all parts of the mill healthy",
        )

    def kill_brokers(self) -> None:
        for number in self.chance.sample((1, 2, 3), 3):
            self.is_whole()
            self.passes(self.chance.uniform(0, 3))
            assert self.reading.process(f"broker-{number}").signal(signal.SIGKILL)
        self.is_whole()

    def kill_collectors(self) -> None:
        for machine in self.chance.sample(self.machines, len(self.machines)):
            self.passes(self.chance.uniform(0, 3))
            machine.kill()
            machine.start()

    def health(self) -> dict[str, str]:
        """Return what the monitor says of each collector."""
        return {row["collector"]: row["health"] for row in self.reading.api("collectors")}

    def written(self) -> Counter[str]:
        return Counter({f"10.0.0.{one.number}": one.writer.count for one in self.machines})

    def counted(self) -> Counter[str]:
        rows = self.reading.mysql(
            "SELECT k1, value FROM windows WHERE metric = 'lines_by_machine' AND size_s = 0"
        )
        return Counter({key: int(value) for key, value in rows})

    def judge(self) -> None:
        wait_until(
            lambda: self.counted() == self.written(),
            STALLED_S,
            "every line counted",
            progress=self.counted,
        )
        found: Counter[bytes] = Counter()
        self.reading.records(TOPIC, lambda key, value: found.update((value,)))
        lines = (one.writer.line(n) for one in self.machines for n in range(one.writer.count))
        assert found == Counter(lines)


@contextmanager
def scene(folder: Path, chance: random.Random) -> Iterator[Scene]:
    with own_network(), Namespaces(HOSTS) as spaces, temp_mill(folder / "mill") as mill:
        ip("address", "add", f"{ADDRESS}/32", "dev", "lo")
        net = free_ports(3)
        mill.write_config(config())
        file = mill.home.config_file
        file.write_text(file.read_text().replace("ports: {", f"ports: {{net: {net}, "))
        mill.up()
        password = folder / "password"
        password.write_text(f"{PASSWORD}\n")
        added = mill.run("user", "add", "admin", "--password-file", str(password))
        assert added.code == 0, added.err
        machines = [Machine(spaces, folder, number) for number in HOSTS]
        try:
            for machine in machines:
                machine.joins(mill.run, folder)
                machine.start()
                machine.writer.start()
            yield Scene(mill, machines, chance)
        finally:
            for machine in machines:
                machine.writer.stop()
                machine.kill()


def test_lines_of_other_machines_count_once_while_everything_fails(tmp_path: Path) -> None:
    if not can_be_made():
        pytest.skip("network namespaces need root")
    chance = seeded("remote collectors")
    with scene(tmp_path, chance) as now:
        wait_until(lambda: len(now.counted()) == len(HOSTS), 240, "lines of each machine")
        for _ in range(ROUNDS):
            now.kill_brokers()
            now.kill_collectors()
            with chance.choice(now.machines).cut_off():
                now.passes(CUT_S)
        away = chance.choice(now.machines)
        with away.cut_off():
            wait_until(lambda: now.health()[away.name] == "silent", 240, "the page names it")
        wait_until(lambda: now.health()[away.name] != "silent", 120, "it is back")
        for machine in now.machines:
            machine.writer.stop()
        now.judge()
        total = sum(now.written().values())
    tell(
        f"remote collectors: {total} lines of {len(HOSTS)} machines, lost 0, doubled 0; killed "
        f"{3 * ROUNDS} brokers and {len(HOSTS) * ROUNDS} collectors, cut {ROUNDS + 1} links"
    )
