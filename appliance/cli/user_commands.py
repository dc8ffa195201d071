"""`millrace user`: the users that log in to the brokers, and with `--page` to the page."""

from typing import Annotated

import typer

from appliance.cli import context
from appliance.cli.cluster import (
    TIMEOUT_S,
    BootstrapOption,
    JsonOption,
    OutputFormat,
    OutputOption,
    TimeoutOption,
    YesOption,
    confirm,
    emit,
    with_cluster,
)
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.output import CommandError, Exit, tell

app = group_of_commands("Users that log in to the brokers, and people who log in to the page.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
PasswordFileOption = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        help="A file with the password, or - for standard input; without it you are asked.",
    ),
]
PageOption = Annotated[
    bool, typer.Option("--page", help="A person who logs in to the page, not to the brokers.")
]
RoleOption = Annotated[
    str | None, typer.Option("--role", help="With --page: viewer, or operator (gives orders).")
]


@app.command("list")
def list_users(
    page: PageOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """List the users, with their mechanisms; with --page, people with their roles."""
    if page:
        from appliance.cli import page_people

        page_people.refuse_cluster_options([("--bootstrap-server", bootstrap)])
        page_people.list_people(output, as_json)
        return
    from protocol.client.user_admin import describe_users

    found = with_cluster(bootstrap, timeout, describe_users)
    rows = [
        {"user": name, "mechanisms": [one.sasl_name for one in sorted(credentials)]}
        for name, credentials in sorted(found.items())
    ]
    emit("users/1", rows, output, as_json, heads=("user", "mechanisms"), nothing="no users")


@app.command()
def add(
    name: NameArgument,
    page: PageOption = False,
    role: RoleOption = None,
    password_file: PasswordFileOption = None,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Create a user, for SCRAM-SHA-256 and SCRAM-SHA-512; with --page, a person with a role."""
    if page:
        from appliance.cli import page_people

        page_people.refuse_cluster_options([("--bootstrap-server", bootstrap)])
        page_people.add_person(name, role, password_file, as_json)
        return
    if role is not None:
        raise CommandError("--role is for people of the page: add --page", Exit.USAGE)
    from appliance.kafka import users

    password = users.read_password(name, password_file)
    with_cluster(bootstrap, timeout, lambda cluster: users.add(cluster, name, password))
    tell(f"user {name} can log in", "user/1", {"user": name, "change": "added"}, as_json)


@app.command()
def password(
    name: NameArgument,
    page: PageOption = False,
    password_file: PasswordFileOption = None,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Change a user's password; connections and sessions of the user end."""
    if page:
        from appliance.cli import page_people

        page_people.refuse_cluster_options([("--bootstrap-server", bootstrap)])
        page_people.change_password(name, password_file, as_json)
        return
    from appliance.kafka import users

    if _is_of_the_parts(name, bootstrap):
        raise CommandError(
            f"nothing was changed: {name} is the user of the mill's own parts. The mill makes its"
            " password (data/secrets/mill/password on each host)",
            Exit.CONDITION,
        )
    given = users.read_password(name, password_file)
    with_cluster(bootstrap, timeout, lambda cluster: users.change(cluster, name, given))
    text = f"user {name} has another password; its connections have ended"
    tell(text, "user/1", {"user": name, "change": "password"}, as_json)


def _is_of_the_parts(name: str, bootstrap: str | None) -> bool:
    """Return True if the parts of this mill log in as this user."""
    from appliance.mill.parts import ENTRY_USER

    if bootstrap is not None or name != ENTRY_USER:
        return False
    return context.mill_as_it_runs().config.cluster.hosts is not None


@app.command()
def remove(
    name: NameArgument,
    page: PageOption = False,
    bootstrap: BootstrapOption = None,
    yes: YesOption = False,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Remove a user and its ACLs; connections and sessions of the user end."""
    if page:
        from appliance.cli import page_people

        page_people.refuse_cluster_options([("--bootstrap-server", bootstrap)])
        page_people.remove_person(name, yes, as_json)
        return
    from appliance.kafka import users
    from appliance.mill.parts import local_entry, main_broker

    with_cluster(bootstrap, timeout, lambda cluster: users.existing(cluster, name))
    lines = [f"user {name} and its ACLs will be removed, and its connections will end"]
    if _is_of_the_parts(name, bootstrap):
        lines.append(
            f"{name} is the user of the mill's own parts: they stop working until the main host has"
            " written the user again, within a minute"
        )
        # The removal ends the connections of the user, so its answer comes by another listener.
        mill = context.mill_as_it_runs()
        own = mill.placement.broker or main_broker(mill.config)
        bootstrap = local_entry(mill.config, mill.placement, own)
    if with_cluster(bootstrap, timeout, lambda cluster: users.is_last_super_user(cluster, name)):
        lines.append(
            f"{name} is the last super user with a password: from their next start on, the brokers"
            " do not open the listener with logins until another super user has a password"
        )
    confirm(lines, yes)
    with_cluster(bootstrap, timeout, lambda cluster: users.remove(cluster, name))
    tell(f"user {name} is removed", "user/1", {"user": name, "change": "removed"}, as_json)
