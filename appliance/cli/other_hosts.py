"""The other hosts of a mill on several hosts, as this host sees them, for `up` and `status`."""

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Any

from appliance.cli import context
from appliance.config.faults import ConfigFaults
from appliance.mill.parts import BROKER_PREFIX, has_other_parts, main_broker, voters
from appliance.mill.settings import Mill
from appliance.output import CommandError, Exit
from protocol.status import PartStatus, StatusUnavailable, fetch_status

DIAL_S = 1.0
"""The time in seconds within which another host must accept a connection."""
STATUS_TIMEOUT_S = 2.0


WAITING = ("waits_for_brokers", "waits_for_cluster", "waits_for_controller", "no_quorum")
"""The problems of a broker that has no connection to the controller."""


class HostState(StrEnum):
    """The state of a broker on another host, as the cluster knows it."""

    IN_SERVICE = "in service"
    STOPPING = "stopping"
    AWAY = "out of service"
    ABSENT = "not started yet"
    UNKNOWN = "unknown"
    """This host's broker has no connection to the cluster."""


def silent_hosts(mill: Mill) -> list[str]:
    """Return a sentence for each other host whose broker accepts no connection."""
    hosts, own = mill.config.cluster.hosts, mill.placement.broker
    if hosts is None or own is None:
        return []
    others = {
        number: address
        for number, address in voters(mill.config, mill.placement).items()
        if number != own
    }
    with ThreadPoolExecutor(len(others)) as threads:
        reasons = dict(zip(others, threads.map(dial_fault, others.values()), strict=True))
    main = main_broker(mill.config)
    found = []
    for number, reason in reasons.items():
        if reason is None:
            continue
        join = (
            f" (before its first start: `./millrace enrol broker {number}` on {hosts[main]}, and"
            " `./millrace join FILE` there)"
            if number != main
            else ""
        )
        found.append(
            f"broker {number} on {hosts[number]} does not answer: {reason}; run"
            f" `./millrace up` there{join}"
        )
    if found:
        found.append("the first start waits for all hosts, every later one for a majority of them")
    return found


def dial_fault(address: tuple[str, int], timeout_s: float = DIAL_S) -> str | None:
    """Return why this host cannot connect to an address; None if it can."""
    host, port = address
    try:
        socket.create_connection(address, timeout_s).close()
    except socket.gaierror:
        return f"the name {host} does not resolve here (DNS or /etc/hosts)"
    except TimeoutError:
        return f"no answer from port {port} (a firewall closes it, or the host is off)"
    except OSError as error:
        return f"port {port}: {error.strerror}"
    return None


def other_hosts(mill: Mill) -> list[dict[str, Any]]:
    """Ask this host's broker, and return a row for the broker of each other host."""
    hosts, own = mill.config.cluster.hosts, mill.placement.broker
    if hosts is None or own is None:
        return []
    status = own_status(mill)
    states = {number: state_in(status, number) for number in hosts if number != own}
    return [
        {
            "broker": number,
            "host": hosts[number],
            "state": str(state),
            "in_service": state is HostState.IN_SERVICE,
            "is_away": state in (HostState.AWAY, HostState.ABSENT),
        }
        for number, state in states.items()
    ]


def own_status(mill: Mill) -> PartStatus | None:
    """Ask the broker of this host for its status; None if there is none, or if it does not
    answer."""
    own = mill.placement.broker
    part = None if own is None else mill.part(f"{BROKER_PREFIX}{own}")
    if part is None:
        return None
    try:
        return fetch_status(part.host, part.port, STATUS_TIMEOUT_S)
    except StatusUnavailable:
        return None


def state_in(status: PartStatus | None, number: int) -> HostState:
    """Return the state of a broker by the status of another broker.

    A broker that is fenced, or that waits for others, has metadata of an unknown age.
    """
    details: Mapping[str, Any] = {} if status is None else status.details
    if number in details.get("cluster_waits_for", ()):
        return HostState.ABSENT
    waits = status is None or any(one.code in WAITING for one in status.problems)
    if waits or details.get("is_fenced", True):
        return HostState.UNKNOWN
    for one in details.get("brokers", ()):
        if one["node_id"] == number:
            if one["is_fenced"]:
                return HostState.AWAY
            return HostState.STOPPING if one["is_stopping"] else HostState.IN_SERVICE
    return HostState.ABSENT


def refuse_elsewhere(what: str, mill: Mill) -> None:
    """Raise CommandError if a part of the mill, `what`, is only on its main host, and this is
    another one."""
    if not has_other_parts(mill.config, mill.placement):
        main = (mill.config.cluster.hosts or {})[main_broker(mill.config)]
        raise CommandError(
            f"{what} runs on the main host, {main}: type this command there", Exit.CONDITION
        )


def refuse_wrong_host(mill: Mill) -> None:
    """Raise CommandError if the mill must not start here: it is another host by its data, or it has
    not joined."""
    from appliance.checks.hosts import refusals

    if failed := refusals(mill):
        raise CommandError(str(failed[0]), Exit.CONDITION)


def own_hosts(bootstrap: str | None = None) -> Mapping[int, str] | None:
    """Return the hosts of this mill's brokers; None if they are on one machine, or if the command
    names another cluster."""
    mill = _own_mill(bootstrap)
    return None if mill is None else mill.config.cluster.hosts


def _own_mill(bootstrap: str | None) -> Mill | None:
    """Return the mill; None if the command names another cluster, or if the file has faults."""
    if bootstrap is not None:
        return None
    try:
        return context.mill_as_it_runs()
    except ConfigFaults:
        # The command reports the faults if it needs the file.
        return None


def runs_elsewhere(broker: int, bootstrap: str | None) -> str | None:
    """Return the host of a broker of this mill that runs on another host; None for other
    brokers."""
    mill = _own_mill(bootstrap)
    if mill is None or broker == mill.placement.broker:
        return None
    return (mill.config.cluster.hosts or {}).get(broker)


def how_to_start(broker: int, host: str, remark: str) -> str:
    """Return how the broker of another host is started with an empty disk. `remark` is about the
    host."""
    config = context.mill_as_it_runs().config
    main = (config.cluster.hosts or {})[main_broker(config)]
    home, file = context.home(), f"broker-{broker}.join"
    return (
        f"on {main}: `{home.writes(f'enrol broker {broker}', file)}`, and copy the file to {host},"
        f" {remark}\n"
        f"on {host}: `{home.down}` if the mill runs there, then `{home.reads('join', file)}` and"
        f" `{home.up}`\n{waits_text(broker)}"
    )


def waits_text(broker: int) -> str:
    """Return the sentence of a command that waits for a broker of another host."""
    return (
        f"this command waits for broker {broker}. Ctrl-C ends only the waiting; run the same"
        " command again to continue"
    )


def refuse_on_hosts(what: str, bootstrap: str | None = None) -> None:
    """Raise CommandError for a command that is not offered yet if the brokers of this mill are on
    several hosts."""
    if own_hosts(bootstrap) is not None:
        raise CommandError(
            f"{what} is not offered yet for a mill whose brokers are on several hosts"
            " (cluster.hosts): nothing was changed",
            Exit.CONDITION,
        )
