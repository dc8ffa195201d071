"""A real broker process on separate ports and in a separate folder, for any test.

    with BrokerProcess(tmp_path) as broker:
        Producer({"bootstrap.servers": broker.bootstrap}) ...

`kill9` and `restart` keep ports and data. `log_text()` returns the log of the process. The log is
also shown if the broker does not start.
"""

import signal
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from broker.config import TlsFiles
from tests.harness.namespaces import Loopback, Within
from tests.harness.ports import free_port
from tests.harness.processes import PartProcess
from tests.harness.wait import wait_until

CLUSTER_ID = "bWlsbHJhY2UtdGVzdHMtMQ"

LOGIN_SECRET = "a secret of all brokers"


class BrokerProcess(PartProcess):
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
        link_tls: TlsFiles | None = None,
        needs_login: bool = False,
        joins: bool = False,
    ) -> None:
        """Describe the broker.

        `voters` maps each broker of the cluster to the port of its BROKER listener. `broker_port`
        is the port on which this broker really listens, if the other brokers connect through a
        proxy. `within` is its network namespace, if it does not run on the loopback. `tls` are the
        files for a further listener, NET, with TLS. `link_tls` are those for the links between
        brokers; without them links use `tls`, if it is given. With
        `needs_login` clients of NET must log in; the users `shop` and `root` need no ACLs, and NET
        opens when one of them has a password. With `joins` the broker joins the cluster of
        `voters`, which already exists.
        """
        super().__init__("broker", folder / f"broker-{node_id}.log")
        self.folder = folder
        self.node_id = node_id
        self.settings = dict(settings or {})
        self.log_dir = folder / f"broker-{node_id}"
        self.host_port = free_port()
        self.mill_port = free_port()
        self.net_port = free_port() if tls is not None else 0
        self.environment = dict(environment or {})
        self._voters = dict(voters or {})
        self._broker_port = broker_port
        self._within = within or Loopback()
        self.tls = tls
        self.link_tls = link_tls or (tls if voters else None)
        self._needs_login = needs_login
        self._joins = joins
        self._rights = {"super.users": "User:shop;User:root"} if needs_login else {}
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

    def settings_object(self) -> dict[str, Any]:
        ports = {"HOST": self.host_port, "MILL": self.mill_port}
        protocols: dict[str, str] = {}
        if self.tls is not None:
            ports["NET"] = self.net_port
            protocols["NET"] = "SASL_SSL" if self._needs_login else "SSL"
        if self.link_tls is not None:
            protocols["BROKER"] = "SSL"
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
            "tls": asdict(self.tls) if self.tls is not None else None,
            "link_tls": asdict(self.link_tls) if self.link_tls is not None else None,
            "login_secret": LOGIN_SECRET,
            "voters": {
                str(node_id): {"host": self._within.host_of(node_id), "port": port}
                for node_id, port in self._voters.items()
            },
            "joins": self._joins,
            "status": {"host": self.host, "port": self.status_port},
            "settings": self._rights | self.settings,
        }

    def launcher(self) -> Sequence[str]:
        return self._within.command(self.node_id)

    def freeze(self) -> None:
        """Send SIGSTOP, and wait until the event loop has stopped. From then on the broker
        answers no request."""
        self.send(signal.SIGSTOP)
        stat = Path(f"/proc/{self.pid}/stat")
        # Checking the main thread is enough, because only that thread sends. A thread inside an
        # fsync stops when the call returns.
        wait_until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", 20, "frozen")

    def restart(self) -> "BrokerProcess":
        """Stop the broker cleanly if it runs, and start it again with the same ports and data."""
        self.stop()
        return self.start()

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
