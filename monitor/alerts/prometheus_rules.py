"""The rules of alerts for Prometheus, and a dashboard for Grafana, over the metrics of `/metrics`.

This module is pure. Both files are made from the tables that the monitor's own alerts use, so
Prometheus opens the same alerts. `docs/` holds both files for the default rules.
"""

from collections.abc import Sequence

from monitor.alerts.kinds import KINDS, expression, limit_text
from monitor.state.alert import FORMS, Kind, Rule
from protocol.units import format_duration_ms

Json = dict[str, object]

SUBJECT_LABELS = {
    "part": "part",
    "group": "group",
    "disk": "disk",
    "file": "path",
    "topic": "topic",
    "broker": "broker",
    "setting": "setting",
}
"""The name of the label that identifies a kind's subject in Prometheus."""

STALE_AFTER = "2m"
GRID_WIDTH = 24
PANEL_WIDTH = 12
PANEL_HEIGHT = 8
DATA_SOURCE = {"type": "prometheus", "uid": "${source}"}

PANELS: tuple[tuple[str, str, str, str], ...] = (
    ("Lag", "sum by (group) (millrace_group_lag_offsets)", "{{group}}", "short"),
    ("Age of the oldest unread", "max by (group) (millrace_group_lag_seconds)", "{{group}}", "s"),
    ("Written", "sum by (topic) (rate(millrace_log_end_offset[1m]))", "{{topic}}", "cps"),
    ("Read", "sum by (group) (rate(millrace_group_committed_offset[1m]))", "{{group}}", "cps"),
    ("Time of a batch, by stage", "millrace_stage_batch_seconds", "{{stage}}", "s"),
    ("Share of the time a stage works", "millrace_stage_busy_share", "{{stage}}", "percentunit"),
    ("From a line to its number", "millrace_line_seconds", "{{quantile}}", "s"),
    ("Cells made or changed", "millrace_stream_cells_per_second", "cells", "cps"),
    ("Parts that answer", "millrace_part_up", "{{part}}", "bool_on_off"),
    ("Parts that finish nothing", "millrace_part_stuck_seconds", "{{part}}", "s"),
    ("Lines that do not parse", "millrace_unparsed_share", "share of ten minutes", "percentunit"),
    ("Bytes left on disks", "millrace_disk_free_bytes", "{{disk}}", "bytes"),
    ("Topics on disk", "sum by (topic) (millrace_log_size_bytes)", "{{topic}}", "bytes"),
    (
        "Partitions that are not well",
        '{__name__=~"millrace_(under_replicated|under_min_isr|offline)_partitions"}',
        "{{__name__}}",
        "short",
    ),
    ("Files that are not read on", "millrace_file_stuck_seconds", "{{path}}", "s"),
    ("Bytes that moves of replicas lack", "millrace_move_to_go_bytes", "{{topic}}", "bytes"),
    ("Moves that do not advance", "millrace_move_still_seconds", "{{topic}}", "s"),
    ("Replicas of each broker", "millrace_broker_replicas", "{{broker}}", "short"),
    ("Open alerts", "millrace_alert_open", "{{rule}} {{subject}}", "short"),
)
"""Title, expression, legend and Grafana unit of each panel."""


def prometheus_rules(rules: Sequence[Rule]) -> Json:
    """Return a rules file for Prometheus with one alert for each of the monitor's rules."""
    found = [_rule(rule) for rule in rules]
    found.append(
        {
            "alert": "MillraceMonitorSilent",
            "expr": "time() - millrace_snapshot_timestamp_seconds > 60"
            " or absent(millrace_snapshot_timestamp_seconds)",
            "for": STALE_AFTER,
            "annotations": {"summary": "The monitor takes no snapshots, or is not asked any more"},
        }
    )
    return {"groups": [{"name": "millrace", "rules": found}]}


def dashboard() -> Json:
    """Return a dashboard for Grafana.

    The user chooses the data source when the dashboard is opened.
    """
    panels = [_panel(number, *panel) for number, panel in enumerate(PANELS)]
    return {
        "title": "Millrace",
        "uid": "millrace",
        "schemaVersion": 39,
        "timezone": "utc",
        "refresh": "10s",
        "time": {"from": "now-3h", "to": "now"},
        "tags": ["millrace"],
        "templating": {
            "list": [
                {"name": "source", "label": "Data source", "type": "datasource",
                 "query": "prometheus"}
            ]
        },
        "panels": panels,
    }  # fmt: skip


def _rule(rule: Rule) -> Json:
    words = KINDS[rule.kind].words
    limit = limit_text(rule)
    found: Json = {
        "alert": alert_name(rule),
        "expr": expression(rule),
        "for": format_duration_ms(rule.for_ms),
        "keep_firing_for": format_duration_ms(rule.clear_ms),
        "labels": {"rule": rule.name},
        "annotations": {"summary": _summary(rule.kind, words, limit)},
    }
    if not rule.for_ms:
        del found["for"]
    if not rule.clear_ms:
        del found["keep_firing_for"]
    return found


def alert_name(rule: Rule) -> str:
    """Return the name of a rule in Prometheus: `lines-wait` becomes `MillraceLinesWait`."""
    words = rule.name.replace(".", "-").replace("_", "-").split("-")
    return "Millrace" + "".join(word[:1].upper() + word[1:] for word in words)


def _summary(kind: Kind, words: str, limit: str) -> str:
    label = SUBJECT_LABELS.get(FORMS[kind].subject)
    of = f"{{{{ $labels.{label} }}}}: " if label else ""
    return f"{of}{words}" + (f" ({limit})" if limit else "")


def _panel(number: int, title: str, asked: str, legend: str, unit: str) -> Json:
    per_row = GRID_WIDTH // PANEL_WIDTH
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": DATA_SOURCE,
        "gridPos": {
            "x": number % per_row * PANEL_WIDTH,
            "y": number // per_row * PANEL_HEIGHT,
            "w": PANEL_WIDTH,
            "h": PANEL_HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": "A", "expr": asked, "legendFormat": legend, "datasource": DATA_SOURCE}
        ],
    }
