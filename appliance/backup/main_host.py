"""Decides whether a backup of the main host can be restored, and from where its counts go on.

This module is pure. The main host of a mill on several hosts was lost, and the brokers on the other
hosts have all records. The ledger of the backup says up to which offset each partition was counted.
The stream counts again from there, so the counts are exact if the brokers still have all records
from these offsets on. A partition that the ledger does not have is newer than the backup, and is
counted from its first offset, which is 0.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from appliance.config.model import MillConfig
from appliance.mill.parts import main_broker

Offsets = Mapping[tuple[str, int], int]
"""An offset for each partition, by topic and number."""

NAMED_MAX = 5
"""The most partitions that a refusal names."""


@dataclass(frozen=True, slots=True)
class RemainingCluster:
    """What the brokers on the other hosts report.

    `starts` and `ends` are the first offset and the end of each partition that the stream reads.
    """

    cluster_id: str | None
    in_service: frozenset[int]
    voters: frozenset[int]
    starts: Offsets
    ends: Offsets


@dataclass(frozen=True, slots=True)
class LostLines:
    """A partition of which the brokers lack offsets that the backup has not counted."""

    topic: str
    partition: int
    counted: int
    start: int
    end: int

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition} is counted up to offset {self.counted}"
        if self.counted > self.end:
            return f"{where} in the backup, and the brokers have it only up to {self.end}"
        return f"{where} in the backup, and the brokers have it only from {self.start} on"


@dataclass(frozen=True, slots=True)
class Continuation:
    """The rows that the ledger needs so that the stream counts every line once, and what is lost.

    `rows` has the partitions that the ledger lacks. `after_loss` has the partitions of `lost`, with
    the first offset that the brokers have.
    """

    rows: Offsets
    lost: tuple[LostLines, ...]

    @property
    def after_loss(self) -> Offsets:
        """The offsets from which the lost partitions can be counted."""
        return {(one.topic, one.partition): one.start for one in self.lost}

    @property
    def lost_text(self) -> str:
        """The lost partitions in words."""
        named = "; ".join(map(str, self.lost[:NAMED_MAX]))
        more = len(self.lost) - NAMED_MAX
        return f"{named}; and {more} more" if more > 0 else named


def continuation(
    ledger: Offsets, cluster: RemainingCluster, topics: Collection[str]
) -> Continuation:
    """Compare the ledger of the backup with what the brokers have of these topics."""
    rows, lost = {}, []
    counted_ones = {place for place in ledger if place[0] in topics}
    for place in sorted(counted_ones.union(cluster.ends)):
        counted = ledger.get(place)
        if counted is None:
            counted = rows[place] = 0
        # A topic that was deleted starts at 0 when it is created again.
        start, end = cluster.starts.get(place, 0), cluster.ends.get(place, 0)
        if not start <= counted <= end:
            lost.append(LostLines(*place, counted, start, end))
    return Continuation(rows, tuple(lost))


def refusals_of_file(broker: int, config: MillConfig, file: str) -> Iterator[str]:
    """Yield why the configuration does not fit a backup of the main host with this broker."""
    hosts = config.cluster.hosts
    if hosts is None:
        yield (
            "the backup is of the main host of a mill on several hosts, and cluster.hosts is"
            f" missing in {file}: write the sections cluster, topics, network, security and ports"
            " as they are on the other hosts, or move the file away to use that of the backup"
        )
    elif main_broker(config) != broker:
        yield (
            f"the backup is of the host of broker {broker}, and by cluster.brokers in {file} broker"
            f" {main_broker(config)} is on the main host: write the brokers as they are on the"
            " other hosts"
        )
    elif len(hosts) == 1:
        yield f"{file} names no other host in cluster.hosts, and only they have the brokers' logs"


def refusals_of_cluster(
    broker: int, cluster_id: str, hosts: Collection[int], name: str, cluster: RemainingCluster
) -> Iterator[str]:
    """Yield why the main host with this broker cannot join the brokers that are left.

    `cluster_id` is that of the backup, `hosts` are the brokers of the configuration, and `name` is
    the name of the main host.
    """
    if cluster.cluster_id != cluster_id:
        yield (
            f"the backup is of cluster {cluster_id}, and the brokers on the other hosts are of"
            f" cluster {cluster.cluster_id}: use a backup of this mill"
        )
        return
    if broker in cluster.in_service:
        yield (
            f"broker {broker} is in service, so the main host still runs. If it does not, wait some"
            f" seconds. If another machine runs as {name}, stop it first"
        )
    elif broker in cluster.voters:
        yield (
            f"broker {broker} still votes with the disk that is lost: type `./millrace broker"
            f" replace-disk {broker}` on another host first, and then this command again"
        )
    if unknown := sorted(cluster.in_service - set(hosts)):
        yield (
            f"the cluster has broker {unknown[0]}, which is missing in cluster.hosts: write the"
            " sections cluster and ports as they are on the other hosts into"
            " configs/millrace.yaml, and type this command again"
        )
