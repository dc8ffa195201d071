"""The containers `init` and `cli` of three hosts, for unit tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.cli.app import main
from appliance.mill.home import Home, find_home
from tests.unit.appliance.hosted import TEXT

SUPER = "security: {super_users: [admin]}\n"
FILE = f"{TEXT}{SUPER}"
LOOPBACK = {"MILLRACE_PUBLISHED": "loopback"}
HOSTED = {
    **LOOPBACK,
    "MILLRACE_PUBLISHED_KAFKA": "0.0.0.0:9192",
    "MILLRACE_PUBLISHED_BROKER": "0.0.0.0:29092",
}


def environ(broker: int) -> dict[str, str]:
    return {**HOSTED, "MILLRACE_PUBLISHED_HOST": f"host-{broker}"}


def home_at(folder: Path, broker: int) -> Home:
    return find_home({**environ(broker), "MILLRACE_HOME": str(folder)})


class Machine:
    """The command line in the container `init` or `cli` of one host."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, broker: int) -> None:
        self.home, self.broker = home_at(folder, broker), broker
        self._monkeypatch = monkeypatch
        self.home.config_file.parent.mkdir(parents=True)
        self.home.config_file.write_text(FILE)

    def run(self, *words: str, is_init: bool = True) -> int:
        if is_init:
            (self.home.secrets / "ca").mkdir(parents=True, exist_ok=True)
        for name, value in environ(self.broker).items():
            self._monkeypatch.setenv(name, value)
        self._monkeypatch.setenv("MILLRACE_HOME", str(self.home.folder))
        return main(list(words))


def three_machines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Machine]:
    return {one: Machine(folder / f"{one}", monkeypatch, one) for one in (1, 2, 3)}


def join_file(machines: dict[int, Machine], capsys: pytest.CaptureFixture[str]) -> Path:
    """Let the main host print the join file of broker 2, and write it to a file."""
    assert machines[1].run("enrol", "broker", "2", "--out", "-") == 0
    printed = capsys.readouterr()
    assert "printed broker-2.join" in printed.err
    assert "docker compose run --rm -T init join - <broker-2.join" in printed.err
    file = machines[1].home.folder / "broker-2.join"
    file.write_text(printed.out)
    return file
