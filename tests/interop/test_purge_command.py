"""`doctor` reports windows that wait for deletion in a real database, and `stream purge` deletes
them."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from appliance.checks.growth import rows
from appliance.checks.startup import CheckLevel
from appliance.config.load import load_text
from appliance.output import Exit
from sinks.config import MySqlSettings
from sinks.mysql.sink import MySqlSink
from sinks.rows import Batch, FoldRow, OffsetRange
from stream.config.metrics import resolve_metrics
from tests.harness.mysql import MySqlServer
from tests.unit.appliance.test_commands import config, mill, run

pytestmark = pytest.mark.live

DAY_S = 86_400


def text(settings: MySqlSettings, keep: str) -> str:
    """Return a configuration with a metric that counts by minute, by hour and in total. `keep` is
    its default for `keep`."""
    return (
        "stream:\n"
        "  from: {a: {topic: logs.access, format: combined}}\n"
        f"  defaults: {{keep: {keep}}}\n"
        "  metrics: [{name: m, from: a, measure: count}]\n"
        f"sinks: {{redis: null, mysql: {{host: {settings.host}, port: {settings.port},"
        f" user: {settings.user}, database: {settings.database},"
        " password: '${file:password}'}}\n"
    )


def opened(settings: MySqlSettings, given: str, home: Path) -> MySqlSink:
    """Open the database as the stream does with this configuration."""
    section = load_text(given, "m", home, {}).config.stream
    sink = MySqlSink(settings, patience_s=2)
    sink.open("query", [one.definition for one in resolve_metrics(section)], int(time.time()))
    return sink


def test_what_waits_is_said_shown_and_only_then_deleted(
    mysql_server: MySqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = mysql_server.new_database()
    (tmp_path / "password").write_text(settings.password)
    forever, shipped = text(settings, "{mysql: forever}"), text(settings, "{}")
    now_s = int(time.time())
    old_s = (now_s - 100 * DAY_S) // 60 * 60
    sink = opened(settings, forever, tmp_path)
    lines = [FoldRow("m", old_s, (), 1), FoldRow("m", now_s // 60 * 60, (), 1)]
    covered = [OffsetRange("logs.access", 0, 0, 2)]
    sink.apply(Batch("query", 0, lines, (), covered, 2, now_s * 1000))
    sink.close()
    config(tmp_path, shipped)
    assert run(monkeypatch, tmp_path, "stream", "purge", "--yes")[2] == [
        "there is nothing to delete"
    ]

    sink = opened(settings, shipped, tmp_path)
    (warning,) = [one for one in rows(mill(tmp_path, shipped)) if one.level is CheckLevel.WARNING]
    assert "m: 1 cells of MySQL's 1m windows are older than `keep` (90d)" in warning.found
    assert "stream purge" in warning.remedy

    code, _, err = run(monkeypatch, tmp_path, "stream", "purge")
    assert code == Exit.USAGE
    assert "m: 1 cells of MySQL's 1m windows" in err[0]
    assert "add --yes" in err[-1]
    assert not sink.purge(now_s)
    assert windows(sink) == [60, 60]

    code, out, _ = run(monkeypatch, tmp_path, "stream", "purge", "--yes", "--json")
    assert code == Exit.OK
    assert json.loads("".join(out))["data"] == {"cells": 1, "sizes": 1}
    assert not sink.purge(int(time.time()))
    assert windows(sink) == [60]
    assert [one for one in rows(mill(tmp_path, shipped)) if one.level is CheckLevel.WARNING] == []
    sink.close()


def windows(sink: MySqlSink) -> list[int]:
    """Return the sizes of the stored windows of one minute, so one 60 per window."""

    def ask(cursor: Any) -> list[int]:
        cursor.execute("SELECT size_s FROM window_keys WHERE size_s = 60")
        return [int(size_s) for (size_s,) in cursor.fetchall()]

    return sink.read(ask)
