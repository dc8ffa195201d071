"""How the mill's parts and commands reach its cluster: the addresses, and `cluster.security`."""

from dataclasses import dataclass

from appliance.mill.parts import bootstrap_servers
from appliance.mill.settings import Mill, security_settings
from protocol.security.cluster_security import ClusterSecurity


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """The bootstrap servers of a cluster, and its TLS and login; None if it has neither."""

    servers: str
    security: ClusterSecurity | None = None

    def __str__(self) -> str:
        return self.servers


def cluster_entry(mill: Mill) -> ClusterEntry:
    """Return the entry to the cluster of the mill."""
    security = security_settings(mill)
    return ClusterEntry(
        bootstrap_servers(mill.config, mill.placement),
        None if security is None else ClusterSecurity(**security),
    )
