"""The pace of copies: beside writes, a copy rests for a multiple of the time that its answer
took."""

from __future__ import annotations

from broker.replication.copy_pace import REST_FACTOR, REST_MS_MAX, CopyPace


def test_a_copy_alone_does_not_rest() -> None:
    pace = CopyPace()
    for now_ms in range(0, 1_000, 50):
        pace.answered(now_ms)
        assert pace.rest_until_ms(0, now_ms + 40) <= now_ms + 40


def test_beside_writes_it_rests_for_a_multiple_of_what_it_took() -> None:
    pace = CopyPace()
    pace.answered(1_000)
    assert pace.rest_until_ms(1, 1_030) == 1_030 + 30 * REST_FACTOR
    # A second call during the rest returns the same end.
    assert pace.rest_until_ms(9, 1_050) == 1_030 + 30 * REST_FACTOR


def test_a_slow_fsync_does_not_stop_it_for_long() -> None:
    pace = CopyPace()
    pace.answered(0)
    assert pace.rest_until_ms(1, 60_000) == 60_000 + REST_MS_MAX


def test_it_does_not_rest_when_the_writes_have_ended() -> None:
    pace = CopyPace()
    pace.answered(0)
    assert pace.rest_until_ms(5, 20) > 20
    pace.answered(100)
    assert pace.rest_until_ms(5, 120) == 120


def test_an_answer_without_records_costs_nothing() -> None:
    pace = CopyPace()
    assert pace.rest_until_ms(1, 500) <= 500
