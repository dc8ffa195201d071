"""The slices and retention of metrics, and which changes alter a metric's meaning."""

from typing import Any

import pytest

from stream.config.format_files import completed_input
from stream.config.metrics import resolve_metrics, slice_of
from stream.config.settings import StreamSection


@pytest.mark.parametrize(
    ("windows_s", "slice_s"),
    [
        ((60, 3600, 0), 60),
        ((10, 60), 10),
        ((90, 60), 30),
        ((3600,), 3600),
        ((70, 30), 10),
        ((0,), 0),
        ((0, 86_400), 86_400),
    ],
)
def test_the_slice_divides_every_window(windows_s: tuple[int, ...], slice_s: int) -> None:
    assert slice_of(windows_s) == slice_s


def section(metric: dict[str, Any], **changes: Any) -> StreamSection:
    given: dict[str, Any] = {
        "from": {
            "access": {"topic": "logs.access", "format": "combined"},
            "api": {
                "topic": "logs.api",
                "format": "json",
                "columns": {"host": "host string", "status": "status int"},
            },
        },
        "metrics": [{"name": "m", "from": "access", "measure": "count", **metric}],
    }
    return StreamSection.model_validate({**given, **changes})


def digest(metric: dict[str, Any], **changes: Any) -> bytes:
    return resolve_metrics(section(metric, **changes))[0].definition.definition_hash


def test_defaults_are_filled_in() -> None:
    definition = resolve_metrics(section({"key": "STATUS"}))[0].definition
    assert definition.windows_s == (60, 3600, 0)
    assert definition.slice_s == 60
    assert definition.key_columns == ("status",)
    assert definition.keep_redis_s == {60: 86_400, 3600: 30 * 86_400, 0: None}
    assert definition.keep_mysql_s == {60: 90 * 86_400, 3600: None, 0: None}
    assert len(definition.definition_hash) == 16


def test_keep_of_another_size_is_that_of_the_next_smaller_one() -> None:
    windows = {"windows": ["30s", "5m", "1d"]}
    definition = resolve_metrics(section(windows))[0].definition
    assert definition.keep_redis_s == {30: 3600, 300: 86_400, 86_400: 30 * 86_400}


def test_a_metrics_own_keep_wins() -> None:
    keep = {"keep": {"redis": {"1m": "2h"}, "mysql": "90d"}, "windows": ["10s", "1m", "1h"]}
    defaults = {"keep": {"redis": {"10s": "forever", "1m": "1h"}, "mysql": "forever"}}
    definition = resolve_metrics(section(keep, defaults=defaults))[0].definition
    assert definition.keep_redis_s == {10: None, 60: 7200, 3600: 30 * 86_400}
    assert definition.keep_mysql_s == dict.fromkeys((10, 60, 3600), 90 * 86_400)


def test_one_time_for_redis_goes_for_all_sizes() -> None:
    definition = resolve_metrics(section({"keep": {"redis": "2h"}}))[0].definition
    assert definition.keep_redis_s == {60: 7200, 3600: 7200, 0: None}


DAYS_90 = 90 * 86_400


@pytest.mark.parametrize(
    ("defaults", "own", "kept"),
    [
        # Without a setting, the finest windows are kept for 90 days and coarser ones forever.
        (None, None, {10: DAYS_90, 60: DAYS_90, 300: None, 3600: None, 86_400: None, 0: None}),
        ("forever", None, dict.fromkeys((10, 60, 300, 3600, 86_400, 0))),
        ("30d", None, {**dict.fromkeys((10, 60, 300, 3600, 86_400), 30 * 86_400), 0: None}),
        ({"1m": "forever"}, None, dict.fromkeys((10, 60, 300, 3600, 86_400, 0))),
        (
            {"1m": "7d", "1h": "1000d"},
            None,
            {10: 604_800, 60: 604_800, 300: None, 3600: 86_400_000, 86_400: 86_400_000, 0: None},
        ),
        # A metric's own setting for one window size overrides the default that is for all sizes.
        (
            "forever",
            {"1m": "7d"},
            {10: 604_800, 60: 604_800, 300: None, 3600: None, 86_400: None, 0: None},
        ),
        ({"1m": "7d"}, "forever", dict.fromkeys((10, 60, 300, 3600, 86_400, 0))),
    ],
)
def test_mysql_keeps_windows_by_their_size(
    defaults: object, own: object, kept: dict[int, int | None]
) -> None:
    metric: dict[str, Any] = {"windows": ["10s", "1m", "5m", "1h", "1d", "all"]}
    if own is not None:
        metric["keep"] = {"mysql": own}
    changes = {} if defaults is None else {"defaults": {"keep": {"mysql": defaults}}}
    assert resolve_metrics(section(metric, **changes))[0].definition.keep_mysql_s == kept


def test_a_time_for_all_of_redis_gives_way_to_a_metrics_own_word_for_a_size_alone() -> None:
    defaults = {"keep": {"redis": "2h"}}
    definition = resolve_metrics(section({"keep": {"redis": {"1m": "1h"}}}, defaults=defaults))[0]
    assert definition.definition.keep_redis_s == {60: 3600, 3600: 7200, 0: None}


