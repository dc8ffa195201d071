"""What `enrol` does if the brokers do not show the new credential."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from appliance.enrol import mill_side
from appliance.kafka import users
from appliance.output import CommandError, Exit
from protocol.security.scram import Mechanism

USER = "collector.web-07"


class FakeMill:
    """Brokers that show the end of a credential, and then another one. None: no credential."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *shown: int | None) -> None:
        self.removed: list[str] = []
        self._shown: Iterator[int | None] = iter(shown)
        self._last: int | None = None
        monkeypatch.setattr(mill_side, "LOOK_EVERY_S", 0)
        monkeypatch.setattr(mill_side, "describe_enrolments", self._describe)
        monkeypatch.setattr(users, "remove", self._remove)

    async def _describe(self, _: Any, names: list[str]) -> dict[str, Mapping[Mechanism, int]]:
        self._last = next(self._shown, self._last)
        if self._last is None:
            return {}
        return {name: {mill_side.MECHANISM: self._last} for name in names}

    async def _remove(self, _: Any, user: str) -> None:
        self.removed.append(user)

    def end(self, before: int | None) -> int:
        cluster: Any = None
        return asyncio.run(mill_side._new_end(cluster, "web-07", before))


@pytest.mark.parametrize(
    ("before", "shown"), [(None, (None, None, 9)), (5, (5, 5, 9)), (0, (0, 9)), (None, (9,))]
)
def test_it_waits_for_a_broker_that_is_behind(
    monkeypatch: pytest.MonkeyPatch, before: int | None, shown: tuple[int | None, ...]
) -> None:
    assert FakeMill(monkeypatch, *shown).end(before) == 9


@pytest.mark.parametrize("before", [None, 5])
def test_a_lasting_credential_is_removed(
    monkeypatch: pytest.MonkeyPatch, before: int | None
) -> None:
    mill = FakeMill(monkeypatch, 0)
    with pytest.raises(CommandError, match=r"earlier version.*millrace upgrade") as caught:
        mill.end(before)
    assert (caught.value.code, mill.removed) == (Exit.CONDITION, [USER])


@pytest.mark.parametrize("before", [None, 5, 0])
def test_a_change_that_is_not_seen_removes_no_user(
    monkeypatch: pytest.MonkeyPatch, before: int | None
) -> None:
    """The user keeps its group. Otherwise the next command would put it into the default one."""
    mill = FakeMill(monkeypatch, before)
    with pytest.raises(CommandError, match="web-07: type the same command again with --again") as c:
        mill.end(before)
    assert (c.value.code, mill.removed) == (Exit.TIMEOUT, [])
