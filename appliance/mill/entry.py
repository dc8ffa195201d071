"""How the mill's parts and commands reach its cluster: the addresses, and `cluster.security`."""

from appliance.mill.parts import bootstrap_servers
from appliance.mill.settings import Mill, security_settings
from protocol.security.cluster_security import ClusterEntry, ClusterSecurity


def cluster_entry(mill: Mill) -> ClusterEntry:
    """Return the entry to the cluster of the mill."""
    security = security_settings(mill)
    return ClusterEntry(
        bootstrap_servers(mill.config, mill.placement),
        None if security is None else ClusterSecurity(**security),
    )
