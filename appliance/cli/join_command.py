"""`millrace join`: make this host a collector or a broker of a mill, with a file from that mill."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli import context
from appliance.cli.options import EnvelopeOption
from appliance.cli.progress import waiting
from appliance.machine.files import PUBLIC, write_atomically
from appliance.mill.home import Home
from appliance.output import CommandError, Exit, counted, say, tell
from protocol.units import format_moment_ms

if TYPE_CHECKING:
    from appliance.enrol.entering import MillSeen, MillTarget
    from appliance.enrol.host_files import HostFiles, Joined
    from appliance.enrol.join_file import JoinFile
    from appliance.mill.settings import Mill

STDIN = "-"


def join(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE|-]", help="The join file; - for standard input.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only test the connection; the file stays valid.")
    ] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="Make another password for a host that has joined.")
    ] = False,
    as_json: EnvelopeOption = False,
) -> None:
    """Make this host a collector or a broker of a mill; the same command continues."""
    if file is not None and renew:
        raise CommandError("--renew needs no join file", Exit.USAGE)
    if check and renew:
        raise CommandError("expected either --check or --renew", Exit.USAGE)
    if file is None and not (renew or check):
        raise CommandError(
            "expected a join file; on the main host of the mill `millrace enrol collector NAME`"
            " writes the one of a collector, and `millrace enrol broker N` the one of a broker",
            Exit.USAGE,
        )
    from appliance.enrol.host_files import HostFiles

    files = HostFiles(context.home())
    text = None if file is None else read_file(file)
    if file is not None and text is not None and _is_of_a_broker(text):
        from appliance.cli.join_broker import join_as_broker

        join_as_broker(text, file, check=check, as_json=as_json)
        return
    if context.in_containers():
        raise CommandError(
            "a collector does not join in containers: run `millrace join` on the host itself",
            Exit.CONDITION,
        )
    if file is not None and text is not None:
        parsed = _parsed(text)
        _refuse_other_mill(files, parsed)
        if check:
            _check_with_file(parsed, as_json)
        else:
            with files.locked():
                _join(files, parsed, file, as_json)
        return
    mill, known = joined_mill(files)
    if check:
        _check_joined(files, _configured_target(mill), known, as_json)
    else:
        with files.locked():
            _renew(files, _configured_target(mill), known, as_json)


def read_file(file: str) -> str:
    """Return the text of a join file. Raises CommandError."""
    from appliance.enrol.envelope import JOIN_BYTES_MAX

    try:
        if file == STDIN:
            data = sys.stdin.buffer.read(JOIN_BYTES_MAX)
        else:
            with Path(file).open("rb") as source:
                data = source.read(JOIN_BYTES_MAX)
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}", Exit.USAGE) from error
    return data.decode("utf-8", "replace")


def _is_of_a_broker(text: str) -> bool:
    """Return True if a join file is that of a broker. Raises CommandError."""
    from appliance.enrol.broker_file import BROKER
    from appliance.enrol.envelope import JoinFileFault, kind_of

    try:
        return kind_of(text) == BROKER
    except JoinFileFault as error:
        raise CommandError(f"{error}", Exit.USAGE) from None


def _parsed(text: str) -> "JoinFile":
    """Return the join file of a collector. Raises CommandError, whose text shows nothing of the
    file."""
    from appliance.enrol.envelope import JoinFileFault
    from appliance.enrol.join_file import check_time, parse

    now_ms = time.time_ns() // 1_000_000
    try:
        found = parse(text)
        check_time(found, now_ms, format_moment_ms(now_ms))
    except JoinFileFault as error:
        raise CommandError(f"{error}", Exit.USAGE) from None
    return found


def _refuse_other_mill(files: "HostFiles", join: "JoinFile") -> None:
    """Raise CommandError if this folder belongs to another cluster."""
    if files.has_brokers():
        raise CommandError(
            f"{context.home().folder} is the folder of a mill with brokers of its own, so this host"
            " cannot join another mill from it: set MILLRACE_HOME to another folder",
            Exit.CONDITION,
        )
    known = files.joined()
    if known is not None and (known.cluster_id, known.name) != (join.cluster_id, join.name):
        before, found = f"as {known.name}", join.name
        if known.cluster_id != join.cluster_id:
            before = f"cluster {known.cluster_id} {before}"
            found = f"{found} of cluster {join.cluster_id}"
        raise CommandError(
            f"{context.home().folder} has joined {before}, but the join file is for {found}: set"
            " MILLRACE_HOME to another folder",
            Exit.CONDITION,
        )


def _join(files: "HostFiles", join: "JoinFile", file: str, as_json: bool) -> None:
    from appliance.enrol.host_files import Joined
    from appliance.enrol.joining import Joining

    home = context.home()
    with _unconfirmed_ca(join) as ca:
        joining = Joining(
            files,
            _target_of(join, ca),
            join.secret,
            lambda: _write_config(home, join),
            joined=Joined(join.cluster_id, join.name, files.machine_id()),
            has_config=_has_config(home, join),
        )
        with waiting(f"joining {join.addresses[0]}"):
            joining.run()
    assert joining.seen is not None, "the last step has looked at the mill"
    _refuse_other_cluster(joining.seen, join.cluster_id)
    _write_ca(home, join)
    words = [f"this host has joined as collector {join.name}"]
    if file != STDIN:
        words.append(f"delete {file}, because it cannot be used again")
    words.append(f"write into {home.config_file} which files to read, and then type")
    words.append("  millrace collector run")
    _tell(words, joining.seen, join.name, as_json)


def _has_config(home: Home, join: "JoinFile") -> bool:
    """Return True if the host has a configuration for this user. Raises CommandError if it has
    another one."""
    if not home.config_file.exists():
        return False
    if _configured_user(home) != join.user:
        raise CommandError(
            f"{home.config_file} is not the configuration of collector {join.name}, and `join` does"
            " not overwrite it: set MILLRACE_HOME to an empty folder, or move the file away",
            Exit.CONDITION,
        )
    return True


def _configured_user(home: Home) -> object:
    """Return `cluster.security.user` of the configuration file; None without one. Raises
    ConfigFaults.

    The files with the password and the CA can be missing, because `join` writes them.
    """
    from appliance.config.links import SECTION
    from appliance.config.sound import FaultyConfig

    try:
        security = context.load_mill(home)[0].config.cluster.security
    except FaultyConfig as error:
        if not error.document.faulty <= {(*SECTION, "password"), (*SECTION, "ca")}:
            raise
        node: object = error.document.root
        for key in (*SECTION, "user"):
            node = node.get(key) if isinstance(node, dict) else None
        return node
    return None if security is None else security.user


@contextmanager
def _unconfirmed_ca(join: "JoinFile") -> Iterator[str | None]:
    """Return the path of a temporary file with the CA of the join file; None if it has no CA.

    A running collector trusts the CA in the host's folder, so that file is not replaced before the
    mill has accepted the host.
    """
    if join.ca is None:
        yield None
        return
    with NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(join.ca)
        file.flush()
        yield file.name


def _write_ca(home: Home, join: "JoinFile") -> None:
    from appliance.enrol.host_config import CA_FILE

    if join.ca is not None:
        write_atomically(home.folder / CA_FILE, join.ca.encode(), mode=PUBLIC)


def _write_config(home: Home, join: "JoinFile") -> None:
    """Write the CA and the configuration. The CA is first, because the configuration names it."""
    from appliance.enrol.host_config import EXAMPLE_FOLDER, config_text

    _write_ca(home, join)
    home.config_file.parent.mkdir(parents=True, exist_ok=True)
    (home.folder / EXAMPLE_FOLDER).mkdir(parents=True, exist_ok=True)
    write_atomically(home.config_file, config_text(join).encode(), mode=PUBLIC)


def _target_of(join: "JoinFile", ca: str | None) -> "MillTarget":
    """Return the mill that a join file names. Raises CommandError if its addresses are wrong."""
    from appliance.enrol.entering import MillTarget
    from protocol.client.bootstrap import parse_bootstrap_servers

    try:
        addresses = tuple(parse_bootstrap_servers(",".join(join.addresses)))
    except ValueError as error:
        raise CommandError(f"the join file has a wrong address: {error}", Exit.USAGE) from error
    return MillTarget(addresses, ca, join.user, join.mechanism)


def _check_with_file(join: "JoinFile", as_json: bool) -> None:
    """Dial all brokers with the secret of the join file, which stays valid."""
    import asyncio

    from appliance.enrol.entering import SecretRefused, look
    from appliance.enrol.joining import used_text

    with _unconfirmed_ca(join) as ca:
        try:
            with waiting(f"asking {join.addresses[0]}"):
                seen = asyncio.run(look(_target_of(join, ca), join.secret))
        except SecretRefused as error:
            raise CommandError(used_text(join.name), Exit.CONDITION) from error
    _refuse_other_cluster(seen, join.cluster_id)
    _tell(["the join file is valid, and nothing was changed"], seen, join.name, as_json)


def _configured_target(mill: "Mill") -> "MillTarget":
    """Return the listeners and the user in the configuration of a host that has joined."""
    from appliance.enrol.entering import MillTarget
    from protocol.client.bootstrap import parse_bootstrap_servers
    from protocol.security.scram import MECHANISMS

    cluster = mill.config.cluster
    security = cluster.security
    assert security is not None and security.user is not None, "checked by joined_mill"
    return MillTarget(
        tuple(parse_bootstrap_servers(cluster.bootstrap_servers or "")),
        None if security.ca is None else str(mill.home.folder / security.ca),
        security.user,
        MECHANISMS[security.mechanism],
    )


def joined_mill(files: "HostFiles") -> "tuple[Mill, Joined]":
    """Return the configuration of a host that has joined, and the record of it. Raises
    CommandError."""
    known = files.joined()
    if known is None:
        raise CommandError(
            "this host has not joined a mill: run `millrace join FILE` with a join file, which"
            " `millrace enrol collector NAME` writes on a host of the mill",
            Exit.CONDITION,
        )
    mill, _ = context.load_mill()
    security = mill.config.cluster.security
    if security is None or security.user is None:
        raise CommandError(
            f"{mill.home.config_file} has no cluster.security.user, which `join` has written there:"
            " write it again, or move the file away and run `millrace join FILE` again",
            Exit.CONDITION,
        )
    return mill, known


def _renew(files: "HostFiles", target: "MillTarget", known: "Joined", as_json: bool) -> None:
    from appliance.enrol.joining import Joining

    joining = Joining(files, target, None, lambda: None, joined=known, has_config=True, renews=True)
    with waiting("making another password"):
        joining.run()
    assert joining.seen is not None, "the last step has looked at the mill"
    words = ["this host has a new password, which a running collector uses without a restart"]
    _tell(words, joining.seen, known.name, as_json)


def _check_joined(files: "HostFiles", target: "MillTarget", known: "Joined", as_json: bool) -> None:
    import asyncio

    from appliance.enrol.entering import SecretRefused, look
    from appliance.enrol.joining import LOST
    from appliance.enrol.plan import Secret

    try:
        with waiting("asking the mill"):
            seen = asyncio.run(look(target, files.read(Secret.PASSWORD)))
    except SecretRefused as error:
        raise CommandError(LOST, Exit.CONDITION) from error
    _refuse_other_cluster(seen, known.cluster_id)
    _tell([f"collector {known.name} can log in"], seen, known.name, as_json)


def _refuse_other_cluster(seen: "MillSeen", cluster_id: str) -> None:
    if seen.cluster_id != cluster_id:
        raise CommandError(
            f"the brokers at the addresses of the join file are of cluster {seen.cluster_id}, but"
            f" the join file is for cluster {cluster_id}: make another join file at the mill",
            Exit.CONDITION,
        )


def _tell(words: list[str], seen: "MillSeen", name: str, as_json: bool) -> None:
    """Print the result. End with code 5 if this host cannot reach every broker."""
    lost = [
        {"broker": one.node_id, "address": one.address, "reason": one.reason}
        for one in seen.unreachable
    ]
    words.append(f"{counted(seen.broker_count - len(lost), 'broker')} can be reached")
    data = {"name": name, "brokers": seen.broker_count, "unreachable": lost}
    tell("\n".join(words), "join/1", data, as_json)
    for one in lost:
        say(
            f"millrace: broker {one['broker']} cannot be reached from this host: {one['reason']};"
            " the collector needs every broker at the address that it advertises"
            " (network.names at the mill)"
        )
    if lost:
        raise typer.Exit(Exit.UNREACHABLE)
