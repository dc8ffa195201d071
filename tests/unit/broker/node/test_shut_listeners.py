"""A listener that requires a login stays shut until a super user can log in."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from broker.node.status import BrokerStatus
from broker.world import PortTaken
from protocol.status import Problem
from tests.unit.broker.login_rig import LoginRig
from tests.unit.broker.rig import Rig


class ShutRig(LoginRig):
    """A broker with the listener NET, without any user."""

    def __init__(self, **settings: Any) -> None:
        Rig.__init__(self, **{"super_users": "User:admin;User:root", **settings})

    @property
    def is_open(self) -> bool:
        return self.world.listening["NET"].is_open

    def is_opened(self) -> bool:
        """Return True if the listener is open, and nothing is wrong."""
        return self.is_open and not self.problems

    @property
    def problems(self) -> tuple[Problem, ...]:
        return BrokerStatus(self.broker, 0).status().problems


def test_pitfall_21_a_listener_with_logins_opens_when_a_super_user_has_a_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The operator is not locked out, because the listener HOST needs no login (Redpanda's
    documentation warns of it)."""
    rig = ShutRig()
    assert not rig.is_open and rig.world.listening["HOST"].is_open
    (problem,) = rig.problems
    assert problem.code == "listener_shut"
    assert problem.text == (
        "listener NET is shut, because no user of super.users (admin, root) has a password: write"
        " one with `./millrace user add admin`"
    )
    rig.set_password("shop", "secret")
    assert not rig.is_open, "another user is no super user"
    caplog.set_level(logging.INFO, "broker.node.listeners")
    rig.set_password("root", "secret")
    assert rig.is_opened()
    assert [one.getMessage() for one in caplog.records] == ["a listener was opened"]
    client = rig.connect()
    assert client.log_in(user="root").error_code == 0


def test_it_is_open_after_a_restart_and_shut_after_one_without_a_super_user() -> None:
    rig = ShutRig()
    rig.set_password("admin", "secret")
    rig.power_cut(random.Random(1))
    assert rig.is_opened()
    rig.remove("admin")
    assert rig.is_open, "clients keep their connections"
    (problem,) = rig.problems
    assert problem.code == "no_super_user"
    assert "the next start of this broker does not open listener NET" in problem.text
    rig.power_cut(random.Random(1))
    assert not rig.is_open


def test_without_super_users_it_never_opens() -> None:
    rig = ShutRig(super_users="")
    rig.set_password("admin", "secret")
    assert not rig.is_open
    (problem,) = rig.problems
    assert problem.text.endswith("no user of super.users (empty) has a password: name one there")


def test_a_port_that_was_taken_in_the_meantime_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = ShutRig()
    listening = rig.world.listening["NET"]

    def taken() -> None:
        raise PortTaken("listener NET: net:9092 is used by process 7")

    with monkeypatch.context() as patch:
        patch.setattr(listening, "open", taken)
        rig.set_password("admin", "secret")
        assert "a listener cannot be opened" in caplog.text
        (problem,) = rig.problems
        assert "another process listens on its port" in problem.text
    rig.advance(2_000)
    assert rig.is_opened()


def test_a_broker_that_stops_opens_nothing() -> None:
    rig = ShutRig()
    rig.broker.stop_serving()
    rig.broker.listeners.open_to_users({("admin", 1): None})  # type: ignore[dict-item]  # unread
    assert not rig.is_open
