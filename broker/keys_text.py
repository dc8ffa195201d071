"""The tables of settings as text for people: the second half of `configs/README.md`.

Ground floor. Pure; a running broker never loads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.config import BROKER_ROWS, TOPIC_ROWS
from broker.settings import INT_MAX, LONG_MAX, Setting, text

_INTRODUCTION = """\
## Kafka's own keys

The broker's keys stand in `cluster.settings`, the topics' in the `settings` of a topic; both can be
read with `kafka-configs --describe --all`. A topic's value is its own, else that of the broker key
beside it, else the default. Keys marked "at run time" can be changed while the broker runs
(`kafka-configs --alter`), for one broker by its id or for all (`--entity-default`); what is set so
is stored with the cluster's metadata and wins over the file. Keys that are not listed are refused;
only for brokers at run time any key is taken, as by Kafka: kept, shown without its value, and said
in the broker's log to have no effect.
"""


def markdown() -> str:
    """Both tables, each key with type, default, limits and reason."""
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
