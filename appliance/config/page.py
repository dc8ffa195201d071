"""The checks of the page's address, its login and its proxies.

This module is pure. A page that other machines reach needs HTTPS and a login. `startup` checks that
there is a person who can log in.
"""

from appliance.config.document import Document
from appliance.config.faults import found_text
from appliance.config.model import MillConfig
from appliance.config.network import is_loopback, leads_to_the_client
from appliance.config.network_section import PAGE
from monitor.config.settings import split_address

PROXY_SECRET_CHARS_MIN = 20
ADD_PERSON = "./millrace user add NAME --page --role operator"


def check_page(config: MillConfig, document: Document) -> None:
    """Append the faults of the page's address and login."""
    _check_address(config, document)
    check_logins(config, document)


def check_logins(config: MillConfig, document: Document) -> None:
    """Append the faults of the login and of an opened page. In containers the page's address is
    that of the container."""
    _check_opened(config, document)
    _check_proxies(config, document)


def _check_address(config: MillConfig, document: Document) -> None:
    host, _ = split_address(config.monitor.listen)
    if is_loopback(host) or config.network.opens_page:
        return
    document.add(
        ("monitor", "listen"),
        found_text(config.monitor.listen),
        "a loopback address such as 127.0.0.1:8090; to let other machines reach the page, write"
        f" network.open: [{PAGE}], network.names and monitor.login: users, and run `{ADD_PERSON}`",
    )


def _check_opened(config: MillConfig, document: Document) -> None:
    network, host = config.network, split_address(config.monitor.listen)[0]
    if not network.opens_page:
        return
    opened = f"[{', '.join(network.open)}]"
    if config.monitor.login is None:
        document.add(
            ("monitor", "login"),
            f"null beside network.open: {opened}",
            f"users, and then run `{ADD_PERSON}`; or proxy",
        )
    if not network.names:
        if not network.listening or config.cluster.hosts is not None:
            document.add(
                ("network", "open"),
                f"{opened} without network.names",
                "the names or addresses that browsers dial, such as names: [mill.example.org]",
            )
    elif not is_loopback(host) and all(map(leads_to_the_client, network.names)):
        document.add(
            ("network", "names", 0),
            f"{found_text(network.names[0])} beside monitor.listen: {config.monitor.listen}",
            "a name that browsers on other machines can dial, such as mill.example.org: with this"
            " one they reach their own machine",
        )


def _check_proxies(config: MillConfig, document: Document) -> None:
    section = config.monitor
    if section.login is None and section.proxies:
        document.add(
            ("monitor", "proxies"),
            f"[{', '.join(section.proxies)}]",
            "[], or a login beside it: without monitor.login no proxy is distinguished",
        )
    if section.login != "proxy":
        for name in ("proxy_secret", "proxy_roles"):
            if getattr(section, name):
                document.add(("monitor", name), "a value", "none, or monitor.login: proxy")
        return
    if not section.proxies:
        document.add(
            ("monitor", "proxies"),
            "[] beside monitor.login: proxy",
            "the addresses of the proxies, such as proxies: [127.0.0.1]",
        )
    secret = section.proxy_secret.get_secret_value() if section.proxy_secret else ""
    if len(secret) < PROXY_SECRET_CHARS_MIN or not secret.isascii() or not secret.isprintable():
        document.add(
            ("monitor", "proxy_secret"),
            f"a secret of {len(secret)} characters beside monitor.login: proxy",
            f'at least {PROXY_SECRET_CHARS_MIN} printable ASCII characters, as "${{file:path}}"',
        )
    if not section.proxy_roles:
        document.add(
            ("monitor", "proxy_roles"),
            "no group beside monitor.login: proxy",
            "the role of each group, such as proxy_roles: {mill-operators: operator}: people"
            " without such a group are refused",
        )
