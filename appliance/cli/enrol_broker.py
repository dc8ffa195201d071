"""`millrace enrol broker`: write the join file with which another host runs one of the brokers."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.options import EnvelopeOption
from appliance.cli.other_hosts import refuse_wrong_host
from appliance.errors import reason_of
from appliance.machine.files import PRIVATE, write_atomically
from appliance.output import CommandError, Exit, say, tell
from appliance.output import out as print_text

if TYPE_CHECKING:
    from appliance.enrol.broker_file import BrokerCertificate, BrokerFile
    from appliance.mill.home import Home
    from appliance.mill.settings import Mill

STANDARD_OUTPUT = "-"
"""The value of `--out` with which a file is printed. A container has no folder of yours."""


def broker(
    number: Annotated[int, typer.Argument(metavar="N", help="The broker, such as 2.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder for the join file, or -: print it; default: this."),
    ] = None,
    as_json: EnvelopeOption = False,
) -> None:
    """Write a join file, with which another host runs broker N (cluster.hosts)."""
    from appliance.config.network_section import KAFKA
    from appliance.enrol.broker_file import SECTIONS, BrokerFile, encode_broker
    from appliance.enrol.envelope import JOIN_BYTES_MAX
    from appliance.mill.certificates import make_needed
    from appliance.mill.host_secrets import initialise_mill
    from appliance.mill.init import ENTRY_PASSWORD, LOGIN_SECRET, read_secret
    from appliance.mill.parts import BROKER_PREFIX, main_broker
    from appliance.mill.voter_folders import newest_voters
    from protocol.status import VERSION

    mill, loaded = context.load_mill()
    hosts, name = hosts_for(mill, number), f"broker-{number}.join"
    refuse_output(mill.home, out, f"enrol broker {number}", name, as_json=as_json)
    refuse_wrong_host(mill)
    initialise_mill(mill.home, mill.config, mill.placement)
    make_needed(mill.home, mill.config, datetime.now(UTC))
    own = f"{BROKER_PREFIX}{main_broker(mill.config)}"
    known = newest_voters(mill.home, (main_broker(mill.config),))
    joins = known is not None and number not in known.ids
    root = loaded.document.root
    sections: dict[str, Any] = {name: root[name] for name in SECTIONS if root.get(name)}
    # The page, Redis and MySQL are on the main host alone.
    sections["network"] = {**sections["network"], "open": [KAFKA]}
    found = BrokerFile(
        leaf=new_certificate(mill, number),
        version=VERSION,
        main_host=hosts[main_broker(mill.config)],
        login_secret=read_secret(mill.home, f"{own}/{LOGIN_SECRET}"),
        password=read_secret(mill.home, ENTRY_PASSWORD),
        sections=sections,
        joins=joins,
    )
    content = encode_broker(found)
    if len(content) > JOIN_BYTES_MAX:
        raise CommandError(
            f"the join file would have {len(content)} bytes, expected at most {JOIN_BYTES_MAX}: its"
            f" largest section is {max(sections, key=lambda one: len(str(sections[one])))}",
            Exit.CONDITION,
        )
    path = write_private(out, name, content)
    said = f"printed {name}" if path is None else f"wrote {path}"
    text = _what_to_do(mill, found, said, has_cluster=known is not None)
    if path is None:
        say(text)
        return
    data = {"broker": number, "host": hosts[number], "file": str(path), "joins": joins}
    tell(text, "enrol-broker/1", data, as_json)


def _what_to_do(mill: "Mill", file: "BrokerFile", said: str, *, has_cluster: bool) -> str:
    """Return what to do with a join file, and how the broker starts with it."""
    number = file.leaf.broker
    host, name = (mill.config.cluster.hosts or {})[number], f"broker-{number}.join"
    lines = [
        f"{said}, for one host: copy it to {host} and type there",
        f"  {mill.home.reads('join', name)}",
        f"  {mill.home.up}",
        "then delete it on both hosts: it has the key of the broker. If two hosts use it, the"
        " cluster accepts only one of them at a time as the broker",
    ]
    if file.joins:
        lines.append(f"broker {number} starts there with an empty disk and joins the other brokers")
    elif has_cluster:
        lines.append(
            f"broker {number} votes, and only with the disk that it has. If that disk or its host"
            f" is lost, type `{context.typed(f'broker replace-disk {number}')}` first, and then"
            " this command again"
        )
    return "\n".join(lines)


def refuse_output(home: "Home", out: Path | None, words: str, file: str, *, as_json: bool) -> None:
    """Raise CommandError if a secret file and JSON would both be printed, or if the file would be
    written into a container. `words` are the command, and `file` is the name of the file."""
    is_printed = out is not None and str(out) == STANDARD_OUTPUT
    if as_json and is_printed:
        raise CommandError(
            f"--out {STANDARD_OUTPUT} prints the file and nothing else, so it excludes --json",
            Exit.USAGE,
        )
    if home.in_containers and not is_printed:
        raise CommandError(
            "in containers this command only prints the file, because it sees no folder of this"
            f" host: run `{home.writes(words, file)}`",
            Exit.USAGE,
        )


def hosts_for(mill: "Mill", number: int) -> dict[int, str]:
    """Return the hosts. Raises CommandError unless this is the main host, and another host has the
    broker."""
    from appliance.mill.parts import main_broker

    config = mill.config
    if config.cluster.hosts is None:
        raise CommandError(
            "the brokers of this mill are on one machine: write the host of each broker into"
            " cluster.hosts first (docs/howto/three-hosts.md)",
            Exit.CONDITION,
        )
    hosts, main = dict(config.cluster.hosts), main_broker(config)
    if number not in hosts:
        known = ", ".join(map(str, hosts))
        raise CommandError(f"found broker {number}, expected one of {known}", Exit.USAGE)
    refuse_without_authority(mill)
    if number == main:
        raise CommandError(
            f"broker {number} runs on the main host, which has its files: type `{mill.home.up}`"
            " there",
            Exit.USAGE,
        )
    return hosts


def refuse_without_authority(mill: "Mill") -> None:
    """Raise CommandError if the key of the mill's CA is on another host."""
    from appliance.mill.parts import has_other_parts, main_broker

    hosts = mill.config.cluster.hosts
    if hosts is not None and not has_other_parts(mill.config, mill.placement):
        main = hosts[main_broker(mill.config)]
        raise CommandError(
            f"the key of the CA is on the main host, {main}: type this command there",
            Exit.CONDITION,
        )


