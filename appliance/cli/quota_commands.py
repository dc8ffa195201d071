"""`millrace quota`: how many bytes, connections and how much of a thread clients may use."""

from typing import Annotated

import typer

from appliance.cli.cluster import (
    TIMEOUT_S,
    BootstrapOption,
    JsonOption,
    OutputFormat,
    OutputOption,
    TimeoutOption,
    emit,
    with_cluster,
)
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.output import CommandError, Exit, counted, tell

app = group_of_commands("How much clients may send, read and ask.")

UserOption = Annotated[str | None, typer.Option("--user", help="This user.")]
DefaultUserOption = Annotated[
    bool, typer.Option("--default-user", help="Each user without a quota of its own.")
]
ClientOption = Annotated[str | None, typer.Option("--client-id", help="This client id.")]
DefaultClientOption = Annotated[
    bool, typer.Option("--default-client-id", help="Each client id without a quota of its own.")
]
IpOption = Annotated[str | None, typer.Option("--ip", help="This address.")]
DefaultIpOption = Annotated[
    bool, typer.Option("--default-ip", help="Each address without a quota of its own.")
]

COLUMNS = ("for", "produce", "consume", "requests", "mutations", "connections")


@app.command("list")
def list_quotas(
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """List the quotas; each broker applies them separately."""
    from appliance.kafka import quotas
    from protocol.client.quota_admin import describe_quotas

    found = with_cluster(bootstrap, timeout, describe_quotas)
    rows = [quotas.row_of(entity, dict(values)) for entity, values in found.items()]
    rows.sort(key=lambda row: str(row["for"]))
    emit("quotas/1", rows, output, as_json, heads=COLUMNS, nothing="no quotas")


@app.command("set")
def set_quotas(
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="VALUES",
            help="produce=SIZE, consume=SIZE, requests=PERCENT, mutations=NUMBER,"
            " connections=NUMBER.",
        ),
    ],
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientOption = None,
    default_client_id: DefaultClientOption = False,
    ip: IpOption = None,
    default_ip: DefaultIpOption = False,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Limit bytes, changed partitions and connections per second, and the share of a thread in per
    cent, on each broker separately."""
    from appliance.kafka import quotas
    from protocol.client.quota_admin import alter_quotas

    entity = quotas.entity_named(user, default_user, client_id, default_client_id, ip, default_ip)
    changes = quotas.values_of(values)
    with_cluster(bootstrap, timeout, lambda cluster: alter_quotas(cluster, entity, changes))
    row = quotas.row_of(entity, {key: value for key, value in changes.items() if value})
    limits = ", ".join(f"{word} {row[word]}" for word in quotas.WORDS if row[word])
    tell(f"{row['for']}: {limits}", "quota/1", {**row, "change": "set"}, as_json)


@app.command()
def remove(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAMES]", help="produce, consume, requests, mutations, connections; else all."
        ),
    ] = None,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientOption = None,
    default_client_id: DefaultClientOption = False,
    ip: IpOption = None,
    default_ip: DefaultIpOption = False,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Remove quotas; clients that pause because of one continue at once."""
    from appliance.kafka import quotas
    from protocol.client.quota_admin import alter_quotas

    entity = quotas.entity_named(user, default_user, client_id, default_client_id, ip, default_ip)
    keys = quotas.keys_of(names or ())
    present = with_cluster(bootstrap, timeout, lambda one: quotas.quotas_of(one, entity))
    changes: dict[str, float | None] = dict.fromkeys(key for key in keys if key in present)
    row = quotas.row_of(entity, {key: present[key] for key in changes})
    if not changes:
        raise CommandError(
            f"{row['for']} has none of these quotas; `millrace quota list` shows the quotas",
                           Exit.NOT_FOUND)  # fmt: skip
    with_cluster(bootstrap, timeout, lambda cluster: alter_quotas(cluster, entity, changes))
    text = f"{row['for']}: removed {counted(len(changes), 'quota')}"
    tell(text, "quota/1", {**row, "change": "removed"}, as_json)
