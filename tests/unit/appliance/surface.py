"""Lists the public surface: every name that users and their programs depend on.

These are commands with their options, keys of the configuration, fields of the API, names of
Prometheus metrics, keys of Redis, and columns of MySQL.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from fastapi.testclient import TestClient

from appliance.cli.app import app
from appliance.config.model import MillConfig
from sinks.mysql import schema
from sinks.mysql.views import WINDOWS_VIEW, view
from sinks.rows import MetricDefinition
from tests.house import tree

FILE = Path(__file__).with_name("public_surface.txt")
_METRIC = re.compile(r'"(millrace_[a-z0-9_]+(?:\{[a-z]+\}[a-z0-9_]*)?)"')
_SCHEMA = re.compile(r'"([a-z]+(?:-[a-z]+)*/[0-9])"')
_REDIS_KEY = re.compile(r'"(mill:[^"]*)"')
_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS ([a-z_]+) \((.*)\)", re.DOTALL)
_COLUMN = re.compile(r"(?:^|,)\s*`?([a-z_0-9]+)`? [A-Z]+")
_VIEW = re.compile(r"VIEW `?([a-z_]+)`? AS SELECT (.*?) FROM ", re.DOTALL)
_HELP = ("--help", "-h")
_DEFINITION = MetricDefinition(
    "metric", ("key",), "unique", (0,), 60, {0: None}, {0: None}, None, None, bytes(16)
)


def surface(client: TestClient) -> list[str]:
    """Return all names of the surface, one per line. `client` reads the API of a monitor with a
    scripted mill."""
    lines = [
        *commands(), *config_keys(), *api_fields(client), *names_in_code(), *mysql_columns()
    ]  # fmt: skip
    return sorted(set(lines))


def commands() -> Iterator[str]:
    """Yield every command with each of its options and arguments."""
    root: Any = typer.main.get_command(app)
    context = root.make_context("millrace", ["status"])

    def walk(command: Any, path: str) -> Iterator[str]:
        yield f"command {path}"
        for one in command.get_params(context):
            names = [name for name in (*one.opts, *one.secondary_opts) if name not in _HELP]
            for name in names:
                yield f"command {path} {name if name.startswith('-') else name.upper()}"
        if hasattr(command, "list_commands"):
            for name in command.list_commands(context):
                yield from walk(command.get_command(context, name), f"{path} {name}")

    yield from walk(root, "millrace")


def config_keys() -> Iterator[str]:
    """Yield the path of every key of the configuration file."""
    schema = MillConfig.model_json_schema(by_alias=True)

    def walk(part: Any, path: str, seen: tuple[str, ...]) -> Iterator[str]:
        if isinstance(part, list):
            for one in part:
                yield from walk(one, path, seen)
        if not isinstance(part, dict):
            return
        if (name := str(part.get("$ref", "")).rpartition("/")[2]) and name not in seen:
            yield from walk(schema["$defs"][name], path, (*seen, name))
        for key, value in part.get("properties", {}).items():
            yield f"key {path}{key}"
            yield from walk(value, f"{path}{key}.", seen)
        for key in ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"):
            yield from walk(part.get(key), path, seen)

    yield from walk(schema, "", ())


def api_fields(client: TestClient) -> Iterator[str]:
    """Yield every route of the API with its parameters. If the answer has rows, also yield the
    fields of a row."""
    for path, methods in client.get("/api/openapi.json").json()["paths"].items():
        yield f"api {path}"
        for one in methods["get"].get("parameters", ()):
            yield f"api {path} ?{one['name']}"
        if "{" in path:
            continue
        answer = client.get(path)
        rows = answer.json().get("data") if answer.status_code == 200 else None
        for row in rows if isinstance(rows, list) else [rows]:
            yield from (f"api {path} .{field}" for field in row or ())


def names_in_code() -> Iterator[str]:
    """Yield the names that stand in string literals: Prometheus metrics, schemas and Redis keys."""
    for name in tree.files():
        room = name.split("/")[0]
        if room in ("tests", "bench") or not name.endswith(".py"):
            continue
        text = (tree.ROOT / name).read_text()
        yield from (f"prometheus {found}" for found in _METRIC.findall(text))
        if room in ("appliance", "monitor"):
            yield from (f"schema {found}" for found in _SCHEMA.findall(text))
        if room == "sinks":
            yield from (f"redis {found}" for found in _REDIS_KEY.findall(text))


def mysql_columns() -> Iterator[str]:
    """Yield the columns of every table, of the view `windows`, and of the view of a metric."""
    for statement in schema.TABLES:
        for table, columns in _TABLE.findall(statement):
            yield from (f"mysql {table}.{column}" for column in _COLUMN.findall(columns))
    for statement in (WINDOWS_VIEW, view(_DEFINITION)):
        for name, columns in _VIEW.findall(statement):
            yield from (f"mysql {name}.{column}" for column in _names_of(columns))


def _names_of(columns: str) -> Iterator[str]:
    """Yield the names of the columns of a SELECT. The name is the last word of each column."""
    depth, start = 0, 0
    for at, letter in enumerate(f"{columns},"):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            yield re.split(r"[ .]", columns[start:at].strip())[-1].strip("`")
            start = at + 1
