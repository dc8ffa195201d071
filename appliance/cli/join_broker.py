"""`millrace join` with the join file of a broker: make this host a host of the mill."""

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from appliance.cli import context
from appliance.cli.other_hosts import dial_fault
from appliance.output import CommandError, Exit, say, tell

if TYPE_CHECKING:
    from appliance.config.model import MillConfig
    from appliance.mill.home import Home

STDIN = "-"
CHECK_DIAL_S = 3.0
"""The time in seconds within which another host must accept a connection (`join --check`)."""


def join_as_broker(text: str, file: str, *, check: bool, as_json: bool) -> None:
    """Write the files of this host, or only check whether the others can be reached. Raises
    CommandError."""
    from appliance.checks.hosts import own_name
    from appliance.checks.startup import CheckLevel
    from appliance.enrol import broker_host
    from appliance.enrol.broker_file import parse_broker
    from appliance.enrol.envelope import JoinFileFault
    from protocol.status import VERSION

    try:
        found = parse_broker(text)
    except JoinFileFault as error:
        raise CommandError(f"{error}", Exit.USAGE) from None
    if found.version != VERSION:
        raise CommandError(
            f"the main host runs millrace {found.version}, and this host has {VERSION}: all brokers"
            " run one version",
            Exit.CONDITION,
        )
    home, leaf = context.home(), found.leaf
    config = broker_host.checked_config(home, found)
    broker_host.refuse_leaf(leaf, datetime.now(UTC))
    if context.in_containers():
        _refuse_other_container(home, leaf.broker, check=check)
    if not (check and context.in_containers()):
        # The container that can dial other hosts sees no secrets.
        broker_host.refuse_other_mill(home, leaf)
    is_present = broker_host.is_config_present(home, config)
    if check:
        _check(config, leaf.broker, as_json)
        return
    replaces = not is_present and home.config_file.exists()
    broker_host.write_files(home, found, with_config=not is_present)
    words = [f"this host is the host of broker {leaf.broker}, beside {found.main_host}"]
    if replaces:
        words.append(
            f"{home.config_file} was the shipped file, and has the settings of this host now"
        )
    if file != STDIN:
        words.append(f"delete {file}: it has the key of broker {leaf.broker}")
    if config.network.tls.certificate is not None:
        words.append(f"copy the files of network.tls into {home.folder}")
    words.append("then type")
    words.append(f"  {home.up}")
    data = {
        "broker": leaf.broker,
        "cluster_id": leaf.cluster_id,
        "config_written": not is_present,
    }
    tell("\n".join(words), "join-broker/1", data, as_json)
    if context.in_containers():
        return
    hosts = config.cluster.hosts or {}
    named = own_name(hosts[leaf.broker], leaf.broker)
    if named.level is not CheckLevel.OK:
        say(f"millrace: {named}")


def _refuse_other_container(home: "Home", broker: int, *, check: bool) -> None:
    """Raise CommandError if compose starts another broker on this host, or if this container cannot
    write the secrets."""
    from appliance.config.containers import HOST_PROFILE

    if home.host_broker != broker:
        own = f"{HOST_PROFILE}{home.host_broker}" if home.host_broker else "no host"
        raise CommandError(
            f"the join file is for broker {broker}, and COMPOSE_PROFILES names {own}: write"
            f" COMPOSE_PROFILES={HOST_PROFILE}{broker} into the file .env if this is its host",
            Exit.CONDITION,
        )
    if not check and not os.access(home.authority_key.parent, os.W_OK):
        raise CommandError(
            "this command needs the container that writes the secrets: run"
            f" `{home.reads('join', f'broker-{broker}.join')}`",
            Exit.CONDITION,
        )


def _check(config: "MillConfig", own: int, as_json: bool) -> None:
    """Report which other hosts can be reached from here. End with code 5 if one cannot."""
    from appliance.mill.parts import Placement, voters

    reasons: dict[int, str | None] = {}
    for number, address in voters(config, Placement(broker=own)).items():
        if number != own:
            reasons[number] = dial_fault(address, CHECK_DIAL_S)
    data = {
        "broker": own,
        "hosts": [{"broker": number, "reason": reason} for number, reason in reasons.items()],
    }
    lost = {number: reason for number, reason in reasons.items() if reason is not None}
    text = "the join file is valid, and nothing was changed"
    tell(text, "join-broker-check/1", data, as_json)
    for number, reason in lost.items():
        say(
            f"millrace: broker {number} cannot be reached from this host: {reason}; check"
            " cluster.hosts, that the mill runs there, and that no firewall closes the port"
        )
    if lost:
        raise typer.Exit(Exit.UNREACHABLE)
