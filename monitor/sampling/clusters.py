"""The other clusters that the page shows. Each has its own sampler and never waits for another.

The monitor only reads these clusters. It keeps no history of them, opens no alerts and carries out
no orders.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from monitor.asking.poller import Poller
from monitor.config.settings import ClusterSection, MonitorSettings
from monitor.sampling.sampler import Sampler, Source
from monitor.views.clusters import ClusterView, cluster_view
from protocol.security.cluster_security import ClusterEntry

NO_GROUP = ""
"""The value for "no stream's group". A group of that name in another cluster is not ours."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A further cluster that the monitor shows, and its sampler."""

    name: str
    bootstrap_servers: str
    sampler: Sampler

    @property
    def view(self) -> ClusterView:
        """Return the cluster as the page shows it."""
        return cluster_view(self.name, self.bootstrap_servers, self.sampler.snapshot)


class Clusters:
    """All other clusters, in the order of the configuration file."""

    def __init__(self, watched: Sequence[Watched] = ()) -> None:
        self._watched = tuple(watched)

    def __len__(self) -> int:
        return len(self._watched)

    def views(self) -> list[ClusterView]:
        """Return the view of each cluster."""
        return [one.view for one in self._watched]

    def view(self, name: str) -> ClusterView | None:
        """Return the view of one cluster; None if the name is unknown."""
        return next((one.view for one in self._watched if one.name == name), None)

    def sampler(self, name: str) -> Sampler | None:
        """Return the sampler of one cluster; None if the name is unknown."""
        return next((one.sampler for one in self._watched if one.name == name), None)

    def start(self) -> "list[asyncio.Task[None]]":
        """Start each sampler in a separate task, which runs until it is cancelled."""
        return [asyncio.create_task(one.sampler.run()) for one in self._watched]


def clusters_of(
    settings: MonitorSettings,
    clock_ms: Callable[[], int],
    source_of: Callable[[ClusterSection], Source] | None = None,
) -> Clusters:
    """Return the clusters in the settings.

    `source_of` makes the source of each cluster. If it is None, a `Poller` polls the cluster.
    """

    def asked(section: ClusterSection) -> Source:
        return Poller(ClusterEntry(section.bootstrap_servers), {})

    return Clusters(
        [
            Watched(
                section.name,
                section.bootstrap_servers,
                Sampler(
                    settings.model_copy(
                        update={
                            "bootstrap_servers": section.bootstrap_servers,
                            "stream_group": NO_GROUP,
                        }
                    ),
                    (source_of or asked)(section),
                    clock_ms,
                ),
            )
            for section in settings.section.clusters
        ]
    )
