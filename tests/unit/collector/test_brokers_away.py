"""What the status says while lines wait for the brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from collector.problems import SILENT_MS, brokers_away
from protocol.client.errors import EntryRefused

SINCE_MS = 1_000


def told(at_ms: int, unclear: str | None = None, refusal: EntryRefused | None = None) -> str | None:
    committer: Any = SimpleNamespace(unsettled_since_ms=SINCE_MS, unclear=unclear)
    return brokers_away(committer, at_ms, refusal)


def test_without_a_reason_it_is_told_after_a_while() -> None:
    assert told(SINCE_MS + SILENT_MS) is None
    text = told(SINCE_MS + SILENT_MS + 1)
    assert text is not None and text.startswith("no broker has acknowledged lines since ")


@pytest.mark.parametrize(
    ("unclear", "reason"),
    [(None, "mill refused the login"), ("the transaction is open", "the transaction is open")],
)
def test_a_refused_login_is_the_reason_unless_there_is_a_nearer_one(
    unclear: str | None, reason: str
) -> None:
    """A request is repeated as long as one of the brokers was not asked yet, for example because it
    is away. So nothing else reports the refusal of the others."""
    text = told(SINCE_MS + 1, unclear, EntryRefused("mill refused the login"))
    assert text is not None and f"({reason})" in text
