"""Renders the tables of settings as Markdown, for the last part of
`docs/reference/configuration.md`.

This module is pure. A running broker never loads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.config import BROKER_ROWS, TOPIC_ROWS
from broker.settings import INT_MAX, LONG_MAX, Setting, text

_INTRODUCTION = """\
## Kafka's own keys

Put the broker's keys into `cluster.settings`, and the topics' keys into the `settings` of a topic.
Read both with `kafka-configs --describe --all`. A topic uses its own value, else the value of the
broker key beside it, else the default. You can change keys marked "at run time" while the broker
runs (`kafka-configs --alter`), for one broker by its id or for all (`--entity-default`). Such a
value is stored in the cluster's metadata and overrides the file. Keys that are not listed are
refused. Only at run time does a broker accept any key, as Kafka does: it stores the key, shows it
without its value, and logs that it has no effect.
"""


def markdown() -> str:
    """Return both tables. They have the type, default, limits and reason of each key."""
    return "\n".join([_INTRODUCTION, *_topic_lines(), "", *_broker_lines(), ""])


def _topic_lines() -> Iterator[str]:
    yield "| topic key | broker key | type | default | why |"
    yield "|---|---|---|---|---|"
    for _, (_, row) in sorted(TOPIC_ROWS.items()):
        synonyms = ", ".join(f"`{one.key}`" for one in row.synonyms)
        yield f"| `{row.key}` | {synonyms} | {_kind(row)} | {_default(row)} | {row.why} |"


def _broker_lines() -> Iterator[str]:
    own = {key: row for key, (attribute, row) in BROKER_ROWS.items() if attribute}
    yield "| broker key | type | default | at run time | why |"
    yield "|---|---|---|---|---|"
    for key, row in sorted(own.items()):
        dynamic = "yes" if row.is_dynamic else ""
        yield f"| `{key}` | {_kind(row)} | {_default(row)} | {dynamic} | {row.why} |"
    changing = sorted(
        f"`{key}`"
        for key, (attribute, row) in BROKER_ROWS.items()
        if not attribute and row.is_dynamic
    )
    yield ""
    yield f"At run time also: {', '.join(changing)}."


def _kind(row: Setting) -> str:
    if row.choices:
        return " or ".join(row.choices)
    return row.kind.name.lower()


def _default(row: Setting) -> str:
    if row.default in (INT_MAX, LONG_MAX):
        return "no limit"
    shown = text(row.default)
    return f"{shown} {row.unit}" if row.unit and shown != "-1" else shown
