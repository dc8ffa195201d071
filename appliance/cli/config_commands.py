"""`config`: check, show and reload the file; read and change settings of topics and brokers."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.cluster import (
    TIMEOUT_S,
    BootstrapOption,
    DryRunOption,
    JsonOption,
    OutputFormat,
    OutputOption,
    TimeoutOption,
    emit,
    settings_of,
    with_cluster,
)
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.cli.reload_command import reload
from appliance.config.faults import ConfigFaults, Path, key_text
from appliance.launch.extras import missing_for
from appliance.output import CommandError, Exit, out, print_json, say, tell

app = group_of_commands("The configuration file, and the cluster's settings.")
app.command()(reload)

HIDDEN = "(not shown)"


@app.command()
def check(
    quick: Annotated[
        bool, typer.Option("--quick", help="Check without Spark and without the database.")
    ] = False,
    as_json: EnvelopeOption = False,
) -> None:
    """Check the configuration and report all faults at once; exit code 2 if there is one."""
    file = context.home().config_file
    notes: tuple[str, ...] = ()
    unchecked = None if quick else missing_for("stream")
    asks = not quick and unchecked is None
    try:
        from appliance.checks.keeps import deletions

        mill, loaded = context.load_mill()
        if asks:
            from appliance.cli.judging import judge

            notes = judge(mill, loaded)
        notes = (*loaded.notes, *notes, *deletions(mill, asks=asks))
        if unchecked is not None:
            notes = (*notes, f"expressions were not checked: {unchecked}")
    except ConfigFaults as error:
        told = _with_faults_of_spark(error) if asks else error
        if not as_json:
            raise told from None
        found = [asdict(fault) for fault in told.faults]
        print_json("faults/1", found, [str(fault) for fault in told.faults])
        raise typer.Exit(Exit.USAGE) from error
    if as_json:
        print_json("faults/1", [], notes)
        return
    for note in notes:
        say(f"{file}: {note}")
    say(f"{file}: no faults")


def _with_faults_of_spark(error: ConfigFaults) -> ConfigFaults:
    """Return the faults of a file with those that only Spark finds."""
    from appliance.cli.judging import judge_rest
    from appliance.config.sound import FaultyConfig
    from appliance.mill.parts import Placement

    if not isinstance(error, FaultyConfig):
        return error
    return judge_rest(error, context.home(), Placement(context.in_containers()))


@app.command()
def show(as_json: EnvelopeOption = False) -> None:
    """Show the configuration in effect: with defaults, without secrets."""
    import yaml

    _, loaded = context.load_mill()
    full = loaded.config.model_dump(mode="json", by_alias=True)
    shown = without_secrets(full, (), dict(loaded.references))
    if as_json:
        print_json("config/1", shown)
        return
    out(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=100).rstrip())


@app.command()
def schema() -> None:
    """Print a JSON Schema of the file, for editors that complete and check keys."""
    from appliance.config.json_schema import schema_text

    out(schema_text())


@app.command("path")
def show_path(as_json: EnvelopeOption = False) -> None:
    """Print which file is used."""
    path = str(context.home().config_file)
    if as_json:
        print_json("path/1", {"path": path})
    else:
        out(path)


KindArgument = Annotated[
    str,
    typer.Argument(help="topic, broker or broker-logger; group in a cluster other than Millrace."),
]
NameArgument = Annotated[str, typer.Argument(help="Its name or id; `default` for all brokers.")]


@app.command()
def get(
    kind: KindArgument,
    name: NameArgument,
    keys: Annotated[list[str] | None, typer.Argument(help="Only these settings.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also settings that it inherits, and defaults.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show settings of a topic, a broker or a broker's loggers, and where they come from."""
    from appliance.kafka import configs

    resource = _resource(kind, name)
    wanted = set(keys or [])
    found = with_cluster(
        bootstrap,
        timeout,
        lambda cluster: configs.describe(cluster, resource, all_sources=everything or bool(wanted)),
    )
    rows = [
        {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": configs.source_name(entry.source),
            "read_only": entry.read_only,
            "sensitive": entry.is_sensitive,
        }
        for entry in found.entries
        if not wanted or entry.name in wanted
    ]
    if missing := sorted(wanted - {str(row["name"]) for row in rows}):
        raise CommandError(
            f"{kind} {name} has no setting {missing[0]!r}; `config get {kind} {name} --all` lists"
            " those it has",
            Exit.NOT_FOUND,
        )
    nothing = f"{kind} {name} has no settings of its own; --all shows those in effect"
    emit("settings/1", rows, output, as_json, heads=("name", "value"), nothing=nothing)


@app.command("set")
def set_settings(
    kind: KindArgument,
    name: NameArgument,
    pairs: Annotated[list[str] | None, typer.Argument(help="key=value, Kafka's own keys.")] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", help="Delete this setting; the default counts.")
    ] = None,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Change settings of a topic, a broker or a broker's loggers."""
    from appliance.kafka.configs import alter

    changes: dict[str, str | None] = dict.fromkeys(delete or [])
    changes.update(settings_of(pairs or []))
    if not changes:
        raise CommandError("nothing to change: expected key=value, or --delete key", Exit.USAGE)
    resource = _resource(kind, name)
    with_cluster(
        bootstrap,
        timeout,
        lambda cluster: alter(cluster, resource, changes, validate_only=dry_run),
    )
    words = f"{kind} {name} {'could be' if dry_run else 'is'} changed"
    data = {"kind": kind, "name": name, "settings": changes, "changed": not dry_run}
    tell(words, "settings-changed/1", data, as_json)


def _resource(kind: str, name: str) -> Any:
    from appliance.kafka.configs import DEFAULT_NAME
    from protocol.client.admin_types import ConfigResource, ResourceType

    known = {
        "topic": ResourceType.TOPIC,
        "broker": ResourceType.BROKER,
        "broker-logger": ResourceType.BROKER_LOGGER,
        "group": ResourceType.GROUP,
    }
    if kind not in known:
        raise CommandError(
            f"found {kind!r} as the kind of resource, expected one of {', '.join(known)}",
            Exit.USAGE,
        )
    is_default = kind == "broker" and name == "default"
    return ConfigResource(known[kind], DEFAULT_NAME if is_default else name)


def without_secrets(value: Any, path: Path, references: dict[Path, str]) -> Any:
    """Return the values with references as written in the file, and secrets hidden."""
    from appliance.config.findings import is_secret

    if path in references:
        return references[path]
    if isinstance(value, dict):
        return {k: without_secrets(v, (*path, k), references) for k, v in value.items()}
    if isinstance(value, list):
        return [without_secrets(v, (*path, i), references) for i, v in enumerate(value)]
    if value is not None and (is_secret(path) or "secret" in key_text(path).lower()):
        return HIDDEN
    return value
