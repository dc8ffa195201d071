"""`config check` asks a real MySQL if the data counted under a metric's name still match the
metric's definition."""

from pathlib import Path

import pytest

from appliance.config.load import load_text
from appliance.output import Exit
from sinks.config import MySqlSettings
from sinks.mysql.link import connect
from sinks.mysql.metric_changes import FORGOTTEN
from sinks.mysql.tables import prepare
from stream.config.metrics import resolve_metrics
from tests.harness.mysql import MySqlServer
from tests.unit.appliance.test_commands import config, run

pytestmark = pytest.mark.live


def text(settings: MySqlSettings, where: str) -> str:
    return (
        "stream:\n"
        "  from: {a: {topic: logs.access, format: combined}}\n"
        "  metrics:\n"
        "    - {name: untouched, from: a, measure: count}\n"
        f"    - {{name: asked, from: a, measure: count, where: {where}}}\n"
        f"sinks: {{mysql: {{host: {settings.host}, port: {settings.port}, user: {settings.user},"
        f" database: {settings.database}, password: '${{file:password}}'}}}}\n"
    )


def store(settings: MySqlSettings, definitions: dict[str, bytes]) -> None:
    connection = connect(settings)
    with connection.cursor() as cursor:
        prepare(cursor)
        for name, value in definitions.items():
            cursor.execute(
                "REPLACE INTO metrics (name, definition_hash, since, measure)"
                " VALUES (%s, %s, '2026-08-01', 'count')",
                (name, value),
            )
    connection.commit()
    connection.close()


def test_another_meaning_of_a_counted_metric_is_a_fault(
    mysql_server: MySqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark would check the expressions. Leave it out, because this test is about the database.
    monkeypatch.setattr("appliance.checks.stream_check._ask_spark", lambda *_: [])
    settings = mysql_server.new_database()
    (tmp_path / "password").write_text(settings.password)
    before = text(settings, "status = 404")
    config(tmp_path, before)
    stream = load_text(before, "m", tmp_path, {}).config.stream
    hashes = {
        one.definition.name: one.definition.definition_hash for one in resolve_metrics(stream)
    }
    store(settings, hashes)
    assert run(monkeypatch, tmp_path, "config", "check")[0] == Exit.OK

    config(tmp_path, text(settings, "status = 500"))
    code, _, err = run(monkeypatch, tmp_path, "config", "check")
    assert code == Exit.USAGE
    [fault, count] = err
    assert ":5:" in fault, fault
    assert "stream.metrics[1]: found the metric asked with another meaning" in fault
    assert "`./millrace stream forget asked`" in fault
    assert count == "millrace: 1 fault in the configuration"

    store(settings, {"asked": FORGOTTEN})
    assert run(monkeypatch, tmp_path, "config", "check")[0] == Exit.OK
