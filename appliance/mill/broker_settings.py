"""The settings of one broker's process: its listeners, its files, and where the others are.

A mill on one machine has the listeners HOST, MILL and, for several brokers, BROKER, all of them on
the loopback, and NET if it is open. In containers all of them are bound to every address of the
container. If the brokers are on several hosts, NET and BROKER are bound to `network.listen` on each
host, MILL does not exist, and HOST has another name on each host: so a broker names no address of
another host's loopback to a local client (decision 0225). In containers MILL exists on each host,
also with another name on each (decision 0245).
"""

from typing import Any

from appliance.config.model import MillConfig, Scalar
from appliance.config.replication import replication_settings
from appliance.mill.home import Home
from appliance.mill.init import LOGIN_SECRET, read_secret
from appliance.mill.parts import (
    BROKER_PREFIX,
    ENTRY_USER,
    LOOPBACK,
    Placement,
    first_voters,
    voters,
)
from appliance.mill.tls_paths import link_files, tls_files
from appliance.mill.voter_folders import joins_cluster
from broker.config import SASL_SSL, SSL
from protocol.security.acl import USER_PREFIX

SUPER_USERS = "super.users"


def settings_of_broker(
    home: Home, config: MillConfig, placement: Placement, part: str
) -> dict[str, Any]:
    """Return one broker's settings. A broker of a cluster also has a listener for the other
    brokers, and their addresses."""
    number = int(part.removeprefix(BROKER_PREFIX))
    cluster, network = config.cluster, config.network
    others = voters(config, placement)
    joins = bool(others) and joins_cluster(home, config, number)
    if not joins:
        # The brokers in these settings form a new cluster. The brokers of an existing cluster find
        # each other in the cluster's log.
        first = {*first_voters(config), number}
        others = {one: where for one, where in others.items() if one in first}
    return {
        "part": part,
        "node_id": number,
        "cluster_id": read_secret(home, f"{part}/cluster_id"),
        "log_dir": str(home.part_data(part)),
        "listeners": _listeners(config, placement, number, has_others=bool(others)),
        "rack": cluster.racks[cluster.broker_ids.index(number)] if cluster.racks else None,
        "tls": tls_files(home, network, part) if network.opens_kafka else None,
        "link_tls": None if cluster.hosts is None else link_files(home, part),
        "login_secret": read_secret(home, f"{part}/{LOGIN_SECRET}") if network.login else None,
        "joins": joins,
        "voters": {
            str(node_id): {"host": where[0], "port": where[1]} for node_id, where in others.items()
        },
        "status": {
            "host": placement.bind_host,
            "port": config.ports.of_broker("broker_status", number),
        },
        "settings": {**replication_settings(len(cluster.broker_ids)), **_stated(config)},
    }


def _listeners(
    config: MillConfig, placement: Placement, number: int, *, has_others: bool
) -> dict[str, dict[str, Any]]:
    network, ports = config.network, config.ports
    bind, host = placement.bind_host, placement.host_of(f"{BROKER_PREFIX}{number}")
    net_protocol = SSL if network.login is None else SASL_SSL
    if config.cluster.hosts is not None:
        name = config.cluster.hosts[number]
        listen = bind if placement.in_containers else network.listen
        private = {f"HOST_{number}": _listener(bind, ports.of_broker("host", number), LOOPBACK)}
        if placement.in_containers:
            # The containers of this host cannot reach an address of HOST.
            private[f"MILL_{number}"] = _listener(bind, ports.of_broker("mill", number), host)
        return {
            **private,
            "BROKER": _listener(listen, ports.of_broker("broker", number), name, SSL),
            "NET": _listener(listen, ports.of_broker("net", number), name, net_protocol),
        }
    listeners = {
        # Programs outside of the mill reach every broker at an address of this machine.
        "HOST": _listener(bind, ports.of_broker("host", number), LOOPBACK),
        "MILL": _listener(bind, ports.of_broker("mill", number), host),
    }
    if has_others:
        listeners["BROKER"] = _listener(bind, ports.of_broker("broker", number), host)
    if network.opens_kafka:
        # A container has other addresses than its machine. Compose publishes this port at
        # `network.listen` of the machine.
        listen = bind if placement.in_containers else network.listen
        port, name = ports.of_broker("net", number), network.names[0]
        listeners["NET"] = _listener(listen, port, name, net_protocol)
    return listeners


def _stated(config: MillConfig) -> dict[str, Scalar]:
    """Return the settings of the file, and the users that may do everything.

    The mill's own parts enter a cluster on several hosts as a user of their own. It is a super user
    whatever users the file names.
    """
    network, stated = config.network, config.cluster.settings
    if not network.login:
        return dict(stated)
    found = {**super_users(config), **stated}
    if config.cluster.hosts is not None:
        named = str(found[SUPER_USERS])
        own = f"{USER_PREFIX}{ENTRY_USER}"
        if own not in named.split(";"):
            found[SUPER_USERS] = f"{named};{own}"
    return found


def super_users(config: MillConfig) -> dict[str, Scalar]:
    """Return the broker setting for the users that may do everything."""
    return {SUPER_USERS: ";".join(f"{USER_PREFIX}{one}" for one in config.security.super_users)}


def _listener(
    bind: str, port: int, advertised_host: str, protocol: str | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "host": bind,
        "port": port,
        "advertised_host": advertised_host,
        "advertised_port": port,
    }
    return found if protocol is None else {**found, "security_protocol": protocol}
