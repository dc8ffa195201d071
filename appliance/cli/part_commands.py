"""Commands that become a part's process or prepare one: run, supervise, init."""

import asyncio
import logging
import pwd
from datetime import UTC, datetime
from typing import Annotated

import typer

from appliance.cli import context
from appliance.cli.options import EnvelopeOption
from appliance.cli.other_hosts import refuse_wrong_host
from appliance.launch.servers import write_container_files
from appliance.mill.certificates import make_needed
from appliance.mill.host_secrets import initialise_mill
from appliance.mill.init import give, renew_readers, share_entry, write_shipped_config
from appliance.mill.parts import ENTRY_KEEPER, has_other_parts
from appliance.mill.settings import collector_wish, encode_settings, monitor_wish, stream_wish
from appliance.output import CommandError, Exit, counted, out, print_json, say


def run(part: Annotated[str, typer.Argument(help="broker-1, collector, stream, …")]) -> None:
    """Become one part's process. The supervisor and every container start parts this way."""
    from appliance.launch.run import UnknownPart, become

    if part == ENTRY_KEEPER and context.in_containers():
        _keep_entry_user()
    mill, _ = context.load_mill()
    try:
        become(mill, part)
    except UnknownPart as error:
        raise CommandError(str(error), Exit.USAGE) from error


def _keep_entry_user() -> None:
    """Keep the user of the mill's parts until the container stops. Without containers the
    supervisor does it."""
    from appliance.supervisor.entry_user import EntryUser
    from protocol.log import configure

    configure(ENTRY_KEEPER, level=logging.INFO)
    asyncio.run(EntryUser(context.home()).keep())


def wish(
    collector: Annotated[bool, typer.Option("--collector", help="Of the collector.")] = False,
    monitor: Annotated[bool, typer.Option("--monitor", help="Of the monitor.")] = False,
) -> None:
    """Print the part's settings that can change while it runs; a running part asks for them when
    the file changes."""
    mill, _ = context.load_mill()
    wish_of = collector_wish if collector else monitor_wish if monitor else stream_wish
    found = wish_of(mill)
    out(encode_settings(found).decode())


def supervise(
    digest: Annotated[str, typer.Option(help="Digest of the configuration it is started with.")],
) -> None:
    """Run the supervisor itself; `up` does this in the background."""
    from appliance.supervisor.driver import Driver, MillAlreadyRunning, take_lock
    from appliance.supervisor.entry_user import keeper_of
    from appliance.supervisor.following import ConfigFollower
    from protocol.log import configure
    from protocol.status import VERSION

    configure("supervisor", level=logging.INFO)
    mill, _ = context.load_mill()
    try:
        take_lock(mill.home)
    except MillAlreadyRunning as error:
        raise CommandError(str(error)) from error
    following = ConfigFollower(mill.home, digest)
    keeper = keeper_of(mill)
    driver = Driver(
        mill.home,
        mill.parts,
        version=VERSION,
        following=following,
        beside=() if keeper is None else (keeper,),
    )
    asyncio.run(driver.run())


def init(
    owner: Annotated[
        list[str] | None,
        typer.Option(help="PART=USER: the owner of a part's secrets (containers)."),
    ] = None,
    as_json: EnvelopeOption = False,
) -> None:
    """Create ids and secrets that are missing; change nothing that exists."""
    if not context.in_containers() and write_shipped_config(context.home()):
        say(f"wrote {context.home().config_file}")
    mill, _ = context.load_mill()
    owners = dict(_owner(text) for text in owner or [])
    if mill.placement.in_containers and mill.config.cluster.hosts is not None:
        refuse_wrong_host(mill)
    made = initialise_mill(mill.home, mill.config, mill.placement)
    certificates = make_needed(mill.home, mill.config, datetime.now(UTC))
    secrets = mill.home.secrets
    names = [
        *made.names,
        *renew_readers(mill.home, mill.config.network.open),
        *(str(path.relative_to(secrets)) for path in certificates if path.is_relative_to(secrets)),
    ]
    if mill.placement.in_containers and has_other_parts(mill.config, mill.placement):
        write_container_files(mill)
    give(mill.home, owners)
    share_entry(mill.home)
    if as_json:
        print_json("init/1", [{"secret": name} for name in names])
        return
    for name in names:
        out(f"data/secrets/{name}")
    say(f"made {counted(len(names), 'file')}" if names else "no file was missing")


def _owner(text: str) -> tuple[str, tuple[int, int]]:
    """Parse `mysql=999`, `mysql=999:999` or `mysql=name` into the part and its ids."""
    part, _, user = text.partition("=")
    name, _, group = user.partition(":")
    try:
        uid = int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
        return part, (uid, int(group) if group else uid)
    except (KeyError, ValueError) as error:
        expected = "expected PART=USER, such as mysql=999"
        raise CommandError(f"--owner {text}: {expected}", Exit.USAGE) from error
