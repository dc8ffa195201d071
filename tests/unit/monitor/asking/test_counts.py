"""Counts on the page: only additive values are summed, and a minute without lines is a gap."""

from decimal import Decimal

from monitor.asking.counts import WINDOWS, Counts, count_rows, described, metric_view
from monitor.config.settings import MetricSettings
from sinks.errors import SinkUnavailable
from sinks.read_counts import CountsReader, KeyCount, MetricCounts, WindowSum

NOW_S = 1_800_000_030
MINUTE_S = NOW_S // 60 * 60
STATUS = MetricSettings(name="by_status", inputs=("access",), key=("status",), measure="count")


def counts(**changes: object) -> MetricCounts:
    values: dict[str, object] = {
        "name": "by_status",
        "size_s": 60,
        "windows": (
            WindowSum(MINUTE_S - 120, 100, None, 2),
            WindowSum(MINUTE_S - 60, 50, None, 2),
            WindowSum(MINUTE_S, 7, None, 1),
        ),
        "totals": (KeyCount(("200",), 900, None), KeyCount(("404",), 100, None)),
        "keys_total": 2,
        "is_unique": False,
    }
    return MetricCounts(**{**values, **changes})  # type: ignore[arg-type]


def test_counts_add_up_and_the_filling_window_stands_apart() -> None:
    view = metric_view(counts(), STATUS, NOW_S)
    assert view.total == "1,000"
    assert view.window == "50", "the last whole minute"
    assert any("still filling" in label and value == "7" for label, value in view.facts)
    assert view.columns.count("M") == 2
    assert view.filling.count("M") == 1
    assert view.columns.startswith(f"M{(WINDOWS - 3) * 4} "), "at its own place"
    assert [(row.key, row.share) for row in view.keys] == [("200", "90.0 %"), ("404", "10.0 %")]
    assert view.strip == ((0.0, 90.0), (90.0, 10.0))
    assert view.note == "2 of 2 keys"


def test_a_total_over_keys_that_were_not_all_read_is_not_made_up() -> None:
    view = metric_view(counts(keys_total=5_000), STATUS, NOW_S)
    assert view.total == "–"
    assert all(row.share == "" for row in view.keys)


def test_visitors_of_two_minutes_do_not_add_up() -> None:
    visitors = MetricSettings(
        name="visitors", inputs=("access",), measure="unique", value="remote_addr"
    )
    one = counts(
        name="visitors",
        totals=(KeyCount((), 5_000, Decimal(1284)),),
        keys_total=1,
        is_unique=True,
        windows=(WindowSum(MINUTE_S - 60, 500, Decimal(30), 1),),
    )
    view = metric_view(one, visitors, NOW_S)
    assert view.total == "1,284"
    assert view.window == "30"
    assert "do not add up" in view.note
    assert view.keys == ()


def test_means_over_keys_have_no_total() -> None:
    mean = MetricSettings(name="ms", inputs=("json",), key=("host",), measure="mean", value="ms")
    totals = (KeyCount(("a",), 10, Decimal("1.5")), KeyCount(("b",), 10, Decimal(3)))
    view = metric_view(counts(totals=totals, windows=()), mean, NOW_S)
    assert view.total == "–"
    assert [row.value for row in view.keys] == ["3", "1.5"] or [row.value for row in view.keys] == [
        "1.5",
        "3",
    ]


def test_a_metric_that_is_not_configured_is_described_by_its_cells() -> None:
    assert described("x", {}, counts()).measure == "count"
    assert described("x", {}, counts(is_unique=True)).measure == "unique"
    quantile = counts(totals=(KeyCount((), 1, Decimal(2), '{"p50": 1}'),))
    assert described("x", {}, quantile).measure == "percentile"
    assert described("by_status", {"by_status": STATUS}, counts()) == STATUS


def test_keys_of_users_stay_as_they_are_and_null_is_named() -> None:
    totals = (KeyCount(("<b>",), 3, None), KeyCount((), 2, None))
    view = metric_view(counts(totals=totals), STATUS, NOW_S)
    assert [row.key for row in view.keys] == ["<b>", "(null)"]


def test_a_database_that_is_away_is_a_reason_and_is_not_asked_at_every_page() -> None:
    asked = 0

    def connect() -> CountsReader:
        nonlocal asked
        asked += 1
        raise SinkUnavailable("mysql", "refused")

    source = Counts(connect, lambda: 5)
    assert source.read(60).error is not None
    assert source.read(60).metrics == ()
    assert asked == 1


