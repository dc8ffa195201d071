"""Each sequence of events in a transaction succeeds. It fails if its guard is removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim import transaction_scripts as scripts
from tests.sim.transaction_guards import GUARDS

CAUGHT_BY: dict[str, Callable[[], None]] = {
    "31 frozen coordinator epoch": scripts.a_deposed_coordinator_sends_its_markers_when_it_knows,
    "32 marker fencing": scripts.a_deposed_coordinator_sends_its_markers_before_it_knows,
    "33 gone is not committed": scripts.a_leader_dies_before_its_marker_comes,
    "34 verification": scripts.a_batch_arrives_when_its_transaction_has_ended,
    "35 held back until the marker is committed": scripts.a_marker_is_not_committed_yet,
}


@pytest.mark.parametrize("script", scripts.SCRIPTS, ids=lambda script: script.__name__)
def test_transactions_come_through(script: Callable[[], None]) -> None:
    script()


@pytest.mark.parametrize("guard", CAUGHT_BY)
@pytest.mark.interpreted
def test_a_guard_that_is_taken_out_is_missed(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    GUARDS[guard](monkeypatch)
    with pytest.raises(AssertionError):
        CAUGHT_BY[guard]()


def test_every_guard_has_its_script() -> None:
    assert set(GUARDS) == set(CAUGHT_BY)
