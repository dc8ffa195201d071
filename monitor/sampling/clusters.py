"""Clusters beside the mill's own: each has a sampler of its own, so that none waits for another.

They are looked at and nothing more: no history, no alerts, no orders.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from monitor.asking.poller import Poller
from monitor.config.settings import ClusterSection, MonitorSettings
from monitor.sampling.sampler import Sampler, Source
from monitor.views.clusters import ClusterView, cluster_view

NO_GROUP = ""
"""In place of the stream's group: a group of that name elsewhere is somebody else's."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One cluster and who looks at it."""

    name: str
    bootstrap_servers: str
    sampler: Sampler

    @property
    def view(self) -> ClusterView:
        """How it stands."""
        return cluster_view(self.name, self.bootstrap_servers, self.sampler.snapshot)


class Clusters:
    """All of them, in the order of the file."""

    def __init__(self, watched: Sequence[Watched] = ()) -> None:
        self._watched = tuple(watched)

    def __len__(self) -> int:
        return len(self._watched)

    def views(self) -> list[ClusterView]:
        """How each stands."""
        return [one.view for one in self._watched]

    def view(self, name: str) -> ClusterView | None:
        """How one stands; None if there is none of that name."""
        return next((one.view for one in self._watched if one.name == name), None)

    def sampler(self, name: str) -> Sampler | None:
        """Who looks at one; None if there is none of that name."""
        return next((one.sampler for one in self._watched if one.name == name), None)

    def start(self) -> "list[asyncio.Task[None]]":
        """Begin to look, each in a task of its own, which goes on until it is cancelled."""
        return [asyncio.create_task(one.sampler.run()) for one in self._watched]


def clusters_of(
    settings: MonitorSettings,
    clock_ms: Callable[[], int],
    source_of: Callable[[ClusterSection], Source] | None = None,
) -> Clusters:
    """The clusters that the settings name; without a source of its own each is asked itself."""

    def asked(section: ClusterSection) -> Source:
        return Poller(section.bootstrap_servers, {})

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