def test_rows_of_the_api_hold_totals_and_windows() -> None:
    rows = count_rows(counts(), STATUS)
    assert [row["count"] for row in rows] == [900, 100, 100, 50, 7]
    assert rows[0]["size"] == "all"
    assert rows[2]["start"] == "2027-01-15T07:58:00+00:00"


def test_estimates_are_called_so_on_the_page_and_in_the_api() -> None:
    """Case 20: an estimate must not be shown as if it were exact, such as 19,406 for 20,000
    visitors."""
    visitors = MetricSettings(
        name="visitors", inputs=("access",), measure="unique", value="remote_addr"
    )
    one = counts(
        name="visitors",
        totals=(KeyCount((), 50_000, Decimal(19_406), is_estimate=True),),
        keys_total=1,
        is_unique=True,
        windows=(
            WindowSum(MINUTE_S - 120, 5_000, Decimal(1_300), 1, is_estimate=True),
            WindowSum(MINUTE_S - 60, 500, Decimal(30), 1),
        ),
    )
    view = metric_view(one, visitors, NOW_S)
    assert view.total == "≈ 19,406"
    assert view.window == "30", "a small window is exact"
    assert view.facts[0] == ("total, an estimate within 3.3%", "≈ 19,406")
    assert "xact up to 1,024 distinct values in a cell" in view.note
    rows = count_rows(one, visitors)
    assert [(row["estimate"], row["error"]) for row in rows] == [
        (True, 0.033),
        (True, 0.033),
        (False, None),
    ]


def test_percentiles_of_many_values_are_called_estimates() -> None:
    metric = MetricSettings(name="ms", inputs=("json",), measure="percentile", value="ms")
    quantiles = '{"p50": 1.466666666667e-06, "p95": 16843.333333333333, "p99": 1e+18}'
    for is_estimate, mark in ((False, ""), (True, "≈ ")):
        one = counts(
            totals=(KeyCount((), 201, Decimal("0.000001466667"), quantiles, is_estimate),),
            windows=(),
            keys_total=1,
        )
        view = metric_view(one, metric, NOW_S)
        shown = ("0.00000146666666667", "16,843.3333333", "1,000,000,000,000,000,000")
        assert view.keys[0].quantiles == tuple(mark + text for text in shown)
        assert "exact up to 200 values" in view.note.lower()


def test_numbers_on_the_page_keep_their_digits() -> None:
    """Cases 21 and 30: a mean of microseconds must not be shown as 0, and 19 digits must not be
    rounded to a double."""
    for measure, value, text in [
        ("mean", "0.000001466666666667", "0.00000146666666667"),
        ("mean", "-16843.333333333333", "-16,843.3333333"),
        ("max", "1725724716113000125", "1,725,724,716,113,000,125"),
        ("sum", "92233720368547758070.5", "92,233,720,368,547,758,070"),
        ("share", "0.25", "25.00 %"),
        ("share", "0.000001466666666667", "0.000147 %"),
        ("share", "0", "0.00 %"),
    ]:
        metric = MetricSettings(name="m", inputs=("json",), measure=measure, value="v")
        one = counts(totals=(KeyCount((), 3, Decimal(value)),), windows=(), keys_total=1)
        assert metric_view(one, metric, NOW_S).total == text
        assert count_rows(one, metric)[0]["value"] == value


def test_local_days_have_their_own_dates_and_a_place_each() -> None:
    """In London a local day begins at 00:00 UTC in winter, and at 23:00 UTC of the previous day in
    summer."""
    start_s = 1_711_756_800  # 2024-03-30 00:00 UTC; clocks are set in the night of the 31st.
    starts = (start_s, start_s + 86_400, start_s + 2 * 86_400 - 3_600)
    one = counts(size_s=86_400, windows=tuple(WindowSum(at_s, 5, None, 1) for at_s in starts))
    view = metric_view(one, STATUS, starts[-1] + 3_600)
    places = [int(part.split()[0]) // 4 for part in (view.columns + view.filling).split("M")[1:]]
    assert places == [WINDOWS - 3, WINDOWS - 2, WINDOWS - 1]
    assert ("in 04-01, still filling", "5") in view.facts
    assert view.ends[1] == "04-01"


def test_days_of_utc_and_of_new_zealand_are_called_by_their_dates() -> None:
    for start_s, name in ((1_719_792_000, "07-01"), (1_719_748_800, "07-01")):
        one = counts(size_s=86_400, windows=(WindowSum(start_s, 5, None, 1),))
        assert metric_view(one, STATUS, start_s + 60).ends[1] == name
