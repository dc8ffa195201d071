"""A whole mill for a test, with a separate folder and separate ports.

Tests use it like a user: through the commands of `python -m appliance`.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.config.model import BROKER_ID_MAX
from appliance.launch.servers import find_program
from appliance.machine.processes import read_record
from appliance.mill.home import CODE, Home, find_home
from tests.harness.ports import free_ports

SHIPPED = CODE / "configs" / "millrace.yaml"
SHIPPED_COLUMNS = "{level: string, ms: {path: timing.total, type: double}}"
"""The columns of the shipped file's JSON input."""
OF_EACH_BROKER = ("host", "mill", "broker", "broker_status")
PORT_NAMES = (*OF_EACH_BROKER, "collector", "stream", "redis", "mysql")
COMMAND_TIMEOUT_S = 400.0


def shipped_config(*, columns: str, metrics: str) -> str:
    """Return the shipped file with further metrics, and with other columns of its JSON input."""
    text = SHIPPED.read_text()
    visitors = "    - {name: visitors,"
    for old, new in ((SHIPPED_COLUMNS, columns), (visitors, metrics + visitors)):
        assert text.count(old) == 1, f"the shipped file has no {old}"
        text = text.replace(old, new)
    return text


class TempMill:
    """One mill in `folder`, with the shipped configuration on separate ports."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.home: Home = find_home({"MILLRACE_HOME": str(folder)})
        self.ports = {
            name: free_ports(BROKER_ID_MAX if name in OF_EACH_BROKER else 1)
            for name in (*PORT_NAMES, "monitor")
        }
        self.environ = dict(environ or {})
        self.prefix: tuple[str, ...] = ()
        """The prefix with which each command of the mill is run, such as `nsenter`."""
        for kind in ("access", "json", "text"):
            (folder / "watched" / kind).mkdir(parents=True)
        self.write_config(SHIPPED.read_text())

    def write_config(self, text: str) -> None:
        """Write a configuration, with the ports of this mill."""
        text = re.sub(r"listen: 127.0.0.1:\d+", f"listen: 127.0.0.1:{self.ports['monitor']}", text)
        ports = ", ".join(f"{name}: {self.ports[name]}" for name in PORT_NAMES)
        self.home.config_file.parent.mkdir(parents=True, exist_ok=True)
        self.home.config_file.write_text(f"{text}\nports: {{{ports}}}\n")

    def bootstrap(self, *ids: int) -> str:
        """Return the addresses of these brokers, for `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{self.ports['host'] + one - 1}" for one in ids)

    def run(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> "Result":
        """Run one command. Return its output and exit code."""
        with self.begin(*arguments) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        return Result(process.returncode, out, err)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start one command without waiting."""
        environ = {k: v for k, v in os.environ.items() if not k.startswith("MILLRACE_")}
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "appliance", *arguments],
            cwd=CODE,
            env={**environ, "MILLRACE_HOME": str(self.home.folder), **self.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def up(self) -> "Result":
        """Start the mill. If `up` fails, fail the test with the last log lines of all parts."""
        result = self.run("up")
        assert result.code == 0, f"{result.err}\n{self.log_ends()}"
        return result

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the parts by name, as in `status --json`."""
        envelope = json.loads(self.run("status", "--json").out)
        return {row["part"]: row for row in envelope["data"]}

    def show(self, metric: str, *options: str) -> dict[str, str]:
        """Return a metric's values, as in `show --json`."""
        result = self.run("show", metric, "--json", *options)
        assert result.code == 0, result.err
        values: dict[str, str] = json.loads(result.out)["data"]["values"]
        return values

    def drop(self, source: Path, name: str) -> None:
        """Copy a file into `watched/`, as a user would."""
        shutil.copyfile(source, self.home.folder / "watched" / name)

    def log_ends(self, lines: int = 15) -> str:
        """Return the last lines of every log."""
        texts = []
        for path in sorted(self.home.logs.glob("*.log")):
            end = "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
            texts.append(f"== {path.name}\n{end}")
        return "\n".join(texts)

    def end(self) -> None:
        """Stop the mill. Kill every process that `down` leaves running."""
        self.run("down")
        for path in (self.home.pid_file, *self.home.run.glob("*.json")):
            if record := read_record(path):
                record.signal(signal.SIGKILL, group=True)


class Result:
    """The output of a command, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


@contextmanager
def temp_mill(folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[TempMill]:
    """Yield a mill that is stopped at the end of the test."""
    for program in (("redis-server",), ("mariadbd", "mysqld")):
        if find_program(*program) is None:
            pytest.skip(f"{program[0]} is not installed; make test installs it")
    mill = TempMill(folder, environ)
    try:
        yield mill
    finally:
        mill.end()


# Broker, Redis, MySQL and monitor only: no part that needs a JVM or waits for another part.
SERVERS_ONLY = """
cluster: {settings: {num.partitions: 3}}
collector: {inputs: []}
stream: {metrics: []}
monitor: {listen: 127.0.0.1:8090}
"""


def brokers_only(brokers: str) -> str:
    """Return a configuration with these brokers (`cluster.brokers`), Redis and the monitor."""
    text = SERVERS_ONLY.replace("cluster: {", f"cluster: {{brokers: {brokers}, ")
    return text + "sinks: {mysql: null}\n"


def until_it_says(process: subprocess.Popen[str], text: str) -> str:
    """Read what a command says until it has said this."""
    assert process.stderr is not None
    said = ""
    while text not in said:
        line = process.stderr.readline()
        assert line, f"the command ended without saying {text!r}: {said}"
        said += line
    return said
