"""A collector that logs in and has few rights, or none yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.app import main
from collector.send.position_topics import GROUP_PARTITIONS
from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority
from tests.harness.collector import CollectorProcess, Read
from tests.harness.secured import give_password
from tests.harness.wait import wait_until
from tests.interop.conftest import RunMain

pytestmark = pytest.mark.live

USER, PASSWORD = "collector.web-1", "a long password of web-1"
COMMAND = re.compile(r"run `millrace ([^`]+)`")
SECTION = {
    "instance": "web-1",
    "group": "web",
    "inputs": [
        {"paths": ["watched/text/**"], "topic": "logs.web"},
        {"paths": ["watched/json/**"], "topic": "logs.missing"},
    ],
    "scan_interval": "1s",
}


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: TestAuthority
) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, tls=authority.write(), needs_login=True) as running:
        for user in ("root", USER):  # the listener waits for a super user
            give_password(running.bootstrap, user, PASSWORD)
        yield running


class Secured(CollectorProcess):
    """A collector that logs in."""

    ca: Path

    def settings_object(self) -> dict[str, Any]:
        security = {"ca": str(self.ca), "user": USER, "password": PASSWORD}
        return super().settings_object() | {"security": security}


def test_the_commands_in_its_problems_give_a_collector_all_that_it_needs(
    broker: BrokerProcess, authority: TestAuthority, tmp_path: Path, read: Read, run_main: RunMain
) -> None:
    def command(*words: str) -> None:
        run_main(main, *words, "-b", broker.bootstrap)

    command("topic", "create", "millrace.positions.web", "-p", str(GROUP_PARTITIONS))
    for topic in ("millrace.dead-letters", "millrace.collectors", "logs.web"):
        command("topic", "create", topic, "-p", "3")
    told: list[str] = []

    def next_command() -> bool:
        texts = [one.text for one in collector.status().problems if one.code in ("rights", "topic")]
        new = [one for text in texts for one in COMMAND.findall(text) if one not in told]
        told.extend(new[:1])
        return bool(new)

    reader = read("logs.web")
    collector = Secured(tmp_path, broker.net_bootstrap, SECTION)
    collector.ca = authority.file
    (collector.home / "watched/text/a.log").write_bytes(b"one\n")
    (collector.home / "watched/json/b.log").write_bytes(b"{}\n")
    collector.spawn()
    try:
        for number in range(7):
            wait_until(next_command, 60, f"the command after {told}")
            command(*told[number].split())
        assert reader.values(1) == [b"one"]
        wait_until(lambda: collector.status().problems == (), 60, "no problem")
        wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 30, "no lag")
    finally:
        collector.close()
    allow = f"acl allow {USER}"
    assert sorted(told) == sorted(
        [
            f"{allow} read,write --topic millrace.positions.web",
            f"{allow} write --topic millrace.dead-letters",
            f"{allow} write --topic millrace.collectors",
            f"{allow} write --transactional-id millrace-collector-web-1",
            f"{allow} write --topic logs.web",
            f"{allow} write --topic logs.missing",
            "topic create logs.missing --partitions 3",
        ]
    )
