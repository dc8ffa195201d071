"""Durations and sizes in the form that people write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.units import (
    format_duration_ms,
    format_moment_ms,
    parse_duration_ms,
    parse_moment_ms,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("100ms", 100),
        ("0s", 0),
        ("2s", 2000),
        ("0.5s", 500),
        ("1m", 60_000),
        ("5 min", 300_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
    ],
)
def test_durations(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("64KiB", 65536), ("1MiB", 1 << 20), ("2GB", 2 * 10**9), ("1.5 kB", 1500)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "5", "-1s", "1 parsec", "1e3s", "0.5ms", "s", "1s 2s", "1S"])
def test_bad_durations_name_what_was_found_and_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"found .*expected a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "-5", "1 mib", "0.5", "MiB", "1e6", "0x10"])
def test_bad_sizes_name_what_was_found_and_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r"found .*expected a size"):
        parse_size_bytes(text)


@given(st.integers(0, 10**13))
def test_formatted_values_read_back(value: int) -> None:
    assert parse_duration_ms(format_duration_ms(value)) == value


def test_the_shortest_spelling_is_chosen() -> None:
    assert format_duration_ms(86_400_000) == "1d"
    assert format_duration_ms(90_000) == "90s"
    assert format_duration_ms(0) == "0ms"


def test_a_moment_is_told_in_utc_and_read_back() -> None:
    text = format_moment_ms(1_785_578_400_999)
    assert text == "2026-08-01T10:00:00Z"
    assert parse_moment_ms(text, 0) == 1_785_578_400_000
