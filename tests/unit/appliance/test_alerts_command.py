"""`alerts`: list the open alerts, test the webhook, and print the rules for Prometheus."""

import json
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.mill.home import find_home
from appliance.mill.init import initialise
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill, monitor_settings
from appliance.output import Exit
from monitor.alerts.prometheus_rules import dashboard
from monitor.config.settings import MonitorSettings
from tests.harness.hook import hook
from tests.harness.ports import free_port
from tests.unit.appliance.scripted_monitor import answering
from tests.unit.appliance.test_commands import config, run

ALERT = {
    "rule": "disk-full", "on": "disk_free", "subject": "data", "text": "5 GiB are free",
    "opened_at_ms": 1_000,
}  # fmt: skip


def monitor(home: Path, rows: list[dict[str, Any]]) -> AbstractContextManager[None]:
    """Run a monitor that has these open alerts and serves no other path."""

    def answer(path: str) -> dict[str, Any]:
        assert path == "/api/v1/alerts"
        return {"data": rows}

    return answering(home, answer)


def test_open_alerts_are_listed_and_decide_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monitor(tmp_path, [ALERT]):
        code, out, err = run(monkeypatch, tmp_path, "alerts", "list")
        assert code == Exit.CONDITION
        assert "disk-full" in "\n".join(out)
        assert err[-1] == "1 alert is open"
        code, out, _ = run(monkeypatch, tmp_path, "alerts", "list", "--json")
        assert code == Exit.CONDITION
        assert json.loads(out[0])["data"] == [ALERT]
    with monitor(tmp_path, []):
        code, _, err = run(monkeypatch, tmp_path, "alerts", "list")
        assert (code, err[-1]) == (Exit.OK, "0 alerts are open")


def test_a_test_reaches_the_webhook_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hook(statuses=[202]) as other:
        config(tmp_path, f"monitor: {{alerts: {{webhook: '{other.url}', token: t0ken}}}}")
        code, _, err = run(monkeypatch, tmp_path, "alerts", "test")
    assert code == Exit.OK
    assert "with status 202" in err[-1]
    assert "s3cret" not in "\n".join(err)
    assert other.tokens == ["Bearer t0ken"]
    assert "part-down, part-stuck" in other.posts[0]["text"]


def test_a_test_that_is_not_taken_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hook(statuses=[403], text="unknown sender") as other:
        config(tmp_path, f"monitor: {{alerts: {{webhook: '{other.url}'}}}}")
        code, _, err = run(monkeypatch, tmp_path, "alerts", "test")
    assert code == Exit.FAILED
    assert "answered 403: unknown sender" in err[-1]
    config(tmp_path, f"monitor: {{alerts: {{webhook: 'http://127.0.0.1:{free_port()}/s3cret'}}}}")
    code, _, err = run(monkeypatch, tmp_path, "alerts", "test")
    assert (code, "refused" in err[-1], "s3cret" in err[-1]) == (Exit.FAILED, True, False)


def test_a_test_ends_with_the_deadline_and_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hook(silent=threading.Event()) as other:
        config(tmp_path, f"monitor: {{alerts: {{webhook: '{other.url}', timeout: 1s}}}}")
        code, _, err = run(monkeypatch, tmp_path, "alerts", "test")
    assert code == Exit.FAILED
    assert "no answer within 1 s (monitor.alerts.timeout)" in err[-1]


def test_a_test_without_a_webhook_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "topics: []")
    code, _, err = run(monkeypatch, tmp_path, "alerts", "test")
    assert code == Exit.NOT_FOUND
    assert "monitor.alerts.webhook is not set" in err[-1]


def test_the_rules_of_the_file_are_printed_for_prometheus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(
        tmp_path,
        "monitor: {alerts: {rules: [{name: export-lags, on: lag, above: 5, of: ['e*']}]}}",
    )
    code, out, _ = run(monkeypatch, tmp_path, "alerts", "prometheus")
    assert code == Exit.OK
    rules = yaml.safe_load("\n".join(out))["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules] == ["MillraceExportLags", "MillraceMonitorSilent"]
    assert rules[0]["expr"].endswith('{group=~"e.*"}) > 5')
    code, out, _ = run(monkeypatch, tmp_path, "alerts", "grafana")
    assert json.loads("\n".join(out)) == dashboard()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alerts: {webhook: 'ftp://x/s3cret'}", "monitor.alerts.webhook: found a value that is"),
        ("alerts: {webhook: 5}", "monitor.alerts.webhook: found a value that is not shown"),
        ("alerts: {rules: [{name: a, on: lag}]}", "monitor.alerts.rules[0].above: found nothing"),
        ("alerts: {rules: [{name: a, on: lag, above: [1]}]}",
         "monitor.alerts.rules[0].above: found a list, expected text"),
        ("alerts: {repeat: 5}", "monitor.alerts.repeat: found 5, expected a duration such as 4h"),
        ("alerts: {rules: [{name: a, on: part_down, for: 1}]}",
         "monitor.alerts.rules[0].for: found 1, expected a duration such as 1m"),
        ("alerts: {rule: []}", "expected one of repeat, rules, timeout, token, webhook"),
        ("messages: perhaps", "monitor.messages: found 'perhaps', expected true or false"),
    ],
)  # fmt: skip
def test_faults_of_the_section_are_told_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    config(tmp_path, f"monitor: {{{text}}}")
    code, _, err = run(monkeypatch, tmp_path, "config", "check", "--quick")
    assert code == Exit.USAGE
    assert words in "\n".join(err)
    assert "s3cret" not in "\n".join(err)


def test_the_webhook_goes_to_the_monitor_and_into_no_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from appliance.config.load import load

    config(tmp_path, "monitor: {alerts: {webhook: 'https://h/s3cret', token: t0ken}}")
    code, out, _ = run(monkeypatch, tmp_path, "config", "show")
    assert code == Exit.OK
    assert "s3cret" not in "\n".join(out)
    assert "t0ken" not in "\n".join(out)
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    initialise(home, (1,))
    mill = Mill(home, load(home.config_file, home.folder).config, Placement())
    told = MonitorSettings.model_validate(monitor_settings(mill))
    alerts = told.section.alerts
    assert alerts.webhook is not None and alerts.token is not None
    assert alerts.webhook.get_secret_value() == "https://h/s3cret"
    assert alerts.token.get_secret_value() == "t0ken"
    assert alerts.all_rules() == mill.config.monitor.alerts.all_rules()
    assert told.page == "http://127.0.0.1:8090"
