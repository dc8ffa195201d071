"""Makes the client of a cluster that can have TLS and logins.

No other module converts `cluster.security` to the TLS and login settings of a client.
"""

from protocol.client.cluster import REQUEST_TIMEOUT_MS, Cluster
from protocol.client.login import LoginSettings
from protocol.client.tls import TlsSettings
from protocol.security.cluster_security import ClusterEntry, ClusterSecurity
from protocol.security.scram import MECHANISMS


def cluster_of(
    entry: ClusterEntry, *, client_id: str, request_timeout_ms: int = REQUEST_TIMEOUT_MS
) -> Cluster:
    """Return a client of the cluster. Raises ValueError for addresses that are none."""
    security = entry.security
    return Cluster(
        entry.servers,
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        tls=None if security is None else TlsSettings(ca=security.ca),
        login=None if security is None else _login(security),
    )


def _login(security: ClusterSecurity) -> LoginSettings | None:
    if security.user is None:
        return None
    return LoginSettings(
        security.user,
        security.password or "",
        MECHANISMS[security.mechanism],
        security.password_file,
    )