def test_meaning_changes_the_hash_and_nothing_else_does() -> None:
    base = digest({"key": "status"})
    assert base == digest({"key": "status", "top": 5, "max_keys": 7, "keep": {"mysql": "1d"}})
    assert base == digest({"key": "status", "windows": ["all", "1h", "1m"]})
    changes: list[dict[str, Any]] = [
        {"key": "path"},
        {"key": "status", "where": "status > 1"},
        {"key": "status", "measure": "sum", "value": "bytes"},
        {"key": "status", "windows": ["1m"]},
        {"key": "status", "from": "api"},
        {"key": "status", "from": ["access", "api"]},
    ]
    hashes = {digest(change) for change in changes}
    assert len(hashes) == len(changes)
    assert base not in hashes


def test_an_inputs_format_takes_part_but_not_columns_of_others() -> None:
    def api(**changes: Any) -> dict[str, Any]:
        api = {"topic": "logs.api", "format": "json", "columns": {"host": "host string"}}
        return {"api": {**api, **changes}}

    metric = {"from": "api", "key": "host"}
    base = digest(metric, **{"from": api()})
    more = {"host": "host string", "other": "other int"}
    assert base == digest(metric, **{"from": api(columns=more)})
    assert base != digest(metric, **{"from": api(columns={"host": "vhost string"})})
    assert base != digest(metric, **{"from": api(time="ts")})
    assert base != digest(metric, **{"from": api(topic="logs.other")})


BERLIN = {
    "api": {"topic": "logs.api", "format": "json", "time": "ts", "tz": "Europe/Berlin",
            "columns": {"host": "host string"}},
}  # fmt: skip


def zone_of(metric: dict[str, Any], **changes: Any) -> str | None:
    of = {"from": "api", **metric}
    zone = resolve_metrics(section(of, **{"from": BERLIN, **changes}))[0].definition.zone
    return None if zone is None else zone.name


def test_windows_follow_the_clock_of_the_metric_of_the_defaults_or_of_its_inputs() -> None:
    days = {"windows": ["1d"]}
    assert zone_of(days) == "Europe/Berlin"
    assert zone_of({**days, "tz": "Asia/Tokyo"}) == "Asia/Tokyo"
    assert zone_of({**days, "tz": "UTC"}) is None
    assert zone_of(days, defaults={"tz": "Asia/Tokyo"}) == "Asia/Tokyo"
    assert zone_of({**days, "tz": "UTC"}, defaults={"tz": "Asia/Tokyo"}) is None
    two = {**BERLIN, "web": {"topic": "logs.web", "format": "combined"}}
    assert zone_of({**days, "from": ["api", "web"]}, **{"from": two}) is None


def test_a_zone_that_moves_no_window_is_none() -> None:
    assert zone_of({"windows": ["1m", "1h", "all"]}) is None
    assert zone_of({"windows": ["1m", "1h"], "tz": "Asia/Kolkata"}) == "Asia/Kolkata"
    assert zone_of({"windows": ["10s", "1m", "15m", "all"], "tz": "Asia/Kathmandu"}) is None
    assert zone_of({"windows": ["7h"]}) is None
    assert zone_of({"windows": ["all"]}) is None


def test_a_better_pattern_of_a_shipped_format_is_no_other_definition() -> None:
    metric = {"from": "api", "key": "level"}
    shipped = {"topic": "t", "format": "redis"}
    of_today = digest(metric, **{"from": {"api": shipped}})
    assert digest(metric, **{"from": {"api": {**shipped, "tz": "Europe/Berlin"}}}) != of_today
    other = {**shipped, "pattern": r"(?<ts>\d+) (?<role>.) (?<pid>.) (?<level>.) (?<message>.)"}
    assert digest(metric, **{"from": {"api": other}}) != of_today
    # The shipped pattern is not part of the digest. So a later version can ship another pattern.
    told = completed_input(shipped)
    assert isinstance(told, dict)
    assert digest(metric, **{"from": {"api": told}}) == of_today


def test_a_definition_is_what_it_was_before_there_were_zones_and_layouts() -> None:
    metric = {"from": "api", "key": "host"}
    before = bytes.fromhex("325592ffc2d63d57bb5476cfb1917426")
    assert digest(metric, **{"from": BERLIN}) == before
    assert digest({**metric, "windows": ["1m", "1d"]}, **{"from": BERLIN}) != digest(
        {**metric, "windows": ["1m", "1d"], "tz": "UTC"}, **{"from": BERLIN}
    )
    late = {"api": {**BERLIN["api"], "time": {"column": "ts", "fallback": "arrival"}}}
    assert digest(metric, **{"from": late}) != before


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ({"tz": "Mars/Olympus"}, "found 'Mars/Olympus', expected a time zone"),
        ({"tz": "+25:00"}, "found '+25:00'"),
        ({"tz": "UTC", "windows": ["7h"]}, "found a window of 7h with tz, expected windows that"),
    ],
)
def test_a_zone_that_cannot_be_is_refused(metric: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="found") as raised:
        section(metric)
    assert message in str(raised.value)
