"""Writes a proposal as YAML text, to paste or to insert.

This module is pure.
"""

from collections.abc import Mapping, Sequence

import yaml

from appliance.config.document import plain_value
from appliance.detect.detection import Proposal

LINE_MAX = 96
_WIDTH = 1 << 20


class _Dumper(yaml.SafeDumper):
    """Quotes each text that the configuration's reader would otherwise read as a number, a boolean
    or null.
    """


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = None if plain_value(value) == value else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def flow(value: object) -> str:
    """Return a value as YAML in one line."""
    text = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=True,
        sort_keys=False,
        allow_unicode=True,
        width=_WIDTH,
    )
    return str(text).removesuffix("\n").removesuffix("\n...")


def entry(name: str, value: object) -> list[str]:
    """Return the lines of a key with its value: one line, or for a mapping one line for each
    key.
    """
    line = f"{flow(name)}: {flow(value)}"
    if len(line) <= LINE_MAX or not isinstance(value, Mapping) or not value:
        return [line]
    inner = [line for key, one in value.items() for line in entry(str(key), one)]
    return [f"{flow(name)}:", *(f"  {line}" for line in inner)]


def item(value: Mapping[str, object]) -> list[str]:
    """Return the lines of a list entry: one line, or one line for each key."""
    line = f"- {flow(dict(value))}"
    if len(line) <= LINE_MAX:
        return [line]
    inner = [line for key, one in value.items() for line in entry(str(key), one)]
    return [f"- {inner[0]}", *(f"  {line}" for line in inner[1:])]


def to_paste(proposal: Proposal) -> str:
    """Return the sections in the form of the configuration file."""
    metrics = [line for metric in proposal.metrics for line in item(metric)]
    lines = [
        "collector:",
        "  inputs:",
        *_indented(item(proposal.collector), 4),
        "stream:",
        "  from:",
        *_indented(entry(proposal.name, dict(proposal.stream)), 4),
        "  metrics:",
        *_indented(metrics, 4),
    ]
    return "\n".join(lines)


def _indented(lines: Sequence[str], blanks: int) -> list[str]:
    return [f"{' ' * blanks}{line}" for line in lines]
