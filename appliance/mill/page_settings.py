"""The monitor's settings for the login and the certificate of the page."""

from typing import Any

from appliance.config.model import MillConfig
from appliance.mill.home import Home
from appliance.mill.parts import MONITOR, page_url
from appliance.mill.tls_paths import tls_files


def page_settings(home: Home, config: MillConfig) -> dict[str, Any]:
    """Return the settings of the page's address, login and certificate."""
    section, network = config.monitor, config.network
    found: dict[str, Any] = {"page": page_url(config), "own_socket": str(home.monitor_socket)}
    if section.login is not None:
        secret = section.proxy_secret
        found["login"] = {
            "mode": section.login,
            "folder": str(home.part_secrets(MONITOR)),
            "proxies": list(section.proxies),
            "proxy_secret": None if secret is None else secret.get_secret_value(),
            "roles": dict(section.proxy_roles),
        }
    if network.opens_page:
        files = tls_files(home, network, MONITOR)
        found["tls"] = {"certificate": files["certificate"], "key": files["key"]}
        found["names"] = list(network.names)
    return found
