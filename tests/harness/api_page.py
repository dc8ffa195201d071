"""The documentation page of the monitor's API, generated from its OpenAPI and from example rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

SHARED = "format"
"""A parameter that every path has. The page mentions it once."""


def parameter_text(parameter: Mapping[str, Any]) -> str:
    """Return the description of a parameter, preceded by its allowed values or its default."""
    schema = parameter["schema"]
    values = " \\| ".join(f"`{value}`" for value in schema.get("enum", []))
    default = schema.get("default")
    notes = [
        values,
        f"default `{default}`" if default not in (None, "") else "",
        parameter.get("description", ""),
    ]
    text = ", ".join(note for note in notes if note)
    return f"`{parameter['name']}`" + (f" ({text})" if text else "")


def table(openapi: Mapping[str, Any], columns: Callable[[str], Sequence[str]]) -> str:
    """Return a table with one row per path. `columns` maps a path to the columns of the rows that
    the path returns."""
    lines = ["| path | gives | parameters | columns |", "|---|---|---|---|"]
    for path, verbs in openapi["paths"].items():
        for verb, operation in verbs.items():
            name = path if verb == "get" else f"{verb.upper()} {path}"
            asked = [one for one in operation.get("parameters", []) if one["name"] != SHARED]
            cells = [
                f"`{name}`",
                operation["summary"],
                "; ".join(map(parameter_text, asked)),
                ", ".join(f"`{column}`" for column in columns(path)) if verb == "get" else "",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
