"""The checks of `cluster.hosts`, the hosts of a mill whose brokers are on several machines.

This module is pure. Such a mill opens the listeners NET and BROKER beyond the loopback on each
host, so it needs what an open mill needs (decision 0225).
"""

from appliance.config.document import Document
from appliance.config.faults import Path, found_text
from appliance.config.model import BROKER_COUNTS, MillConfig
from appliance.config.network import is_dialled_host, is_loopback, leads_to_the_client
from appliance.config.network_section import KAFKA

PATH: Path = ("cluster", "hosts")


def check_hosts(config: MillConfig, document: Document) -> None:
    """Append the faults of the key, and those of keys that cannot be beside it."""
    hosts = config.cluster.hosts
    if hosts is None:
        return
    if config.cluster.bootstrap_servers is not None:
        document.add(
            PATH,
            "cluster.bootstrap_servers beside it",
            "only one of the two: hosts are those of the mill's own brokers",
        )
        return
    if not _check_ids(config, document):
        return
    first: dict[str, int] = {}
    for number, host in hosts.items():
        path = (*PATH, str(number))
        if not is_dialled_host(host):
            expected = "a host name or an IP address that the other hosts can dial, without a port"
            document.add(path, found_text(host), expected)
        elif (other := first.setdefault(host.lower(), number)) != number:
            document.add(
                path,
                f"{found_text(host)} a second time",
                f"a host for each broker: this is that of broker {other}. Three brokers on one"
                " machine need no hosts",
            )
    if not document.faulty & {(*PATH, str(number)) for number in hosts}:
        _check_network(config, document)


def _check_ids(config: MillConfig, document: Document) -> bool:
    """Append a fault if the hosts are not those of the configured brokers. Return True if they
    are."""
    hosts = config.cluster.hosts or {}
    ids, least = config.cluster.broker_ids, max(BROKER_COUNTS)
    listed = ", ".join(map(str, ids))
    if len(hosts) < least:
        count = "no host" if not hosts else "1 host" if len(hosts) == 1 else f"{len(hosts)} hosts"
        why = ": of two, neither can go on alone" if len(hosts) == 2 else ""
        expected = (
            f"{least} or more hosts, one for each broker{why}; or no hosts: all brokers run here"
        )
        document.add(PATH, count, expected)
        return False
    for number in hosts:
        if number not in ids:
            document.add(
                (*PATH, str(number)),
                f"broker {number}, which is not in cluster.brokers",
                f"only brokers of cluster.brokers, which are {listed}",
                key=True,
            )
    if missing := [number for number in ids if number not in hosts]:
        document.add(
            PATH,
            f"no host of broker {', '.join(map(str, missing))}",
            f"a host for each broker of cluster.brokers, which are {listed}",
        )
    return set(hosts) == set(ids)


def _check_network(config: MillConfig, document: Document) -> None:
    """Append a fault for each key of `network` that brokers on several hosts need.

    If all hosts are loopback addresses, the address of the listeners can be one too.
    """
    hosts, network = config.cluster.hosts or {}, config.network
    beside = "beside cluster.hosts"
    if not network.opens_kafka:
        document.add(
            ("network", "open"),
            f"no {KAFKA} {beside}",
            f"[{KAFKA}]: the parts of the mill reach the brokers of other hosts by that listener",
        )
    if network.login is None:
        document.add(
            ("network", "login"),
            f"null {beside}",
            "login: users, because other machines may reach the brokers only with a login",
        )
    is_local = all(map(is_loopback, hosts.values()))
    if is_loopback(network.listen) and not is_local:
        document.add(
            ("network", "listen"),
            f"{found_text(network.listen)} {beside}",
            "an address that the other hosts reach, such as 0.0.0.0",
        )
    for number, host in hosts.items():
        if leads_to_the_client(host) and not is_local:
            document.add(
                (*PATH, str(number)),
                found_text(host),
                "a name that the other hosts can dial: with this one they reach their own machine",
            )
