"""`millrace token`: tokens with which scripts read the page and its API."""

import time
from typing import Annotated

import typer

from appliance.cli import context
from appliance.cli.cluster import JsonOption, OutputFormat, OutputOption, YesOption, confirm, emit
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.output import CommandError, Exit, out, print_json, say, tell, utc_text
from protocol.units import parse_duration_ms

app = group_of_commands("Tokens with which scripts read the page and its API.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
DAY_MS = 86_400_000


@app.command()
def add(
    name: NameArgument,
    role: Annotated[str, typer.Option("--role", help="viewer; scripts give no orders.")] = "viewer",
    expires: Annotated[
        str, typer.Option("--expires", help="How long it is valid, such as 90d.")
    ] = "90d",
    as_json: EnvelopeOption = False,
) -> None:
    """Create a token and print it. No other command shows it again."""
    from appliance.cli.page_people import check_name, home_of_page
    from appliance.mill import page_logins
    from monitor.login.people import PageRole

    check_name(name)
    if role != PageRole.VIEWER:
        expected = "viewer: only people can give orders, on the page"
        raise CommandError(f"found --role {role}, expected {expected}", Exit.USAGE)
    try:
        life_ms = parse_duration_ms(expires)
    except ValueError as error:
        raise CommandError(f"--expires: {error}", Exit.USAGE) from error
    ends_at_ms = round(time.time() * 1000) + life_ms
    text, token = page_logins.new_token(name, PageRole.VIEWER, ends_at_ms)
    with page_logins.changed_tokens(home_of_page()) as tokens:
        if name in tokens:
            raise CommandError(
                f"token {name} already exists; `{context.typed(f'token remove {name}')}` removes it"
            )
        tokens[name] = token
    if as_json:
        row = {"name": name, "role": role, "ends_at_ms": ends_at_ms, "token": text}
        print_json("token/1", row)
        return
    out(text)
    say(
        "send the token in the header `Authorization: Bearer TOKEN`; it is valid until"
        f" {utc_text(ends_at_ms)}"
    )


@app.command("list")
def list_tokens(output: OutputOption = OutputFormat.TABLE, as_json: JsonOption = False) -> None:
    """List the tokens, with their roles and ends."""
    from appliance.cli.page_people import home_of_page
    from appliance.mill import page_logins

    now_ms = round(time.time() * 1000)
    rows = [
        {
            "name": one.name,
            "role": str(one.role),
            "ends_at": None if one.ends_at_ms is None else utc_text(one.ends_at_ms),
            "state": "ended" if one.has_ended(now_ms) else "valid",
        }
        for one in page_logins.tokens(home_of_page()).values()
    ]
    heads = ("name", "role", "ends_at", "state")
    emit("tokens/1", rows, output, as_json, heads=heads, nothing="no tokens")


@app.command()
def remove(name: NameArgument, yes: YesOption = False, as_json: EnvelopeOption = False) -> None:
    """Remove a token; scripts that send it are refused at once."""
    from appliance.cli.page_people import home_of_page
    from appliance.mill import page_logins

    home = home_of_page()
    if name not in page_logins.tokens(home):
        raise CommandError(f"there is no token {name}", Exit.NOT_FOUND)
    confirm([f"scripts that send the token {name} will be refused"], yes)
    with page_logins.changed_tokens(home) as tokens:
        tokens.pop(name, None)
    tell(f"token {name} is removed", "token/1", {"name": name, "change": "removed"}, as_json)
