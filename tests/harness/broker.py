"""A real broker process on separate ports and in a separate folder, for any test.

    with BrokerProcess(tmp_path) as broker:
        Producer({"bootstrap.servers": broker.bootstrap}) ...

`kill9` and `restart` keep ports and data. `log_text()` returns the log of the process. The log is
also shown if the broker does not start.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from broker.config import TlsFiles
from protocol.status import PartStatus, fetch_status
from tests.harness.namespaces import Loopback, Within
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]

CLUSTER_ID = "bWlsbHJhY2UtdGVzdHMtMQ"

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 20.0


LOGIN_SECRET = "a secret of all brokers"


class BrokerProcess:
    """One broker. `settings` are Kafka's broker keys and override the defaults."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        node_id: int = 1,
        environment: Mapping[str, str] | None = None,
        voters: Mapping[int, int] | None = None,
        broker_port: int | None = None,
        within: Within | None = None,
        tls: TlsFiles | None = None,
        needs_login: bool = False,
        joins: bool = False,
    ) -> None:
        """Describe the broker.

        `voters` maps each broker of the cluster to the port of its BROKER listener. `broker_port`
        is the port on which this broker really listens, if the other brokers connect through a
        proxy. `within` is its network namespace, if it does not run on the loopback. `tls` are the
        files for a further listener, NET, with TLS; the BROKER listener then uses TLS, too. With
        `needs_login` clients of NET must log in; the users `shop` and `root` need no ACLs, and NET
        opens when one of them has a password. With `joins` the broker joins the cluster of
        `voters`, which already exists.
        """
        self.folder = folder
        self.node_id = node_id
        self.settings = dict(settings or {})
        self.log_dir = folder / f"broker-{node_id}"
        self.log_file = folder / f"broker-{node_id}.log"
        self.host_port = free_port()
        self.mill_port = free_port()
        self.status_port = free_port()
        self.net_port = free_port() if tls is not None else 0
        self.process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0
        """The seconds that the broker took to become ready at its last start."""
        self._environment = dict(environment or {})
        self._voters = dict(voters or {})
        self._broker_port = broker_port
        self._within = within or Loopback()
        self._tls = tls
        self._needs_login = needs_login
        self._joins = joins
        self._rights = {"super.users": "User:shop;User:root"} if needs_login else {}
        self.code = ROOT
        """The folder of the broker's code. Another version of the broker has another folder."""
        self.host = self._within.host_of(node_id)

    @property
    def bootstrap(self) -> str:
        """The address of the listener HOST, for `bootstrap.servers`."""
        return f"{self.host}:{self.host_port}"

    @property
    def mill_bootstrap(self) -> str:
        """The address of the listener MILL, which the mill's own parts use."""
        return f"{self.host}:{self.mill_port}"

    @property
    def net_bootstrap(self) -> str:
        """The address of the listener NET, which has TLS."""
        return f"{self.host}:{self.net_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker is not running"
        return self.process.pid

    def settings_object(self) -> dict[str, Any]:
        """The object that the process reads from its settings descriptor."""
        ports = {"HOST": self.host_port, "MILL": self.mill_port}
        protocols: dict[str, str] = {}
        if self._tls is not None:
            ports["NET"] = self.net_port
            protocols = {"NET": "SASL_SSL" if self._needs_login else "SSL", "BROKER": "SSL"}
        told = dict(ports)
        if self._voters:
            told["BROKER"] = self._voters[self.node_id]
            ports["BROKER"] = self._broker_port or told["BROKER"]
        return {
            "part": f"broker-{self.node_id}",
            "node_id": self.node_id,
            "cluster_id": CLUSTER_ID,
            "log_dir": str(self.log_dir),
            "listeners": {
                name: {
                    "host": self.host,
                    "port": port,
                    "advertised_host": self.host,
                    "advertised_port": told[name],
                    "security_protocol": protocols.get(name, "PLAINTEXT"),
                }
                for name, port in ports.items()
            },
            "tls": asdict(self._tls) if self._tls is not None else None,
            "login_secret": LOGIN_SECRET,
            "voters": {
                str(node_id): {"host": self._within.host_of(node_id), "port": port}
                for node_id, port in self._voters.items()
            },
            "joins": self._joins,
            "status": {"host": self.host, "port": self.status_port},
            "settings": self._rights | self.settings,
        }

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the process and return without waiting for anything."""
        assert self.process is None, "the broker is running already"
        self.folder.mkdir(parents=True, exist_ok=True)
        reader, writer = os.pipe()
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *self._within.command(self.node_id),
                    *(sys.executable, "-m", "broker", "--settings-fd", str(reader)),
                ],
                cwd=self.code,
                pass_fds=[reader],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self._environment,
            )
        os.close(reader)
        with os.fdopen(writer, "wb") as settings:
            settings.write(json.dumps(self.settings_object()).encode())
        return self.process

    def start(self) -> "BrokerProcess":
        """Start the process and wait until it serves."""
        begin = time.monotonic()
        self.spawn()
        self.wait_until_ready()
        self.started_s = time.monotonic() - begin
        return self

    def wait_until_ready(self) -> None:
        """Wait until the broker serves clients."""
        wait_until(self._is_ready, START_DEADLINE_S, f"broker ready; its log: {self.log_text()}")

    def _is_ready(self) -> bool:
        assert self.process is not None
        code = self.process.poll()
        if code is not None:
            self.process = None
            raise SystemExit(f"broker ended with {code}; its log:\n{self.log_text()}")
        url = f"http://{self.host}:{self.status_port}/healthz"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)

    def stop(self) -> int:
        """Send SIGTERM. Return the exit code."""
        return self._end(signal.SIGTERM)

    def kill9(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        self._end(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal without waiting. Call `wait` to wait."""
        assert self.process is not None, "the broker is not running"
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait until the process ends although this object sent no signal. Return the exit code,
        which is negative if a signal ended the process."""
        assert self.process is not None, "the broker is not running"
        code = self.process.wait(STOP_DEADLINE_S)
        self.process = None
        return code

    def freeze(self) -> None:
        """Send SIGSTOP, and wait until the event loop has stopped. From then on the broker
        answers no request."""
        assert self.process is not None, "the broker is not running"
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        # Checking the main thread is enough, because only that thread sends. A thread inside an
        # fsync stops when the call returns.
        wait_until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", 20, "frozen")

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
            raise AssertionError(f"broker did not stop; its log:\n{self.log_text()}") from None

    def restart(self) -> "BrokerProcess":
        """Stop the broker cleanly if it runs, and start it again with the same ports and data."""
        self.stop()
        return self.start()

    def status(self) -> PartStatus:
        """Return the broker's response to `/status`."""
        return fetch_status(self.host, self.status_port, 5.0)

    def wait_for_connections(self, count: int) -> None:
        """Wait until this number of connections is open, because connections of earlier tests can
        take a moment to close."""
        wait_until(
            lambda: self.status().details["connections"] == count,
            20,
            f"{count} connections are left",
        )

    def metric(self, name: str) -> int:
        """Return one number of `/metrics`, by its name without `millrace_broker_`."""
        url = f"http://{self.host}:{self.status_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        found = next(line for line in lines if line.startswith(f"millrace_broker_{name} "))
        return int(found.rsplit(" ", 1)[1])

    def partition(self, topic: str, partition: int) -> dict[str, Any]:
        """Return the entry of one partition from `partition_list` in the broker's status."""
        found: Any = self.status().details["partition_list"]
        return next(
            dict(one) for one in found if one["topic"] == topic and one["partition"] == partition
        )

    def log_text(self) -> str:
        """Return the log of all processes of this broker so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def __enter__(self) -> "BrokerProcess":
        try:
            return self.start()
        except BaseException:
            # Without this, an interrupt before the `with` body begins would leave the broker
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
            self.process.kill()
            self.process.wait()
            self.process = None
