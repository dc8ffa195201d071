"""Serves a monitor's page: `python -m tests.e2e.page_scene STORY PORT FOLDER [TOKEN [ROOT]]`.

It runs until it is killed. Its clock advances, so the page changes with every tick. ROOT is its
`root_path`. TOKEN permits orders: plans are made for simulated logs and groups, but no order is
executed. With a token there are two more clusters: three brokers of which one is down, and an
unreachable cluster.
"""

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import uvicorn

from monitor.admin.operating import Reader
from monitor.admin.operations import (
    GroupStanding,
    Plan,
    TopicLogs,
    creation,
    deletion,
    election,
    resetting,
)
from monitor.admin.orders import CreateTopic, DeleteRecords, ElectLeaders, Order, ResetOffsets
from monitor.asking.counts import Counts
from monitor.config.settings import ClusterSection, InputSettings, MonitorSection, MonitorSettings
from monitor.http import create_app
from monitor.sampling.clusters import Clusters, clusters_of
from monitor.sampling.sampler import Sampler, Source
from monitor.state.reading import Reading
from monitor.state.snapshot import SourceError
from protocol.client.group_offset_reset import Bounds
from protocol.types import TopicPartition
from tests.unit.monitor import scene

CLUSTERS = tuple(
    ClusterSection(name=name, bootstrap_servers=f"{name}.example:9092")
    for name in ("shop", "warehouse")
)


class Moving:
    """A source that repeats the end of the story, each time a little later."""

    def __init__(self, mill: scene.Mill) -> None:
        self._mill = mill
        self._step = scene.STEPS

    async def read(self, now_ms: int) -> Reading:
        self._step += 1
        return self._mill.reading(self._step)

    async def close(self) -> None:
        return None


class Away:
    """A source for a cluster in which no broker responds."""

    async def read(self, now_ms: int) -> Reading:
        return Reading(now_ms, (), None, (SourceError("brokers", "10.0.0.9:9092: refused"),))

    async def close(self) -> None:
        return None


def other_clusters(settings: MonitorSettings, clock_ms: Callable[[], int]) -> Clusters:
    """Return the two further clusters, with samplers that read from these sources."""
    shop = scene.Mill(scene.BROKER_DOWN, None)
    shop.run()
    sources: dict[str, Source] = {"shop": Moving(shop), "warehouse": Away()}
    return clusters_of(settings, clock_ms, lambda section: sources[section.name])


class PlannedOrders:
    """Makes plans with the monitor's real rules, but for simulated logs and a simulated group."""

    async def look(self, order: Order, readers: Iterable[Reader]) -> Plan:
        match order:
            case DeleteRecords():
                bounds = {
                    number: Bounds(8_000_000, 8_690_000 + number, None) for number in range(3)
                }
                return deletion(order, TopicLogs(bounds), readers)
            case ResetOffsets():
                rows = {
                    TopicPartition("logs.access", number): Bounds(0, 100_000, 90_000 + number)
                    for number in range(3)
                }
                members = ("export-1 at 10.0.7.21",) if order.group_id == scene.SLASHED else ()
                state = "Stable" if members else "Empty"
                return resetting(order, GroupStanding(state, members, rows), "millrace-stream")
            case CreateTopic():
                return creation(order, None)
            case ElectLeaders():
                return election(order, [])
        raise AssertionError("nothing is altered in a scene")

    async def carry_out(self, plan: Plan) -> str:
        return "done"


def main(story: str, port: int, folder: Path, token: str, root: str) -> None:
    """Serve the pages of the story until the process is killed."""
    mill = scene.Mill(getattr(scene, story), folder)
    mill.run()
    settings = MonitorSettings(
        section=MonitorSection(
            listen=f"127.0.0.1:{port}", root_path=root, clusters=CLUSTERS if token else ()
        ),
        token=token or None,
        bootstrap_servers="127.0.0.1:19092",
        data_dir=str(folder),
        parts={},
        inputs=(InputSettings(paths=("watched/access/**",), topic="logs.access"),),
        metrics=scene.METRICS,
    )
    began_s = time.monotonic()

    def clock_ms() -> int:
        return scene.NOW_MS + round((time.monotonic() - began_s) * 1000)

    sampler = Sampler(settings, Moving(mill), clock_ms, mill.recorder, mill.alerts)
    sampler.resume(mill.snapshot, mill.memory, mill.progress)

    def failed(error: BaseException) -> None:
        raise SystemExit(1) from error

    app = create_app(
        settings,
        sampler,
        started_at_ms=scene.BEGIN_MS,
        clock_ms=clock_ms,
        on_failure=failed,
        counts=Counts(scene.ScriptedCounts, clock_ms),
        browser=scene.ScriptedMessages(),
        orders=PlannedOrders(),
        clusters=other_clusters(settings, clock_ms),
    )
    uvicorn.run(app, host="127.0.0.1", port=port, log_config=None)


if __name__ == "__main__":
    token, root = [*sys.argv[4:], "", ""][:2]
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), token, root)
