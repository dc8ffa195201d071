"""`millrace acl`: manages the rights of users on listeners that require a login."""

from typing import TYPE_CHECKING, Annotated

import typer

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
from appliance.output import CommandError, Exit, say, tell

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster
    from protocol.security.acl import AclEntry

app = group_of_commands("What users may do.")

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="A user, or * for every user.")]
OperationsArgument = Annotated[
    str,
    typer.Argument(
        metavar="OPERATIONS",
        help="One or more, separated by commas: all, read, write, create, delete, alter, describe,"
        " cluster-action, describe-configs, alter-configs, idempotent-write.",
    ),
]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", help="A topic, or * for all; repeatable.")
]
GroupOption = Annotated[
    list[str] | None, typer.Option("--group", help="A consumer group, or *; repeatable.")
]
TransactionalOption = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", help="A transactional id, or *; repeatable."),
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PrefixedOption = Annotated[
    bool, typer.Option("--prefixed", help="Take each name as a prefix of names.")
]
HostOption = Annotated[
    str, typer.Option("--host", help="Only from this address; * for all addresses.")
]
OnlyHostOption = Annotated[
    str | None,
    typer.Option(
        "--host", help="Only ACLs for this address; * selects the ACLs for all addresses."
    ),
]

COLUMNS = ("user", "permission", "operation", "resource", "name", "pattern", "host")


@app.command("list")
def list_acls(
    user: Annotated[
        str | None,
        typer.Option("--user", help="Only ACLs of this user; * selects the ACLs for every user."),
    ] = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """List ACLs: all, or those of a user or for a resource."""
    from appliance.kafka import acls

    named = acls.Resources(topic or (), group or (), transactional_id or (), cluster, prefixed)
    filters = acls.filters_of(user, None, named, None)
    found = with_cluster(bootstrap, timeout, lambda one: acls.matching(one, filters))
    rows = [acls.row_of(one) for one in found]
    emit("acls/1", rows, output, as_json, heads=COLUMNS, nothing="no ACLs")


@app.command()
def allow(
    user: UserArgument,
    operations: OperationsArgument,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    host: HostOption = "*",
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Allow a user operations on topics, groups, transactional ids or the cluster."""
    from appliance.kafka import acls
    from protocol.security.acl import AclPermission

    named = acls.Resources(topic or (), group or (), transactional_id or (), cluster, prefixed)
    entries = acls.entries_of(user, operations, named, host, AclPermission.ALLOW)
    _create(entries, bootstrap, timeout, as_json)


@app.command()
def deny(
    user: UserArgument,
    operations: OperationsArgument,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    host: HostOption = "*",
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Deny a user operations. A denial overrides every `allow`."""
    from appliance.kafka import acls
    from protocol.security.acl import AclPermission

    named = acls.Resources(topic or (), group or (), transactional_id or (), cluster, prefixed)
    entries = acls.entries_of(user, operations, named, host, AclPermission.DENY)
    _create(entries, bootstrap, timeout, as_json)


def _create(
    entries: "list[AclEntry]", bootstrap: str | None, timeout: float, as_json: bool
) -> None:
    from appliance.kafka import acls
    from protocol.client.acl_admin import create_acls

    async def create(cluster: "Cluster") -> list[str]:
        await create_acls(cluster, entries)
        return await acls.notes_on(cluster, entries)

    for note in with_cluster(bootstrap, timeout, create):
        say(f"note: {note}")
    text = "\n".join(acls.sentence_of(one) for one in entries)
    tell(text, "acl/1", {"change": "added", "acls": [acls.row_of(one) for one in entries]}, as_json)


@app.command()
def remove(
    user: UserArgument,
    operations: Annotated[
        str | None,
        typer.Argument(
            metavar="[OPERATIONS]",
            help="Only these operations, separated by commas; without it all operations.",
        ),
    ] = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: TransactionalOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    host: OnlyHostOption = None,
    bootstrap: BootstrapOption = None,
    yes: YesOption = False,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Remove a user's ACLs: all, or those for the named operations and resources."""
    from appliance.kafka import acls
    from protocol.client.acl_admin import delete_acls

    named = acls.Resources(topic or (), group or (), transactional_id or (), cluster, prefixed)
    filters = acls.filters_of(user, operations, named, host)
    found = with_cluster(bootstrap, timeout, lambda one: acls.matching(one, filters))
    if not found:
        raise CommandError(
            f"user {user} has none of these ACLs; `millrace acl list` shows the ACLs",
            Exit.NOT_FOUND,
        )
    confirm([f"this ACL will be removed: {acls.sentence_of(one)}" for one in found], yes)
    with_cluster(bootstrap, timeout, lambda one: delete_acls(one, filters))
    text = f"{len(found)} ACLs of user {user} are removed"
    tell(text, "acl/1", {"change": "removed", "acls": [acls.row_of(one) for one in found]}, as_json)


@app.command()
def explain(
    user: Annotated[str, typer.Argument(metavar="USER")],
    operation: Annotated[str, typer.Argument(metavar="OPERATION")],
    resource: Annotated[
        str,
        typer.Argument(
            metavar="RESOURCE", help="topic:NAME, group:NAME, transactional-id:NAME or cluster."
        ),
    ],
    host: Annotated[
        str, typer.Option("--host", help="The address that the user comes from.")
    ] = "127.0.0.1",
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Say whether a user may do something, and which ACL decides it."""
    from appliance.kafka import acls
    from protocol.security.acl import AclPermission

    (asked,) = acls.operations_of(operation)[:1]
    of = acls.resource_of(resource)
    found = with_cluster(bootstrap, timeout, acls.known_rights)
    entry = acls.deciding(found.entries, user, host, asked, of)
    is_super = user in found.super_users
    is_allowed = is_super or (entry is not None and entry.permission is AclPermission.ALLOW)
    if is_super:
        why = "a super user may do everything"
    elif entry is None:
        why = "no ACL allows it"
    else:
        why = f"because of this ACL: {acls.sentence_of(entry)}"
    verdict = "allowed" if is_allowed else "denied"
    told = {
        "user": user,
        "allowed": is_allowed,
        "super_user": is_super,
        "acl": None if entry is None or is_super else acls.row_of(entry),
    }
    tell(f"{verdict}: {why}", "acl-decision/1", told, as_json)
