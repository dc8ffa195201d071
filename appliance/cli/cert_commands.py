"""`millrace cert`: the mill's own CA, and the certificates of its parts."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from appliance.cli import context
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.config.model import SERVERS
from appliance.mill.certificates import ShownCertificate, holders_of, renew, shown
from appliance.mill.settings import Mill
from appliance.output import CommandError, Exit, counted, out, print_json, print_table, say

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
        say(f"due: {one.owner}; {one.remedy}")
    if due:
        raise typer.Exit(Exit.CONDITION)


@app.command("renew")
def renew_certificates(
    part: Annotated[
        str | None, typer.Option("--for", help="Only this part, such as broker-2.")
    ] = None,
    as_json: EnvelopeOption = False,
) -> None:
    """Make new certificates for the parts, and the CA if there is none; works when stopped."""
    mill, _ = context.load_mill()
    holders = holders_of(mill.config)
    if not holders:
        raise CommandError(_no_holder(mill))
    known = [one.part for one in holders]
    if part is not None and part not in known:
        raise CommandError(f"--for {part}: expected one of {', '.join(known)}", Exit.USAGE)
    chosen = [one for one in holders if part in (None, one.part)]
    written = renew(mill.home, chosen, datetime.now(UTC))
    if as_json:
        print_json("cert-renewed/1", [{"file": str(path)} for path in written])
        return
    for path in written:
        out(str(path.relative_to(mill.home.folder)))
    say(f"wrote {counted(len(written), 'file')}; clients trust {mill.home.data / 'ca.pem'}")
    for one in chosen:
        if one.part in SERVERS:
            say(f"`{context.typed(f'restart {one.part}')}` lets {one.part} use its certificate")


def _no_holder(mill: Mill) -> str:
    """Return the reason why no part has a certificate of the mill's CA."""
    if mill.config.network.tls.certificate is not None:
        return (
            "the brokers use your own files (network.tls), which only you can renew: write the new"
            " certificate and key over them, and the brokers use them without a restart"
        )
    return "this mill has no brokers of its own: cluster.bootstrap_servers is set"


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
