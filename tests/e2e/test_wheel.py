"""The wheel works in an empty virtual environment: the command, a broker and the collector.

The test does what a user without a clone does: install the wheel, ask for help, start a broker,
read files into it, and read the records back.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.mill.home import CODE
from protocol.status import VERSION
from tests.harness.ports import free_ports
from tests.harness.wait import wait_until
from tests.house import tree

pytestmark = pytest.mark.live

INSTALL_S = 280.0
COMMAND_S = 60.0
BROKER_UP_S = 30.0

CONFIG = """\
cluster: {{brokers: 1}}
topics: [{{name: logs.text, settings: {{}}}}]
collector:
  inputs: [{{paths: ["watched/text/**"], topic: logs.text}}]
stream: {{metrics: []}}
ports: {{host: {0}, mill: {1}, broker: {2}, broker_status: {3}, collector: {4}}}
"""


class InstalledMillrace:
    """Millrace installed from the wheel, with a separate virtual environment and home folder. It
    cannot see the clone."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.command = environment / "bin" / "millrace"
        self.site = next((environment / "lib").glob("python*/site-packages"))
        self.folder = folder
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        self.environ = {**kept, "HOME": str(folder), "MILLRACE_HOME": str(folder)}
        ports = free_ports(5)
        self.bootstrap = f"127.0.0.1:{ports}"
        self.config = CONFIG.format(*range(ports, ports + 5))

    def run(self, *arguments: str, data: str = "") -> "subprocess.CompletedProcess[str]":
        """Run one command from a folder without any of our files."""
        return subprocess.run(
            [self.command, *arguments],
            cwd=self.folder,
            env=self.environ,
            input=data,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )

    @contextmanager
    def broker(self) -> Iterator[None]:
        """Run a broker until the `with` block ends."""
        log = self.folder / "broker.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.command, "run", "broker-1"],
                cwd=self.folder,
                env=self.environ,
                stdout=output,
                stderr=output,
            )
        try:
            up = ("topic", "list", "--bootstrap-server", self.bootstrap)
            wait_until(
                lambda: self.run(*up).returncode == 0 or process.poll() is not None,
                BROKER_UP_S,
                "the broker answers",
            )
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.terminate()
            process.wait(COMMAND_S)


def pip(environment: Path, *arguments: str) -> None:
    """Run pip in a virtual environment. Fail if pip fails."""
    done = subprocess.run(
        [environment / "bin" / "python", "-m", "pip", "--quiet", *arguments],
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
    )
    assert done.returncode == 0, done.stderr[-3_000:]


@pytest.fixture(scope="module")
def installed() -> Iterator[InstalledMillrace]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "source"
        for path in tree.files():
            if not path.startswith("tests/"):
                (source / path).parent.mkdir(parents=True, exist_ok=True)
                (source / path).write_bytes((CODE / path).read_bytes())
        environment = folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=INSTALL_S)
        pip(environment, "wheel", "--no-deps", "--wheel-dir", str(folder / "dist"), str(source))
        (wheel,) = (folder / "dist").glob("millrace-*.whl")
        pip(environment, "install", f"{wheel}[collector]")
        home = folder / "home"
        home.mkdir()
        yield InstalledMillrace(environment, home)


def test_nothing_but_millrace_lands_in_site_packages(installed: InstalledMillrace) -> None:
    names = {path.name for path in installed.site.iterdir()}
    assert "millrace" in names
    assert list((installed.site / "millrace").rglob("README.md")) == []
    assert names.isdisjoint({"appliance", "broker", "collector", "protocol", "sinks", "stream"})
    assert (installed.site / "millrace" / "py.typed").exists()


def test_the_command_answers_and_writes_the_shipped_file_once(installed: InstalledMillrace) -> None:
    assert installed.run("--version").stdout.startswith(VERSION)
    assert "a file that can be read" in installed.run("config", "check").stderr
    made = installed.run("init")
    assert made.returncode == 0, made.stderr
    written = installed.folder / "configs" / "millrace.yaml"
    assert written.read_text() == (CODE / "configs" / "millrace.yaml").read_text()
    checked = installed.run("config", "check")
    assert checked.returncode == 0, checked.stderr
    assert "expressions were not checked: the stream needs the Python package" in checked.stderr
    assert "pip install 'millrace[stream]'" in checked.stderr
    written.write_text("cluster: {brokers: 1}\n")
    assert installed.run("init").returncode == 0
    assert written.read_text() == "cluster: {brokers: 1}\n"


def test_a_part_whose_packages_are_missing_says_how_to_install_them(
    installed: InstalledMillrace,
) -> None:
    assert installed.run("init").returncode == 0
    started = installed.run("run", "monitor")
    assert started.returncode == 1
    assert "pip install 'millrace[monitor]'" in started.stderr


def test_a_broker_takes_records_and_the_collector_reads_files_once(
    installed: InstalledMillrace,
) -> None:
    (installed.folder / "configs").mkdir(exist_ok=True)
    (installed.folder / "configs" / "millrace.yaml").write_text(installed.config)
    assert installed.run("init").returncode == 0
    watched = installed.folder / "watched" / "text"
    watched.mkdir(parents=True, exist_ok=True)
    (watched / "a.log").write_text("one\ntwo\n")
    at = ("--bootstrap-server", installed.bootstrap)
    with installed.broker():
        made = installed.run("topic", "create", "greetings", *at)
        assert made.returncode == 0, made.stderr
        sent = installed.run("produce", "greetings", *at, data="hello\nworld\n")
        assert sent.returncode == 0, sent.stderr
        read = installed.run("consume", "greetings", "-o", "start", "-n", "2", *at)
        assert sorted(read.stdout.split()) == ["hello", "world"], read.stderr
        for _ in range(2):
            once = installed.run("collector", "once")
            assert once.returncode == 0, once.stderr
        listed = installed.run("topic", "describe", "logs.text", "--json", *at)
        assert json.loads(listed.stdout)["data"], listed.stderr
        lines = installed.run("consume", "logs.text", "-o", "start", "-e", *at)
        assert sorted(lines.stdout.split()) == ["one", "two"], lines.stderr
