"""`config check` and `config show`."""

from typing import Annotated, Any

import typer
import yaml

from appliance.cli import context
from appliance.cli.output import out, print_json, say
from appliance.config.faults import Path, key_text
from appliance.config.findings import is_secret

app = typer.Typer(no_args_is_help=True, help="The configuration file.")

HIDDEN = "(not shown)"


@app.command()
def check(
    quick: Annotated[
        bool, typer.Option("--quick", help="Without asking Spark and the database.")
    ] = False,
) -> None:
    """Check the configuration; every fault at once, exit code 2 when there is one."""
    mill, loaded = context.load_mill()
    for note in loaded.notes:
        say(f"{mill.home.config_file}: {note}")
    if not quick:
        from appliance.definitions import check_definitions
        from appliance.stream_check import check_expressions

        check_expressions(mill, loaded.document)
        check_definitions(mill, loaded.document)
    say(f"{mill.home.config_file}: no faults")


@app.command()
def show(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON envelope.")] = False,
) -> None:
    """The configuration as it takes effect, defaults included, without secrets."""
    _, loaded = context.load_mill()
    full = loaded.config.model_dump(mode="json", by_alias=True)
    shown = without_secrets(full, (), dict(loaded.references))
    if as_json:
        print_json("config/1", shown)
        return
    out(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=100).rstrip())


@app.command("path")
def show_path() -> None:
    """Which file is meant."""
    out(str(context.home().config_file))


def without_secrets(value: Any, path: Path, references: dict[Path, str]) -> Any:
    """The same values, with references as they were written and secrets hidden."""
    if path in references:
        return references[path]
    if isinstance(value, dict):
        return {k: without_secrets(v, (*path, k), references) for k, v in value.items()}
    if isinstance(value, list):
        return [without_secrets(v, (*path, i), references) for i, v in enumerate(value)]
    if value is not None and (is_secret(path) or "secret" in key_text(path).lower()):
        return HIDDEN
    return value
