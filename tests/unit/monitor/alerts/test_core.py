"""When alerts open and close, and which notices are sent about them."""

from dataclasses import replace

import pytest

from monitor.alerts.core import TAKEN_OUT, Alerts, changes_between
from monitor.state.alert import Kind, Observed, Rule, Unit

LAG = Rule("lag", Kind.LAG, 1_000, Unit.OFFSETS, for_ms=60_000, clear_ms=30_000)
DISK = Rule("disk", Kind.DISK_FREE, 0.05, Unit.SHARE, for_ms=0, clear_ms=0)
STEP_MS = 10_000
HOUR_MS = 3_600_000


class Film:
    """A series of readings of one group, one every ten seconds."""

    def __init__(self, rule: Rule = LAG, **keys: int) -> None:
        self.rule = rule
        self.alerts = Alerts((rule,), **keys)
        self.now_ms = 1_000_000

    def show(self, *values: float | None, subject: str = "g") -> list[bool]:
        """Evaluate each value in turn. Return for each whether an alert was open afterwards."""
        seen = []
        for value in values:
            self.now_ms += STEP_MS
            found = {self.rule.name: [Observed(subject, value, f"{value} wait", "/groups/g")]}
            standing = self.alerts.look(found, self.now_ms)
            seen.append(bool(standing.open))
        return seen

    def digest(self) -> tuple[list[str], list[str]] | None:
        """Return the notice that is due, as the texts of opened alerts and the subjects of closed
        ones. Mark it as sent."""
        found = self.alerts.digest(self.now_ms, HOUR_MS)
        if found is None:
            return None
        self.alerts.told(found)
        return [one.text for one in found.opened], [one.subject for one in found.closed]


def test_it_opens_when_the_limit_was_passed_for_long_enough_and_not_sooner() -> None:
    film = Film()
    assert film.show(*[1_001] * 6) == [False] * 6
    assert film.show(1_001) == [True]


def test_one_good_look_restarts_the_time() -> None:
    film = Film()
    film.show(*[5_000] * 6)
    film.show(1_000)
    assert film.show(*[5_000] * 6) == [False] * 6


def test_it_closes_only_when_the_value_has_been_well_within_the_limit() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    # A value just below the limit does not close the alert, so an alert never flaps around its
    # limit.
    assert film.show(*[950, 1_050] * 5) == [True] * 10
    assert film.show(900, 900, 900) == [True, True, True]
    assert film.show(900) == [False]


def test_a_relapse_while_it_is_about_to_close_keeps_it_open() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    first = film.alerts.open()[0].opened_at_ms
    film.show(0, 0, 0, 950, 0, 0, 0)
    assert film.alerts.open()[0].opened_at_ms == first
    assert film.show(0) == [False]


def test_what_is_not_known_neither_opens_nor_closes() -> None:
    film = Film()
    film.show(*[5_000] * 6)
    assert film.show(None, None) == [False, False]
    assert film.show(5_000) == [True], "it was ill before and after"
    assert film.show(*[None] * 20) == [True] * 20
    standing = film.alerts.look({"lag": None}, film.now_ms + HOUR_MS)
    assert len(standing.open) == 1
    assert standing.rules[0].unknown == 1


def test_below_a_limit_is_what_a_disk_is_warned_of() -> None:
    film = Film(DISK)
    assert film.show(0.06, 0.05, 0.049) == [False, False, True]
    assert film.show(0.0549, 0.0551) == [True, False]


def test_a_subject_that_is_gone_is_well_again() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    for _ in range(4):
        film.now_ms += STEP_MS
        standing = film.alerts.look({"lag": []}, film.now_ms)
    assert standing.open == ()


def test_a_rule_concerns_only_the_subjects_it_names() -> None:
    film = Film(replace(LAG, of=("export*", "a?c"), for_ms=0))
    assert film.show(5_000, subject="exports/daily") == [True]
    assert film.show(5_000, subject="abc") == [True]
    for stranger in ("an-export", "ac", "aXXc", "a.c\n"):
        film.show(5_000, subject=stranger)
        assert stranger not in [one.subject for one in film.alerts.open()]
    dotted = Film(replace(LAG, of=("a.c",), for_ms=0))
    assert dotted.show(5_000, subject="abc") == [False], "only * and ? are signs"


def test_each_change_is_told_once() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    assert film.digest() == (["5000 wait"], [])
    assert film.digest() is None
    film.show(0, 0, 0, 0)
    assert film.digest() == ([], ["g"])
    assert film.digest() is None
    assert film.alerts.kept() == ()


