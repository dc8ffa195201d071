"""The files with which a broker proves its identity to clients and to other brokers, and the CA
that clients trust.

This module only computes paths.
"""

from appliance.config.network_section import NetworkSection
from appliance.mill.certificates import CERTIFICATE, KEY, TRUSTED
from appliance.mill.home import Home
from appliance.mill.init import ENTRY


def tls_files(home: Home, network: NetworkSection, part: str) -> dict[str, str | None]:
    """Return the paths of a part's certificate, key and CA, for its settings.

    The user's own paths are relative to the mill's folder.
    """
    if network.tls.certificate is None or network.tls.key is None:
        return dict(link_files(home, part))
    own = {"certificate": network.tls.certificate, "key": network.tls.key, "ca": network.tls.ca}
    return {name: str(home.folder / path) if path else None for name, path in own.items()}


def link_files(home: Home, part: str) -> dict[str, str]:
    """Return the paths of the files that the mill's own CA has made for a part. Brokers show theirs
    to each other."""
    folder = home.part_secrets(part)
    return {
        "certificate": str(folder / CERTIFICATE),
        "key": str(folder / KEY),
        "ca": str(folder / TRUSTED),
    }


def client_trust(home: Home, network: NetworkSection) -> str | None:
    """Return the file with the CA that the mill's own parts trust if they log in; None: the CAs of
    this machine."""
    if network.tls.certificate is None:
        # Containers do not see the folder of all data.
        folder = home.part_secrets(ENTRY) if home.in_containers else home.data
        return str(folder / TRUSTED)
    return None if network.tls.ca is None else str(home.folder / network.tls.ca)
