"""`millrace alerts`: open alerts, a test of the webhook, and the same rules for Prometheus."""

import json
import time
from typing import TYPE_CHECKING

import typer

from appliance.cli import context
from appliance.cli.help_lines import group_of_commands
from appliance.cli.lag_command import ask_monitor
from appliance.cli.options import EnvelopeOption
from appliance.mill.parts import page_url
from appliance.output import (
    CommandError,
    Exit,
    counted,
    duration_text,
    out,
    print_json,
    print_table,
    say,
    tell,
)

if TYPE_CHECKING:
    from monitor.config.alert_rules import AlertsSection

app = group_of_commands("Open alerts, and where the monitor sends them.")


@app.command("list")
def list_alerts(as_json: EnvelopeOption = False) -> None:
    """The open alerts, oldest first; exit code 3 when there are any."""
    mill = context.mill_as_it_runs()
    rows = ask_monitor(mill, "/api/v1/alerts")["data"]
    if as_json:
        print_json("alerts/1", rows)
    elif rows:
        now_ms = round(time.time() * 1000)
        print_table(
            ["RULE", "SUBJECT", "OPEN_FOR", "WHAT"],
            [
                [row["rule"], row["subject"], duration_text(now_ms - row["opened_at_ms"]),
                 row["text"]]
                for row in rows
            ],
        )  # fmt: skip
    say(f"{counted(len(rows), 'alert')} {'is' if len(rows) == 1 else 'are'} open")
    if rows:
        raise typer.Exit(Exit.CONDITION)


@app.command()
def test(as_json: EnvelopeOption = False) -> None:
    """Post a test message to the webhook and report the result; this opens no alert.

    Exit code 4 if the configuration names no webhook, 1 if the webhook does not accept the message.
    """
    from monitor.alerts.message import trial_body
    from monitor.alerts.webhook import Webhook, WebhookFailed

    mill, _ = context.load_mill()
    section = mill.config.monitor.alerts
    rules = [rule.name for rule in section.rules]
    if section.webhook is None:
        raise CommandError(
            "monitor.alerts.webhook is not set, so no message can be sent: alerts are on the page"
            f" and in the monitor's log only ({len(rules)} rules)",
            Exit.NOT_FOUND,
        )
    token = None if section.token is None else section.token.get_secret_value()
    webhook = Webhook(section.webhook.get_secret_value(), token, timeout_s=section.timeout_s)
    now_ms = round(time.time() * 1000)
    page = page_url(mill.config)
    began_s = time.monotonic()
    try:
        status = webhook.send(trial_body(now_ms, page, "test", rules))
    except WebhookFailed as error:
        raise CommandError(str(error)) from error
    took_ms = round((time.monotonic() - began_s) * 1000)
    words = f"{webhook.host} accepted the message after {took_ms} ms with status {status}"
    data = {"host": webhook.host, "status": status, "took_ms": took_ms}
    tell(words, "webhook/1", data, as_json)


@app.command()
def prometheus() -> None:
    """Print the same rules as a rules file for Prometheus."""
    import yaml

    from monitor.alerts.prometheus_rules import prometheus_rules

    found = prometheus_rules(_section().all_rules())
    out(yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=100).rstrip())


@app.command()
def grafana() -> None:
    """Print a Grafana dashboard; its data source is Prometheus."""
    from monitor.alerts.prometheus_rules import dashboard

    out(json.dumps(dashboard(), indent=1))


def _section() -> "AlertsSection":
    mill, _ = context.load_mill()
    return mill.config.monitor.alerts
