"""From which time on windows older than their `keep` are deleted."""

from dataclasses import replace

from sinks.keeping import (
    NOTICE_S,
    Term,
    foreseen_words,
    in_force,
    judge,
    limits,
    shortened,
    unasked_words,
    waiting,
    words,
)
from tests.harness import worked

NOW_S = worked.NOW_MS // 1000
DAY_S = 86_400
MINUTES = ("m", 60)
DEFINITION = replace(
    worked.DEFINITIONS[0],
    name="m",
    windows_s=(60, 3600, 0),
    keep_mysql_s={60: 90 * DAY_S, 3600: None, 0: None},
)


def test_only_what_is_not_kept_for_ever_has_a_limit() -> None:
    assert list(limits([DEFINITION])) == [(MINUTES, 90 * DAY_S)]
    assert list(limits([replace(DEFINITION, keep_mysql_s={})])) == []
    # Totals are never purged, whatever the configuration gives as their `keep`.
    assert list(limits([replace(DEFINITION, keep_mysql_s={0: 60})])) == []


def test_a_keep_by_which_nothing_goes_begins_at_once() -> None:
    assert judge(MINUTES, 90 * DAY_S, None, 0, NOW_S).from_s == NOW_S


def test_a_keep_by_which_something_goes_begins_after_its_notice() -> None:
    first = judge(MINUTES, 90 * DAY_S, None, 5, NOW_S)
    assert first == Term("m", 60, 90 * DAY_S, NOW_S + NOTICE_S, 5)
    # A restart neither restarts nor ends the notice period.
    assert judge(MINUTES, 90 * DAY_S, first, 9, NOW_S + 60).from_s == first.from_s


def test_a_shorter_keep_has_a_notice_of_its_own_and_a_longer_one_needs_none() -> None:
    begun = Term("m", 60, 90 * DAY_S, NOW_S - 60, 0)
    assert judge(MINUTES, 30 * DAY_S, begun, 5, NOW_S).from_s == NOW_S + NOTICE_S
    assert judge(MINUTES, 100 * DAY_S, begun, 5, NOW_S).from_s == begun.from_s


def test_until_a_term_begins_its_windows_are_kept_for_ever() -> None:
    waiting = judge(MINUTES, 90 * DAY_S, None, 5, NOW_S)
    for now_s, kept in ((NOW_S, None), (waiting.from_s - 1, None), (waiting.from_s, 90 * DAY_S)):
        found = in_force([DEFINITION], {MINUTES: waiting}, now_s)
        assert found["m"].keep_mysql_s == {60: kept, 3600: None, 0: None}
    assert in_force([DEFINITION], {}, NOW_S)["m"].keep_mysql_s[60] is None


def test_a_notice_says_how_much_goes_when_and_what_keeps_it() -> None:
    text = words(Term("top_paths", 60, 90 * DAY_S, 1_785_578_400, 1_234_567))
    assert text == (
        "top_paths: 1,234,567 cells of MySQL's 1m windows are older than `keep` (90d) and are "
        "deleted from 2026-08-01 10:00 UTC on; `keep: {mysql: forever}` keeps them"
    )


def test_what_nobody_has_taken_over_yet_is_said_as_that() -> None:
    text = foreseen_words(Term("top_paths", 60, 90 * DAY_S, 1_785_578_400, 1_234_567))
    assert text == (
        "top_paths: 1,234,567 cells of MySQL's 1m windows are older than `keep` (90d) and would be "
        "deleted a week after it is applied, from 2026-08-01 10:00 UTC on; "
        "`keep: {mysql: forever}` keeps them"
    )


def test_no_notice_holds_for_a_metric_that_is_not_configured() -> None:
    """Windows of such a metric are not deleted, so no notice may announce a deletion."""
    terms = {place: Term(*place, DAY_S, NOW_S + 1, 5) for place in (MINUTES, ("gone", 60))}
    assert waiting(terms, [DEFINITION], NOW_S) == (terms[MINUTES],)
    assert waiting(terms, [DEFINITION], NOW_S + 1) == ()


def test_only_a_shorter_keep_of_windows_that_there_were_deletes_something() -> None:
    month = replace(DEFINITION, keep_mysql_s={60: 30 * DAY_S, 3600: 365 * DAY_S})
    assert list(shortened([DEFINITION], [month])) == [
        (MINUTES, 90 * DAY_S, 30 * DAY_S),
        (("m", 3600), None, 365 * DAY_S),
    ]
    assert list(shortened([DEFINITION], [DEFINITION])) == []
    assert list(shortened([month], [DEFINITION])) == []
    assert list(shortened([], [month])) == []
    assert list(shortened([replace(DEFINITION, windows_s=(0,))], [month])) == []
    assert unasked_words(("m", 3600), None, 365 * DAY_S).startswith(
        "m: MySQL's 1h windows were kept forever; what is older than the new `keep` (365d)"
    )
