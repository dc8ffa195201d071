"""The checks of a mill whose brokers are on several hosts: is this machine one of them, and does
its data folder belong to the cluster of these hosts?"""

import os
from collections.abc import Iterator

from appliance.checks.startup import Check, CheckLevel
from appliance.config.containers import HOST_PROFILE
from appliance.machine.processes import addresses_of_this_machine
from appliance.mill.hosts import is_this_machine, leads_elsewhere, read_record, resolved
from appliance.mill.init import read_meta_properties
from appliance.mill.parts import BROKER_PREFIX, LOOPBACK, main_broker
from appliance.mill.settings import Mill
from appliance.mill.voter_folders import newest_voters

WHAT = "cluster.hosts"


def refusals(mill: Mill) -> list[Check]:
    """Return the reasons for which the mill must not start on this machine."""
    return [one for one in rows(mill) if one.level is CheckLevel.FAILED]


def rows(mill: Mill) -> Iterator[Check]:
    """Check this machine, its data folders and the names of the hosts."""
    hosts = mill.config.cluster.hosts
    yield from _stored_hosts(mill)
    if hosts is None:
        return
    own = mill.placement.broker
    if own is None:
        yield _unknown_machine(mill)
        return
    if mill.placement.in_containers:
        # A container does not have the addresses of its machine.
        yield from _container_of(mill, own)
    else:
        yield own_name(hosts[own], own)
    for number, host in hosts.items():
        name = f"{BROKER_PREFIX}{number}"
        folder = mill.home.part_data(name)
        if number != own and read_meta_properties(folder / "meta.properties"):
            yield Check(
                CheckLevel.FAILED,
                f"data folder {folder}",
                f"the folder has the data of broker {number}, but by cluster.hosts this broker runs"
                f" on {host}",
                "if the brokers of this mill have run on one machine, they cannot be spread over"
                " hosts yet: remove cluster.hosts; if the folder is an old copy, move it away",
            )
        if not any(True for _ in resolved(host)):
            yield Check(
                CheckLevel.WARNING,
                f"{WHAT}.{number}",
                f"the name {host} does not resolve on this machine",
                "write the name into DNS, or into /etc/hosts of each host",
            )


def _container_of(mill: Mill, own: int) -> Iterator[Check]:
    """Compare the broker in the profile of compose with the data of this host. Only the container
    `init` has the record of the host and the key of the CA."""
    hosts, home = mill.config.cluster.hosts or {}, mill.home
    main = main_broker(mill.config)
    if not os.access(home.authority_key.parent, os.W_OK):
        yield Check(CheckLevel.OK, WHAT, f"this is {hosts[own]}, with broker {own}")
        return
    record = read_record(home)
    if home.authority_key.exists():
        data = main
    elif record is not None:
        data = record.broker
    elif own == main:
        return
    else:
        enrol = home.writes(f"enrol broker {own}", f"broker-{own}.join")
        yield Check(
            CheckLevel.FAILED,
            WHAT,
            f"this is {hosts[own]}, the host of broker {own}, and it has not joined the mill",
            f"type `{enrol}` on {hosts[main]}, copy the file here, and type"
            f" `{home.reads('join', f'broker-{own}.join')}`",
        )
        return
    if data != own:
        yield Check(
            CheckLevel.FAILED,
            WHAT,
            f"COMPOSE_PROFILES={HOST_PROFILE}{own}, but the volumes here have the secrets of the"
            f" host of broker {data}",
            f"write COMPOSE_PROFILES={HOST_PROFILE}{data} into the file .env; or, to make this host"
            f" that of broker {own}, remove the volumes with `docker compose down -v`",
        )


def change(started: Mill, wanted: Mill) -> Iterator[Check]:
    """Refuse brokers on several hosts, or their end, while the mill runs. Only the start of the
    supervisor decides whether it keeps the user of the mill's parts."""
    if (started.config.cluster.hosts is None) != (wanted.config.cluster.hosts is None):
        yield Check(
            CheckLevel.FAILED,
            f"{wanted.home.edited_config}: {WHAT}",
            "the key was added or removed while the mill runs",
            "run `./millrace down`, and then `./millrace up`",
        )


def own_name(host: str, broker: int) -> Check:
    """Check that the name of this machine leads to it, also on this machine."""
    if not leads_elsewhere(host):
        return Check(CheckLevel.OK, WHAT, f"this machine is {host}, with broker {broker}")
    known = ", ".join(addresses_of_this_machine()) or LOOPBACK
    return Check(
        CheckLevel.WARNING,
        f"{WHAT}.{broker}",
        f"the name {host} leads to {', '.join(resolved(host))}, but this machine has the addresses"
        f" {known}",
        "if the join file was for another machine, stop the mill here and remove its data folder;"
        " otherwise correct the name in DNS or /etc/hosts, unless a gateway forwards that address"
        " to this machine",
    )


def _unknown_machine(mill: Mill) -> Check:
    """Return the fault that this machine is none of the hosts, or has not joined."""
    hosts = mill.config.cluster.hosts or {}
    first = main_broker(mill.config)
    record = read_record(mill.home)
    if record is not None:
        return Check(
            CheckLevel.FAILED,
            WHAT,
            f"this host has joined as broker {record.broker}, but cluster.hosts has no such broker",
            "write cluster.hosts as it was when this host joined",
        )
    for number, host in hosts.items():
        if is_this_machine(host):
            return Check(
                CheckLevel.FAILED,
                WHAT,
                f"this machine is {host}, the host of broker {number}, and has not joined the mill",
                f"type `./millrace enrol broker {number}` on {hosts[first]}, copy the file here,"
                " and type `./millrace join FILE`",
            )
    known = ", ".join(addresses_of_this_machine()) or "127.0.0.1"
    return Check(
        CheckLevel.FAILED,
        WHAT,
        f"none of the hosts {', '.join(hosts.values())} is this machine, which has the addresses"
        f" {known}",
        f"correct cluster.hosts; or, on the main host, let the name {hosts[first]} lead to this"
        " machine (DNS or /etc/hosts); or, on another host, run `./millrace join FILE`",
    )


def _is_of_one_machine(number: int, host: str) -> bool:
    """Return True for the address of a voter whose brokers are all on one machine, bare or in
    containers."""
    return host in (LOOPBACK, f"{BROKER_PREFIX}{number}")


def _stored_hosts(mill: Mill) -> Iterator[Check]:
    """Compare the hosts with those that the brokers of the cluster know for each other.

    The cluster's log has them since its first start, and nothing changes them there.
    """
    hosts = mill.config.cluster.hosts
    ids = mill.config.cluster.broker_ids
    known = None if mill.config.cluster.bootstrap_servers else newest_voters(mill.home, ids)
    for number, stored in known.hosts.items() if known is not None else ():
        if hosts is None:
            if _is_of_one_machine(number, stored):
                continue
            found, remedy = "no host", "write cluster.hosts as it was"
        elif number in hosts and hosts[number] != stored:
            found = hosts[number]
            remedy = (
                "the brokers of this mill have run on one machine, so they cannot be spread over"
                " hosts yet: remove cluster.hosts"
                if _is_of_one_machine(number, stored)
                else f"write {stored} again, because the brokers of the cluster know each other by"
                " these names; to move the broker, let DNS or /etc/hosts lead the name to the new"
                " address"
            )
        else:
            continue
        yield Check(
            CheckLevel.FAILED,
            f"{mill.home.edited_config}: {WHAT}",
            f"{found} for broker {number}, whose host is {stored} in the data of the cluster",
            remedy,
        )
        return
