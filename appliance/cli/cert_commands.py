"""`millrace cert`: the mill's own CA, and the certificates of its parts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli import context
from appliance.cli.enrol_broker import (
    new_certificate,
    refuse_output,
    refuse_without_authority,
    write_private,
)
from appliance.cli.help_lines import group_of_commands
from appliance.cli.join_command import read_file
from appliance.cli.options import EnvelopeOption
from appliance.config.network_section import SERVERS
from appliance.mill.certificate_holders import holders_of, local_holders
from appliance.mill.certificates import ShownCertificate, renew, shown
from appliance.mill.init import share_entry
from appliance.mill.parts import BROKER_PREFIX
from appliance.mill.settings import Mill
from appliance.output import CommandError, Exit, counted, out, print_json, print_table, say, tell

app = group_of_commands("The mill's own CA, and the certificates of its parts.")


@app.command()
def show(as_json: EnvelopeOption = False) -> None:
    """Show the certificates with their names and ends; exit code 3 when one ends within 60 days."""
    mill, _ = context.load_mill()
    now = datetime.now(UTC)
    found = shown(mill.home, mill.config)
    if not found:
        raise CommandError(
            f"this mill has no certificates; `{context.typed('cert renew')}` makes them",
            Exit.NOT_FOUND,
        )
    if as_json:
        print_json("cert/1", [_row(one, now) for one in found])
    else:
        heads = ["OF", "NAMES", "ENDS", "DAYS_LEFT", "FILE"]
        print_table(heads, [_cells(one, now) for one in found], right=frozenset({3}))
    due = [one for one in found if one.is_due(now)]
    for one in due:
        say(f"certificate of {one.owner}: {one.end_text(now)}; {one.remedy}")
    if due:
        raise typer.Exit(Exit.CONDITION)


@app.command("renew")
def renew_certificates(
    part: Annotated[
        str | None, typer.Option("--for", help="Only this part, such as broker-2.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="The folder for the file of another host, or -: print it."),
    ] = None,
    as_json: EnvelopeOption = False,
) -> None:
    """Make new certificates for the parts, and the CA if there is none; works when stopped.

    The certificate of a broker on another host is written into a file for `cert install` there.
    """
    mill, _ = context.load_mill()
    refuse_without_authority(mill)
    holders = local_holders(mill.home, mill.config)
    everywhere = [one.part for one in holders_of(mill.config)]
    others = [one for one in everywhere if one not in {one.part for one in holders}]
    if part in others:
        _write_for_another_host(mill, part, folder, as_json)
        return
    if not holders:
        raise CommandError(_no_holder(mill))
    if part is not None and part not in everywhere:
        raise CommandError(f"--for {part}: expected one of {', '.join(everywhere)}", Exit.USAGE)
    if folder is not None:
        raise CommandError(
            "--out is for the certificate of a broker on another host (--for): the others stay in"
            f" {mill.home.secrets}",
            Exit.USAGE,
        )
    chosen = [one for one in holders if part in (None, one.part)]
    written = renew(mill.home, chosen, datetime.now(UTC))
    share_entry(mill.home)
    if as_json:
        print_json("cert-renewed/1", [{"file": str(path)} for path in written])
        return
    for path in written:
        out(str(path.relative_to(mill.home.folder)))
    say(f"wrote {counted(len(written), 'file')}; clients trust {mill.home.data / 'ca.pem'}")
    for one in chosen:
        if one.part in SERVERS:
            restart = "docker compose" if mill.placement.in_containers else "./millrace"
            say(f"`{restart} restart {one.part}` lets {one.part} use its certificate")
    for other in others if part is None else ():
        typed = mill.home.writes(f"cert renew --for {other}", f"{other}.cert")
        say(f"{other} is on another host: `{typed}` writes its file")


def _write_for_another_host(mill: Mill, part: str, folder: Path | None, as_json: bool) -> None:
    """Write a file with a new certificate for a broker of another host."""
    from appliance.enrol.broker_file import encode_certificate

    name = f"{part}.cert"
    refuse_output(mill.home, folder, f"cert renew --for {part}", name, as_json=as_json)
    hosts = mill.config.cluster.hosts or {}
    number = int(part.removeprefix(BROKER_PREFIX))
    text = encode_certificate(new_certificate(mill, number))
    path = write_private(folder, name, text)
    words = (
        f"{f'printed {name}' if path is None else f'wrote {path}'}; copy it to {hosts[number]} and"
        f" type there\n  {mill.home.reads('cert install', name)}\n"
        "then delete it on both hosts: it has the key of the broker"
    )
    if path is None:
        say(words)
        return
    tell(words, "cert-renewed/1", [{"file": str(path)}], as_json)


@app.command()
def install(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="- for standard input.")],
    as_json: EnvelopeOption = False,
) -> None:
    """Use the certificate that `cert renew --for` has written on the main host; no restart."""
    from appliance.enrol import broker_host
    from appliance.enrol.broker_file import parse_certificate
    from appliance.enrol.envelope import JoinFileFault
    from appliance.mill.hosts import HostRecord, read_record

    try:
        leaf = parse_certificate(read_file(file))
    except JoinFileFault as error:
        raise CommandError(f"{error}", Exit.USAGE) from None
    home = context.home()
    record = read_record(home)
    if record is None:
        raise CommandError(
            "this host has not joined a mill on several hosts; on the main host `./millrace cert"
            " renew` makes its certificate",
            Exit.CONDITION,
        )
    if record != HostRecord(leaf.cluster_id, leaf.broker):
        raise CommandError(
            f"the file {file} is for broker {leaf.broker} of cluster {leaf.cluster_id}, but this"
            f" host has broker {record.broker} of cluster {record.cluster_id}: install the file on"
            " the host of its broker",
            Exit.CONDITION,
        )
    broker_host.refuse_leaf(leaf, datetime.now(UTC))
    broker_host.install(home, leaf)
    share_entry(home)
    words = f"broker {leaf.broker} has the new certificate; delete the file"
    tell(words, "cert-installed/1", {"broker": leaf.broker}, as_json)


def _no_holder(mill: Mill) -> str:
    """Return the reason why no part has a certificate of the mill's CA."""
    if mill.config.network.tls.certificate is not None:
        return (
            "the brokers use your own files (network.tls), which only you can renew: write the new"
            " certificate and key over them, and the brokers use them without a restart"
        )
    return (
        "this mill has no certificates, because it has no brokers of its own"
        " (cluster.bootstrap_servers is set)"
    )


def _row(one: ShownCertificate, now: datetime) -> dict[str, object]:
    return {
        "of": one.owner,
        "file": str(one.path),
        "names": list(one.names),
        "ends_at": None if one.fault else one.ends_at.isoformat(),
        "days_left": None if one.fault else one.days_left(now),
        "fault": one.fault or None,
    }


def _cells(one: ShownCertificate, now: datetime) -> list[str]:
    if one.fault:
        return [one.owner, one.fault, "-", "-", str(one.path)]
    ends = one.ends_at.strftime("%Y-%m-%d")
    return [one.owner, ", ".join(one.names) or "-", ends, str(one.days_left(now)), str(one.path)]
