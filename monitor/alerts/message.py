"""The body of a webhook message: one JSON object for all changes since the last message.

This module is pure. The field `text` repeats the changes as text for people, one line for each
alert, because chat services show this field.
"""

from collections.abc import Mapping, Sequence

from monitor.state.alert import Alert, Digest
from monitor.views import render

SCHEMA = "alerts/1"
LISTED_MAX = 50
"""The largest number of alerts that one message lists; `more` is the number of alerts that are left
out."""

TEXT_CHARACTERS_MAX = 500
"""The longest text of one alert."""

Body = dict[str, object]


def body_of(digest: Digest, page: str, cluster: str) -> Body:
    """Return the message of a digest. `page` is the address of the monitor's page, `cluster` the
    name of the cluster.
    """
    closed = digest.closed[:LISTED_MAX]
    opened = digest.opened[: LISTED_MAX - len(closed)]
    rows = [_row(one, page, "open") for one in opened]
    rows += [_row(one, page, "closed") for one in closed]
    more = len(digest.opened) + len(digest.closed) - len(rows)
    lines = [f"{'✕' if row['state'] == 'open' else '●'} {_line(row)}" for row in rows]
    if more:
        lines.append(f"and {more} more")
    return {
        "schema": SCHEMA,
        "ts": render.clock(digest.at_ms),
        "ts_ms": digest.at_ms,
        "cluster": cluster,
        "page": page,
        "text": "\n".join(lines),
        "alerts": rows,
        "more": more,
    }


def trial_body(now_ms: int, page: str, cluster: str, rules: Sequence[str]) -> Body:
    """Return the body that `alerts test` sends: a real message's fields without an alert."""
    text = f"This is a test of the alerts of Millrace. The rules are {', '.join(rules) or 'none'}."
    return {
        "schema": SCHEMA,
        "ts": render.clock(now_ms),
        "ts_ms": now_ms,
        "cluster": cluster,
        "page": page,
        "text": text,
        "alerts": [],
        "more": 0,
    }


def _row(alert: Alert, page: str, state: str) -> Body:
    # A message can arrive twice, so each alert has an id by which the receiver can recognise it.
    return {
        "id": f"{alert.rule}/{alert.subject}/{alert.opened_at_ms}",
        "state": state,
        "rule": alert.rule,
        "on": str(alert.kind),
        "subject": alert.subject,
        "text": alert.text[:TEXT_CHARACTERS_MAX],
        "value": alert.value,
        "opened_at": render.clock(alert.opened_at_ms),
        "closed_at": None if alert.closed_at_ms is None else render.clock(alert.closed_at_ms),
        "page": f"{page}{alert.page}",
    }


def _line(row: Mapping[str, object]) -> str:
    over = f"is over: {row['text']}" if row["state"] == "closed" else row["text"]
    return f"{row['rule']}: {over}"
