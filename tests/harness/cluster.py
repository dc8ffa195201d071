"""Three real brokers of one cluster, each a process with a separate folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority
from tests.harness.links import Links
from tests.harness.namespaces import Namespaces
from tests.harness.ports import free_port
from tests.harness.processes import Server
from tests.harness.wait import wait_until

DEADLINE_S = 30.0


class ClusterProcesses(Server):
    """The brokers, started together."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        size: int = 3,
        *,
        folders: Mapping[int, Path] | None = None,
        with_links: bool = False,
        namespaces: Namespaces | None = None,
        authority: TestAuthority | None = None,
        needs_login: bool = False,
    ) -> None:
        """Describe the cluster.

        `folders` names the folders of brokers that have a separate disk. With `with_links` the
        connections between the brokers go through `links`. `namespaces` are network namespaces, one
        per broker, which replace the links. With `authority` each broker has one more listener with
        TLS, and the brokers use TLS among themselves. With `needs_login` clients of that listener
        must log in.
        """
        ports = {node_id: free_port() for node_id in range(1, size + 1)}
        proxies = Links(ports) if with_links else None
        self.links: Links | Namespaces | None = proxies or namespaces
        self._proxies = proxies
        told = ports if proxies is None else proxies.ports
        places = dict(folders or {})
        self._folder = folder
        self._settings = settings
        self._ports = ports
        self.brokers = {
            node_id: BrokerProcess(
                places.get(node_id, folder),
                settings,
                node_id,
                voters=told,
                broker_port=port,
                within=namespaces,
                tls=None if authority is None else authority.write(f"broker-{node_id}"),
                needs_login=needs_login,
            )
            for node_id, port in ports.items()
        }

    @property
    def running(self) -> list[BrokerProcess]:
        return [one for one in self.brokers.values() if one.process is not None]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(one.bootstrap for one in self.brokers.values())

    @property
    def mill_bootstrap(self) -> str:
        """The addresses of all listeners MILL, which the mill's own parts use."""
        return ",".join(one.mill_bootstrap for one in self.brokers.values())

    @property
    def net_bootstrap(self) -> str:
        """The addresses of all listeners NET, which have TLS."""
        return ",".join(one.net_bootstrap for one in self.brokers.values())

    @property
    def node_ids(self) -> list[int]:
        """The ids of all brokers, running or not."""
        return list(self.brokers)

    @property
    def size(self) -> int:
        """The number of brokers: the most replicas that a partition can have."""
        return len(self.brokers)

    def log_text(self) -> str:
        """Return the logs of all brokers, one after the other."""
        return "\n".join(one.log_text() for one in self.brokers.values())

    def pids(self) -> list[int]:
        """The process ids of the running brokers."""
        return [one.pid for one in self.running]

    def spawn(self) -> None:
        """Start every stopped broker without waiting."""
        for one in self.brokers.values():
            if one.process is None:
                one.spawn()

    def join(self, node_id: int) -> BrokerProcess:
        """Start one more broker, which joins the cluster. Wait until it is in service."""
        port = free_port()
        newcomer = BrokerProcess(
            self._folder,
            self._settings,
            node_id,
            voters={**self._ports, node_id: port},
            broker_port=port,
            joins=True,
        )
        self.brokers[node_id] = newcomer
        return newcomer.start()

    def start(self) -> Self:
        """Start every stopped broker, and wait until all are in service."""
        self.spawn()
        self.wait_until_ready()
        return self

    def stop(self, node_id: int | None = None) -> None:
        """Send SIGTERM to one broker, or to all one after the other. Wait for each."""
        for one in self._chosen(node_id):
            one.stop()

    def kill9(self, node_id: int | None = None) -> None:
        """Send SIGKILL to one broker or to all."""
        for one in self._chosen(node_id):
            one.kill9()

    def _chosen(self, node_id: int | None) -> list[BrokerProcess]:
        return list(self.brokers.values()) if node_id is None else [self.brokers[node_id]]

    def wait_until_ready(self) -> None:
        """Wait until all running brokers are in service."""
        for one in self.running:
            one.wait_until_ready()

    def details(self) -> list[Mapping[str, Any]]:
        """Return the status of each running broker."""
        return [one.status().details for one in self.running]

    def controller_id(self) -> int | None:
        """Return the controller's id if all running brokers name the same one and it runs."""
        named = {one.get("controller_id") for one in self.details()}
        running = {one.node_id for one in self.running}
        return named.pop() if len(named) == 1 and named <= running else None

    def wait_for_controller(self) -> BrokerProcess:
        """Wait until all running brokers follow the same controller."""
        controller_id = wait_until(self.controller_id, DEADLINE_S, "a controller")
        assert controller_id is not None
        return self.brokers[controller_id]

    def __enter__(self) -> Self:
        if self._proxies is not None:
            self._proxies.__enter__()
        return super().__enter__()

    def close(self) -> None:
        self.kill9()
        if self._proxies is not None:
            self._proxies.close()
