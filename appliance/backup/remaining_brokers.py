"""Asks the brokers on the other hosts what a restore of the main host needs to know."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from appliance.backup.main_host import RemainingCluster
from appliance.kafka.disk_replacement import look
from appliance.kafka.session import TIMEOUT_MS, open_cluster, run
from appliance.mill.parts import main_broker, net_addresses
from appliance.mill.settings import Mill, security_settings
from appliance.mill.tls_paths import client_trust
from protocol.client.admin import Admin
from protocol.client.cluster import Cluster
from protocol.errors import ApiError, ErrorCode
from protocol.security.cluster_security import ClusterEntry, ClusterSecurity
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition


def entry_to_others(mill: Mill, backup: Path) -> ClusterEntry:
    """Return the entry to the brokers on the other hosts, with the password in the backup."""
    addresses = net_addresses(mill.config)
    del addresses[main_broker(mill.config)]
    stored = replace(mill, home=replace(mill.home, folder=backup))
    security = security_settings(stored)
    assert security is not None, "a mill on several hosts logs in"
    if mill.config.network.tls.certificate is not None:
        # The operator's own files are beside the configuration, and not in the backup.
        security["ca"] = client_trust(mill.home, mill.config.network)
    return ClusterEntry(",".join(addresses.values()), ClusterSecurity(**security))


def ask(entry: ClusterEntry, broker: int, topics: Collection[str]) -> RemainingCluster:
    """Return what the brokers report about themselves and about these topics. A topic that does not
    exist is left out. Raises CommandError."""

    async def asking() -> RemainingCluster:
        async with open_cluster(entry, timeout_ms=TIMEOUT_MS) as cluster:
            state = await look(cluster, broker)
            starts, ends = await _offsets(cluster, topics)
            return RemainingCluster(
                cluster.current.cluster_id,
                frozenset(state.replicas.brokers),
                frozenset(one.node_id for one in state.voters),
                starts,
                ends,
            )

    return run(asking())


async def _offsets(
    cluster: Cluster, topics: Collection[str]
) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
    """Return the first offset and the end of each partition. Raises ApiError."""
    known = (await cluster.metadata(topics, refresh=True)).topics
    places = []
    for name in sorted(topics):
        if known[name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if known[name].error:
            raise ApiError(known[name].error, name)
        places += [TopicPartition(name, number) for number in sorted(known[name].partitions)]
    bounds: list[dict[tuple[str, int], int]] = []
    for moment in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
        found = await Admin(cluster).list_offsets(dict.fromkeys(places, moment))
        for place, one in found.items():
            if one.error:
                raise ApiError(one.error, f"{place}: its offsets are unknown")
        bounds.append({(tp.topic, tp.partition): one.offset for tp, one in found.items()})
    return bounds[0], bounds[1]