def test_what_stands_is_told_again_after_the_interval() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    film.digest()
    film.show(*[6_000] * 359)
    assert film.digest() is None
    film.show(7_000)
    found = film.alerts.digest(film.now_ms, HOUR_MS)
    assert found is not None
    assert (found.repeated, [one.text for one in found.opened]) == (1, ["7000 wait"])


def test_a_message_that_was_not_taken_comes_again_as_what_holds_then() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    assert film.alerts.digest(film.now_ms, HOUR_MS) is not None
    film.show(8_000)
    assert film.digest() == (["8000 wait"], []), "the first may have been lost"


def test_an_alert_that_was_perhaps_told_is_called_off() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    lost = film.alerts.digest(film.now_ms, HOUR_MS)
    assert lost is not None
    film.show(0, 0, 0, 0)
    assert film.digest() == ([], ["g"])


def test_an_alert_without_a_notice_closes_without_one() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    film.show(0, 0, 0, 0)
    assert film.digest() is None


def test_an_alert_that_closes_while_its_message_is_on_its_way_is_called_off_after_it() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    under_way = film.alerts.digest(film.now_ms, HOUR_MS)
    assert under_way is not None
    film.show(0, 0, 0, 0)
    film.alerts.told(under_way)
    assert film.digest() == ([], ["g"])


def test_one_that_opens_again_before_its_end_was_told_is_told_as_open() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    film.digest()
    film.show(0, 0, 0, 0)
    late = film.alerts.digest(film.now_ms, HOUR_MS)
    assert late is not None
    film.show(*[9_000] * 7)
    film.alerts.told(late)
    assert film.digest() == (["9000 wait"], [])


def test_a_restart_goes_on_with_what_was_told() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    film.digest()
    after = Film()
    after.now_ms = film.now_ms
    after.alerts.restore(film.alerts.kept(), film.now_ms)
    assert after.show(5_000) == [True]
    assert after.digest() is None, "no notice is sent twice"
    after.show(0, 0, 0, 0)
    assert after.digest() == ([], ["g"])


def test_an_alert_of_a_rule_that_was_taken_out_is_called_off() -> None:
    film = Film()
    film.show(*[5_000] * 7)
    film.digest()
    after = Alerts((DISK,))
    after.restore(film.alerts.kept(), film.now_ms)
    found = after.digest(film.now_ms, HOUR_MS)
    assert found is not None
    assert [one.text for one in found.closed] == [TAKEN_OUT]
    untold = Alerts((DISK,))
    untold.restore([replace(one, offered_at_ms=None) for one in film.alerts.kept()], film.now_ms)
    assert untold.kept() == ()


def test_no_more_alerts_open_than_there_is_room_for() -> None:
    film = Film(replace(LAG, for_ms=0, clear_ms=0), alerts_max=3)
    rows = [Observed(f"g{number}", 5_000.0) for number in range(5)]
    standing = film.alerts.look({"lag": rows}, film.now_ms)
    assert (len(standing.open), standing.unlisted) == (3, 2)
    standing = film.alerts.look({"lag": [Observed("g0", 0.0), *rows[1:]]}, film.now_ms + 1)
    assert [one.subject for one in standing.open] == ["g1", "g2", "g3"]
    assert standing.unlisted == 1


def test_how_a_rule_stands() -> None:
    film = Film()
    film.alerts.look(
        {"lag": [Observed("a", 5_000.0), Observed("b", None), Observed("c", 7.0)]}, film.now_ms
    )
    standing = film.alerts.look(
        {"lag": [Observed("a", 5_000.0), Observed("b", None), Observed("c", 7.0)]},
        film.now_ms + 60_000,
    )
    rule = standing.rules[0]
    assert (rule.subjects, rule.open, rule.pending, rule.unknown) == (3, 1, 0, 1)
    assert rule.worst == 5_000


@pytest.mark.parametrize("quiet", [0, 1])
def test_changes_are_what_opened_and_what_closed(quiet: int) -> None:
    film = Film()
    before = film.alerts.open()
    film.show(*[5_000] * (7 - quiet))
    opened, closed = changes_between(before, film.alerts.open())
    assert (len(opened), len(closed)) == (1 - quiet, 0)
    assert changes_between(film.alerts.open(), ()) == ([], list(film.alerts.open()))
