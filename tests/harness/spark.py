"""A standalone Spark cluster from the PySpark wheel: a master and workers on separate ports.

    with SparkCluster(tmp_path, workers=2) as cluster:
        section = {"master": cluster.url, "spark": cluster.settings, ...}

Every process can be killed and started again. A worker's executors end with it.
"""

import json
import os
import signal
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyspark

from appliance.machine.java import find_java
from tests.harness.ports import free_port
from tests.harness.processes import Server
from tests.harness.wait import wait_until

START_DEADLINE_S = 90.0
EXECUTOR_MEMORY = "512m"


class _Task(NamedTuple):
    """A finished task: its executor, its time, and the records that it read."""

    executor: str
    began_ms: int
    ended_ms: int
    records: int


class EventLog:
    """The tasks in Spark's event log. `settings` switches the log on in `stream.spark`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    @property
    def settings(self) -> dict[str, str]:
        return {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.folder.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }

    def records_read(self) -> Counter[str]:
        """Return the number of records that tasks read, from topics or generated, per executor."""
        found: Counter[str] = Counter()
        for task in self._reading_tasks():
            found[task.executor] += task.records
        return found

    def records_read_beside(self) -> int:
        """Return the number of records read by tasks that ran in parallel with another reading
        task."""
        tasks = list(self._reading_tasks())
        return sum(
            one.records
            for one in tasks
            if any(
                other is not one and other.began_ms < one.ended_ms and one.began_ms < other.ended_ms
                for other in tasks
            )
        )

    def _reading_tasks(self) -> Iterator[_Task]:
        for file in self.folder.iterdir():
            for line in file.read_text().splitlines(keepends=True):
                # Spark can be writing the last line, so that line can be incomplete.
                if line.endswith("\n") and '"SparkListenerTaskEnd"' in line:
                    event = json.loads(line)
                    metrics, info = event.get("Task Metrics") or {}, event["Task Info"]
                    count = metrics.get("Input Metrics", {}).get("Records Read", 0)
                    if count:
                        times = info["Launch Time"], info["Finish Time"]
                        yield _Task(info["Executor ID"], *times, count)


class SparkCluster(Server):
    """A Spark cluster on this machine. `url` is the value for `stream.master`, and `settings` are
    for `stream.spark`."""

    def __init__(self, folder: Path, *, workers: int) -> None:
        self.folder = folder
        self.workers = tuple(range(1, workers + 1))
        self._port = free_port()
        self._page = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    @property
    def settings(self) -> dict[str, str]:
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.executor.cores": "1",
        }

    def start_master(self) -> None:
        """Start the master, and wait until it serves."""
        self._spawn(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", str(self._port)),
            *("--webui-port", str(self._page)),
        )
        wait_until(lambda: self.state() is not None, START_DEADLINE_S, "Spark's master")

    def start_worker(self, number: int) -> None:
        """Start a worker, and wait until the master knows it."""
        before = len(self.alive_workers())
        self._spawn(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"),
            *("--work-dir", str(self.folder / f"worker-{number}"), self.url),
        )
        wait_until(lambda: len(self.alive_workers()) > before, START_DEADLINE_S, f"worker {number}")

    def state(self) -> dict[str, Any]:
        """Return the status of the master. Raises OSError if the master does not respond."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def alive_workers(self) -> list[str]:
        """Return the ids of the workers that the master regards as alive."""
        return [one["id"] for one in self.state()["workers"] if one["state"] == "ALIVE"]

    def executors(self) -> int:
        """Return the number of cores that applications use, over all workers."""
        return sum(one["coresused"] for one in self.state()["workers"] if one["state"] == "ALIVE")

    def kill9(self, name: str) -> None:
        """Kill `master` or `worker-N`."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def log_text(self) -> str:
        """Return the ends of all logs."""
        files = sorted(self.folder.glob("spark-*.log"))
        return "\n".join(f"== {file.name}\n{file.read_text()[-3000:]}" for file in files)

    def _spawn(self, name: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        java = find_java()
        assert java is not None, "no Java: make setup installs one"
        with (self.folder / f"spark-{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *arguments],
                env={
                    **os.environ,
                    "JAVA_HOME": str(java.home),
                    "SPARK_HOME": str(home),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_LOCAL_IP": "127.0.0.1",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start(self) -> Self:
        """Start the master and all workers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start_master()
        for number in self.workers:
            self.start_worker(number)
        return self

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()
