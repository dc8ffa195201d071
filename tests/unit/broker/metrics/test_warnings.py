"""Warnings that a client can cause: a few of each kind per minute, and the number of suppressed
ones."""

import logging
from typing import Any

import pytest

from broker.metrics.warnings import IN_WINDOW_MAX, REASONS_MAX, WINDOW_MS, Warnings
from broker.sessions.session import Session
from tests.sim.world import SimWorld
from tests.unit.broker.rig import Rig

logger = logging.getLogger("tests.warnings")


class NoLink:
    """A connection that only records how it was closed."""

    peer = "192.0.2.7:1"
    peer_host = "192.0.2.7"
    held_bytes = 0

    def close(self) -> None:
        pass


def left_out(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [
        one
        for one in caplog.records
        if one.getMessage() == "more warnings of this kind were not logged"
    ]
    return [vars(one)["mill_fields"] for one in found]


def test_a_kind_has_its_share_of_a_minute_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = SimWorld(1, 0, 1_000)
    warnings = Warnings(world.clock)
    for number in range(IN_WINDOW_MAX + 5):
        warnings.warn(logger, "odd", number=number)
    warnings.warn(logger, "strange")
    texts = [one.getMessage() for one in caplog.records]
    assert texts == ["odd"] * IN_WINDOW_MAX + ["strange"]
    assert warnings.left_out_count == 5
    world.clock.advance(WINDOW_MS - 1)
    warnings.close_due(world.clock.monotonic_ms())
    assert left_out(caplog) == []
    world.clock.advance(1)
    warnings.close_due(world.clock.monotonic_ms())
    assert left_out(caplog) == [{"kind": "odd", "count": 5}]
    caplog.clear()
    # The first warning of a new window reports the suppressed ones, before the periodic report is
    # due.
    for _ in range(IN_WINDOW_MAX + 1):
        warnings.warn(logger, "odd")
    world.clock.advance(WINDOW_MS)
    warnings.warn(logger, "odd")
    assert [one.getMessage() for one in caplog.records][-2:] == [
        "more warnings of this kind were not logged",
        "odd",
    ]
    assert left_out(caplog) == [{"kind": "odd", "count": 1}]


def test_a_client_in_a_loop_does_not_hide_the_reasons_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warnings = Warnings(SimWorld(1, 0, 1_000).clock)
    for _ in range(IN_WINDOW_MAX + 5):
        warnings.warn(logger, "closed", reason="no login")
    for _ in range(2):
        warnings.warn(logger, "closed", reason="the password was changed")
    assert [vars(one)["mill_fields"]["reason"] for one in caplog.records] == [
        *["no login"] * IN_WINDOW_MAX,
        "the password was changed",
    ]
    assert warnings.left_out_count == 6


def test_a_client_with_ever_new_reasons_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warnings = Warnings(SimWorld(1, 0, 1_000).clock)
    for number in range(REASONS_MAX + 100):
        warnings.warn(logger, "closed", reason=f"a frame of {number} bytes")
    assert len(caplog.records) == REASONS_MAX
    assert warnings.left_out_count == 100


def test_a_client_that_is_refused_in_a_circle_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    many = 100
    for _ in range(many):
        session = Session(rig.broker.listeners.receptions["HOST"])
        session.linked(NoLink())  # type: ignore[arg-type]  # all that is asked of it
        session.close("API key 99 version 0 is not served")
        # The rate of new connections has a limit too, so the next one comes 100 ms later.
        rig.advance(100)
    closed = [one for one in caplog.records if one.getMessage() == "connection closed"]
    assert len(closed) == IN_WINDOW_MAX
    assert "millrace_broker_warnings_left_out_total 90" in rig.broker.metrics.text({})
    rig.advance(WINDOW_MS)
    assert left_out(caplog) == [{"kind": "connection closed", "count": many - IN_WINDOW_MAX}]


def test_what_was_left_out_is_told_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    for _ in range(IN_WINDOW_MAX + 1):
        rig.broker.metrics.warnings.warn(logger, "odd")
    rig.broker.stop_serving()
    rig.broker.close()
    assert left_out(caplog) == [{"kind": "odd", "count": 1}]
