"""A real stream process with separate settings, port and folder.

    with StreamProcess(tmp_path, section, sinks, broker.mill_bootstrap) as stream: ...

`kill9` and `start` may alternate and keep the data folder. `log_text()` returns the log.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from protocol.status import PartStatus, fetch_status
from sinks.config import SinksSettings
from stream.spark.jars import jar_paths, missing_jars, pinned_jars
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]

START_DEADLINE_S = 180.0
STOP_DEADLINE_S = 60.0


JARS = Path(os.environ.get("MILLRACE_JARS", ROOT / ".cache" / "jars"))


def connector_jars() -> tuple[Path, ...]:
    """Return the jars of Spark's Kafka connector, which `make setup` has downloaded. Skip the test
    if one is missing."""
    if missing_jars(JARS, pinned_jars()):
        pytest.skip(f"Spark's Kafka connector is not in {JARS}: make setup brings it there")
    return jar_paths(JARS)


class StreamProcess:
    """One stream process: a Spark driver in Python with its JVM."""

    def __init__(
        self,
        folder: Path,
        section: dict[str, Any],
        sinks: SinksSettings,
        bootstrap_servers: str,
        name: str = "stream",
    ) -> None:
        self.folder = folder
        self.section = section
        self.sinks = sinks
        self.bootstrap_servers = bootstrap_servers
        self.data_dir = folder / name
        self.log_file = folder / f"{name}.log"
        self.status_port = free_port()
        self.command = [sys.executable, "-m", "stream"]
        self.class_data_archive: Path | None = None
        self.wish_file = folder / f"{name}.wish.json"
        self.process: subprocess.Popen[bytes] | None = None
        self._jars = connector_jars()

    def settings_object(self) -> dict[str, Any]:
        """The object that the process reads from its settings descriptor."""
        show = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
        return {
            **self._wish(),
            "part": "stream",
            "sinks": self.sinks.model_dump(mode="json"),
            "bootstrap_servers": self.bootstrap_servers,
            "data_dir": str(self.data_dir),
            "jars": [str(path) for path in self._jars],
            "class_data_archive": str(self.class_data_archive) if self.class_data_archive else None,
            "status": {"host": "127.0.0.1", "port": self.status_port},
            "reload": {
                "file": str(self.wish_file),
                "command": [sys.executable, "-c", show, str(self.wish_file)],
            },
        }

    def _wish(self) -> dict[str, Any]:
        topics = [given["topic"] for given in self.section["from"].values()]
        return {
            "section": self.section,
            "topics": [{"name": topic, "partitions": 3, "replication": 1} for topic in topics],
        }

    def change(self, section: dict[str, Any]) -> None:
        """Replace the section for the next start, and in the file that the running process
        reloads."""
        self.section = section
        draft = self.wish_file.with_suffix(".tmp")
        draft.write_text(json.dumps(self._wish()))
        draft.replace(self.wish_file)

    def spawn(
        self, *arguments: str, stdin: int = subprocess.DEVNULL, stdout: int | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start the process and return without waiting for anything."""
        self.folder.mkdir(parents=True, exist_ok=True)
        reader, writer = os.pipe()
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [*self.command, "--settings-fd", str(reader), *arguments],
                cwd=ROOT,
                pass_fds=[reader],
                stdin=stdin,
                stdout=log if stdout is None else stdout,
                stderr=log,
            )
        os.close(reader)
        with os.fdopen(writer, "wb") as settings:
            settings.write(json.dumps(self.settings_object()).encode())
        return process

    def start(self) -> "StreamProcess":
        """Start the stream and wait until it is ready."""
        self.spawn_run()
        self.wait_ready()
        return self

    def spawn_run(self) -> None:
        """Start the stream without waiting until it is ready."""
        assert self.process is None, "the stream is running already"
        self.process = self.spawn()

    def wait_ready(self) -> None:
        """Wait until the stream reports itself ready."""
        wait_until(lambda: self._alive() and self.status().ready, START_DEADLINE_S, "stream ready")

    def _alive(self) -> bool:
        assert self.process is not None
        code = self.process.poll()
        if code is not None:
            self.process = None
            raise SystemExit(f"stream ended with {code}; its log:\n{self.log_text()}")
        return True

    def status(self) -> PartStatus:
        """Return the answer of `/status`."""
        return fetch_status("127.0.0.1", self.status_port, 5.0)

    def details(self) -> dict[str, Any]:
        """Return the status's details."""
        return dict(self.status().details)

    def stop(self) -> int:
        """Send SIGTERM. Return the exit code."""
        return self._end(signal.SIGTERM)

    def kill9(self) -> None:
        """Send SIGKILL to the driver and wait until it is gone. Its JVM then ends automatically."""
        self._end(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the driver, not to its JVM."""
        assert self.process is not None, "the stream is not running"
        self.process.send_signal(number)

    def wait_exit(self, deadline_s: float) -> int:
        """Wait until the process ends although this object sent no signal. Return its exit code."""
        assert self.process is not None, "the stream is not running"
        process, self.process = self.process, None
        return process.wait(deadline_s)

    def _end(self, number: signal.Signals) -> int:
        if self.process is None:
            return 0
        process, self.process = self.process, None
        process.send_signal(number)
        try:
            return process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"stream did not stop; its log:\n{self.log_text()}") from None

    def log_text(self) -> str:
        """Return the logs of all processes and JVMs of this stream so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def __enter__(self) -> "StreamProcess":
        try:
            return self.start()
        except BaseException:
            # Without this, an interrupt before the `with` body begins would leave the stream
            # running.
            self.kill9()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None
