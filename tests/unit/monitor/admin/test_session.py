"""Sessions of administrators: login, expiry, and plans that must be confirmed by name and only
once."""

import itertools

import pytest

from monitor.admin.operations import Plan
from monitor.admin.orders import ElectLeaders
from monitor.admin.session import (
    IDLE_MS_MAX,
    SESSIONS_MAX,
    TICKET_MS_MAX,
    TICKETS_MAX,
    WHO_CHARS_MAX,
    Door,
    Refused,
)

TOKEN = "a token that is long"
HOME, AWAY = "192.0.2.7", "192.0.2.8"
PLAN = Plan(ElectLeaders("logs"), "Elects")


@pytest.fixture
def door() -> Door:
    numbers = itertools.count()
    return Door(TOKEN, lambda: f"secret {next(numbers)}")


def test_who_knows_the_token_comes_in_under_a_name(door: Door) -> None:
    session = door.enter(f" {TOKEN}\n", " Ada ", HOME, 0)
    assert session.who == "Ada"
    assert door.find(session.key, 1) is session
    assert door.find(session.form_secret, 1) is None
    assert door.find(None, 1) is None
    door.leave(session)
    assert door.find(session.key, 1) is None


@pytest.mark.parametrize("token", ["", "a token", TOKEN + "x", "ä"])
def test_another_token_is_refused(door: Door, token: str) -> None:
    with pytest.raises(Refused, match="not the token"):
        door.enter(token, "Ada", HOME, 0)


@pytest.mark.parametrize("who", ["", "  ", "a" * (WHO_CHARS_MAX + 1), "a\nb"])
def test_no_order_is_accepted_without_a_name_that_a_log_can_hold(door: Door, who: str) -> None:
    with pytest.raises(Refused, match="a name"):
        door.enter(TOKEN, who, HOME, 0)


def test_who_guesses_waits_longer_and_longer(door: Door) -> None:
    now_ms = 0
    for wait_s in (1, 2, 4, 8, 16, 32, 60, 60):
        with pytest.raises(Refused, match="not the token"):
            door.enter("guess", "Eve", AWAY, now_ms)
        with pytest.raises(Refused, match=f"try again in {wait_s} s"):
            door.enter(TOKEN, "Eve", AWAY, now_ms)
        now_ms += wait_s * 1_000
    assert door.enter(TOKEN, "Ada", AWAY, now_ms).who == "Ada"


def test_pitfall_41_wrong_tokens_of_a_stranger_lock_out_no_other_address(door: Door) -> None:
    for now_ms in range(0, 1_000_000, 100_000):
        with pytest.raises(Refused, match="not the token"):
            door.enter("guess", "Eve", AWAY, now_ms)
    assert door.enter(TOKEN, "Ada", HOME, 900_001).who == "Ada"


def test_one_machine_does_not_get_more_attempts_from_its_many_addresses_of_ipv6(
    door: Door,
) -> None:
    with pytest.raises(Refused, match="not the token"):
        door.enter("guess", "Eve", "2001:db8::1", 0)
    with pytest.raises(Refused, match="try again"):
        door.enter("guess", "Eve", "2001:db8::2", 0)
    with pytest.raises(Refused, match="not the token"):
        door.enter("guess", "Eve", "2001:db8:0:1::1", 0)


def test_a_session_that_rests_is_over(door: Door) -> None:
    session = door.enter(TOKEN, "Ada", HOME, 0)
    assert door.find(session.key, IDLE_MS_MAX) is session
    assert door.find(session.key, 2 * IDLE_MS_MAX) is session
    assert door.find(session.key, 3 * IDLE_MS_MAX + 1) is None


def test_sessions_are_bounded(door: Door) -> None:
    first = door.enter(TOKEN, "first", HOME, 0)
    others = [door.enter(TOKEN, "other", HOME, 1 + n) for n in range(SESSIONS_MAX)]
    assert door.find(first.key, 100) is None
    assert all(door.find(one.key, 100) for one in others)


def test_a_form_of_another_session_is_refused(door: Door) -> None:
    mine, other = door.enter(TOKEN, "Ada", HOME, 0), door.enter(TOKEN, "Bea", HOME, 0)
    door.check(mine, mine.form_secret)
    for secret in (other.form_secret, mine.key, ""):
        with pytest.raises(Refused, match="another session"):
            door.check(mine, secret)


def test_a_plan_is_confirmed_once_by_its_name_and_soon(door: Door) -> None:
    session = door.enter(TOKEN, "Ada", HOME, 0)
    ticket = door.show(session, PLAN, 0)
    with pytest.raises(Refused, match="found the name 'log', expected 'logs'"):
        door.take(session, ticket, "log", 1)
    assert door.take(session, ticket, "logs ", 1) is PLAN
    with pytest.raises(Refused, match="carried out already"):
        door.take(session, ticket, "logs", 1)
    late = door.show(session, PLAN, 0)
    with pytest.raises(Refused, match="too old"):
        door.take(session, late, "logs", TICKET_MS_MAX + 1)
    other = door.enter(TOKEN, "Bea", HOME, 0)
    with pytest.raises(Refused, match="carried out already"):
        door.take(other, door.show(session, PLAN, 0), "logs", 1)


def test_plans_that_are_kept_are_bounded(door: Door) -> None:
    session = door.enter(TOKEN, "Ada", HOME, 0)
    tickets = [door.show(session, PLAN, 0) for _ in range(TICKETS_MAX + 1)]
    with pytest.raises(Refused):
        door.take(session, tickets[0], "logs", 1)
    assert door.take(session, tickets[1], "logs", 1) is PLAN
