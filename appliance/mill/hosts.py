"""Recognises this machine as one of the hosts of a mill on several hosts (`cluster.hosts`).

`join` writes a record of the broker as which a host has joined. The host with the key of the mill's
CA is the main host: it has the broker with the lowest id, and all other parts. Before the CA is
made, the main host is recognised by its name or by the addresses of its name. Without the record a
machine is never recognised as another host, because two machines could then run the same broker.

In containers the profile of compose names the host, and `init` starts nothing if the record or the
key of the CA says otherwise (decision 0245).
"""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from appliance.config.model import MillConfig
from appliance.config.network_section import KAFKA
from appliance.errors import Failure
from appliance.machine.files import PRIVATE, write_atomically
from appliance.machine.processes import has_address
from appliance.mill.home import Home
from appliance.mill.parts import Placement, has_other_parts, main_broker
from sinks.config import SinksSection

RECORD_VERSION = 1


class HostRecordFault(Failure):
    """Raised when the record of a host cannot be read. The text says what to do."""


@dataclass(frozen=True, slots=True)
class HostRecord:
    """The mill that a host has joined, and as which broker."""

    cluster_id: str
    broker: int


def read_record(home: Home) -> HostRecord | None:
    """Return the record of this host; None if it has not joined. Raises HostRecordFault."""
    try:
        found = json.loads(home.host_record.read_text())
        return HostRecord(str(found["cluster_id"]), int(found["broker"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HostRecordFault(
            f"{home.host_record} cannot be read, so it is unknown which broker this host is:"
            " join again with the same join file"
        ) from error


def write_record(home: Home, record: HostRecord) -> None:
    """Write the record of this host."""
    fields = {"v": RECORD_VERSION, "cluster_id": record.cluster_id, "broker": record.broker}
    write_atomically(home.host_record, json.dumps(fields).encode() + b"\n", mode=PRIVATE)


def place(home: Home, config: MillConfig, *, in_containers: bool = False) -> Placement:
    """Return the placement of the parts of this machine. Raises HostRecordFault."""
    return Placement(in_containers, broker=own_broker(home, config))


def of_this_host(config: MillConfig, placement: Placement) -> MillConfig:
    """Return the configuration of this machine's parts.

    If the brokers are on several hosts, the file can be the same on each. All hosts but the main
    one ignore what only the parts of the main host use, and open nothing but their broker.
    """
    if has_other_parts(config, placement):
        return config
    stated = config.stream.model_copy(update={"metrics": (), "archive": None})
    return config.model_copy(
        update={
            "collector": config.collector.model_copy(update={"inputs": ()}),
            "stream": stated,
            "sinks": SinksSection(redis=None, mysql=None),
            "network": config.network.model_copy(update={"open": (KAFKA,)}),
            "monitor": config.monitor.model_copy(update={"login": None}),
        }
    )


def own_broker(home: Home, config: MillConfig) -> int | None:
    """Return the broker of this machine if the brokers are on several hosts; None if this machine
    is none of them. Raises HostRecordFault."""
    if config.cluster.hosts is None:
        return None
    if home.in_containers:
        # Most containers see neither the record nor the key of the CA. `init` compares them.
        return home.host_broker if home.host_broker in config.cluster.hosts else None
    record = read_record(home)
    if record is not None:
        return record.broker if record.broker in config.cluster.hosts else None
    first = main_broker(config)
    if home.authority_key.exists() or is_this_machine(config.cluster.hosts[first]):
        return first
    return None


def is_this_machine(host: str) -> bool:
    """Return True if a name of `cluster.hosts` is the name of this machine, or leads to it."""
    own = socket.gethostname().lower()
    if own in (host.lower(), host.lower().partition(".")[0]):
        return True
    return any(map(has_address, resolved(host)))


def leads_elsewhere(host: str) -> bool:
    """Return True if a name of `cluster.hosts` resolves, but not to this machine."""
    return any(True for _ in resolved(host)) and not is_this_machine(host)


def resolved(host: str) -> Iterator[str]:
    """Yield the addresses of a host; none if its name does not resolve."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return
    yield from dict.fromkeys(str(one[4][0]) for one in found)
