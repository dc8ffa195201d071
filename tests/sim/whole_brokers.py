"""Whole brokers of one cluster in one process: simulated disks, network and time, one seed.

A simulated broker does the same as `real/process`: it recovers its disk, starts and serves, until
it is killed or its host loses power.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from broker.config import BROKER_LISTENER
from broker.node.broker import Broker
from broker.real.process import HAND_OVER_MS_MAX, STOP_MS_MAX
from broker.storage.errors import DiskError
from tests.sim.clock import SkewedClock
from tests.sim.disk import SimDisk
from tests.sim.network import Mix, Network
from tests.sim.world import SimWorld
from tests.unit.storage.kit import broker_config

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
BETWEEN_PORT = 29092
HOST_PORT = 9092
JOB_MS = (0, 12)
"""The time of a sync and similar jobs."""


def address_at(host: str, port: int) -> dict[str, Any]:
    return {"host": host, "port": port, "advertised_host": host, "advertised_port": port}


class WholeBroker:
    """One node. Its disk outlives its processes."""

    def __init__(
        self,
        network: Network,
        node_id: int,
        ids: tuple[int, ...],
        settings: Mapping[str, object],
    ) -> None:
        self.node_id = node_id
        self.host = f"n{node_id}"
        self.disk = SimDisk()
        self.broker: Broker | None = None
        self.is_ready = False
        self.joins = False
        """True for a broker that joins an existing cluster."""
        self.is_stopping = self.is_frozen = False
        self.skew_ms = 0
        """How far its wall clock is ahead of the others'. A change takes effect at the next
        start."""
        self.configure(ids)
        self._network = network
        self._settings = settings

    def configure(self, ids: tuple[int, ...]) -> None:
        """Set the voters that the configuration names. It takes effect at the next start."""
        self.configured = {
            str(one): {"host": f"n{one}", "port": BETWEEN_PORT} for one in ids if len(ids) > 1
        }

    def start(self) -> None:
        """Start a new process with the data on the node's disk."""
        world = self._network.world(self.host)
        world.job_ms = JOB_MS
        if self.skew_ms:
            world.clock = SkewedClock(world.clock, self.skew_ms)
        config = broker_config(
            self._settings,
            part=f"broker-{self.node_id}",
            node_id=self.node_id,
            cluster_id=CLUSTER_ID,
            listeners={
                BROKER_LISTENER: address_at(self.host, BETWEEN_PORT),
                "HOST": address_at(self.host, HOST_PORT),
            },
            voters=self.configured,
            joins=self.joins,
        )
        self.is_ready = False
        broker = self.broker = Broker(config, world, self.disk)
        try:
            broker.start(broker.recover(), self._ready)
        except DiskError as error:
            assert error.is_full or error.is_short
            self.kill()

    def _ready(self) -> None:
        self.is_ready = True

    @property
    def metadata(self) -> Any:
        """Return the broker's metadata, or None if the broker has not joined a cluster yet."""
        return None if self.broker is None else self.broker.joined

    def kill(self) -> None:
        """Kill the process. Written data survives in the page cache."""
        self.ended()

    def stop(self) -> None:
        """Send SIGTERM. The broker hands its roles over, answers pending requests, and ends. A
        fault can kill it before that."""
        assert self.broker is not None
        self.is_stopping = True
        BrokerStop(self, self.broker, self._network.world_of(self.host)).begin()

    def ended(self) -> None:
        """Note that the process has ended. Its kernel closes its links."""
        self._network.kill(self.host)
        self.disk.locked.clear()
        self.broker = None
        self.is_stopping = self.is_frozen = False

    def freeze(self) -> None:
        """Freeze the process, as SIGSTOP does."""
        self.is_frozen = True
        self._network.freeze(self.host)

    def thaw(self) -> None:
        """Let the process continue, as SIGCONT does."""
        self.is_frozen = False
        self._network.thaw(self.host)

    def cut_power(self, chance: Random) -> None:
        """Cut the power of the machine. Unsynced data is lost."""
        self._network.cut_power(self.host)
        self.disk.crash(chance)
        self.broker = None
        self.is_stopping = self.is_frozen = False


class BrokerStop:
    """The steps of a clean stop, the same as in `real/process`."""

    def __init__(self, node: WholeBroker, broker: Broker, world: SimWorld) -> None:
        self._node = node
        self._broker = broker
        self._world = world
        self._is_handed_over = False
        self._quiet_by_ms = 0

    def begin(self) -> None:
        self._world.later(HAND_OVER_MS_MAX, self._handed_over)
        self._broker.hand_over(self._handed_over)

    def _handed_over(self) -> None:
        if not self._is_handed_over:
            self._is_handed_over = True
            self._broker.stop_serving()
            self._quiet_by_ms = self._world.clock.monotonic_ms() + STOP_MS_MAX
            self._end_when_quiet()

    def _end_when_quiet(self) -> None:
        if not self._broker.is_quiet and self._world.clock.monotonic_ms() < self._quiet_by_ms:
            self._world.later(10, self._end_when_quiet)
            return
        try:
            self._broker.close()
        except DiskError as error:
            assert error.is_full or error.is_short
        self._node.ended()


class WholeCluster:
    """A cluster of brokers on one network. None of them runs at first."""

    def __init__(
        self, seed: str, size: int = 3, settings: Mapping[str, object] | None = None
    ) -> None:
        self.chance = Random(seed)
        self.network = Network(seed, Mix(late=0.02))
        ids = tuple(range(1, size + 1))
        self.nodes = [WholeBroker(self.network, one, ids, settings or {}) for one in ids]

    @property
    def running(self) -> list[WholeBroker]:
        return [node for node in self.nodes if node.broker is not None]

    def run_for(self, duration_ms: int) -> None:
        self.network.timeline.run_for(duration_ms)

    def run_until(self, condition: Any, limit_ms: int, what: str) -> None:
        """Let time pass until the condition holds."""
        for _ in range(limit_ms // 10):
            if condition():
                return
            self.run_for(10)
        raise AssertionError(f"not after {limit_ms} ms: {what}")

    def active(self) -> WholeBroker | None:
        """Return the active controller's node, or None."""
        return next(
            (
                node
                for node in self.running
                if node.metadata is not None and node.metadata.controller.is_active
            ),
            None,
        )

    def voters(self) -> list[tuple[int, ...]]:
        """Return for each running broker the voter ids that it knows. The tuple is empty if the
        broker has not joined a cluster."""
        return [
            () if node.metadata is None else tuple(node.metadata.quorum.voters)
            for node in self.running
        ]