def new_certificate(mill: "Mill", number: int) -> "BrokerCertificate":
    """Return a new certificate for a broker of another host. Raises CertificateFault."""
    from appliance.enrol.broker_file import BrokerCertificate
    from appliance.mill.certificate_holders import holders_of
    from appliance.mill.certificates import leaf_for_another_host
    from appliance.mill.init import read_secret
    from appliance.mill.parts import BROKER_PREFIX, main_broker

    part = f"{BROKER_PREFIX}{number}"
    [holder] = [one for one in holders_of(mill.config) if one.part == part]
    ca, leaf = leaf_for_another_host(mill.home, holder, datetime.now(UTC))
    own = f"{BROKER_PREFIX}{main_broker(mill.config)}"
    return BrokerCertificate(
        cluster_id=read_secret(mill.home, f"{own}/cluster_id"),
        broker=number,
        certificate=leaf.certificate.decode(),
        key=leaf.key.decode(),
        ca=ca.decode(),
    )


def write_private(folder: Path | None, name: str, text: str) -> Path | None:
    """Write a file that only its owner may read, and return its path; print it if the folder is
    `-`. Raises CommandError."""
    if folder is not None and str(folder) == STANDARD_OUTPUT:
        print_text(text.removesuffix("\n"))
        return None
    path = (Path.cwd() if folder is None else folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode(), mode=PRIVATE)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {reason_of(error)}") from error
    return path
