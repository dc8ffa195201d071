"""Collectors of ten hosts lose all connections while they write, and send each line once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority
from tests.harness.fleet import BROKER_SETTINGS, Fleet
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

COUNT = 10
INTERVAL_MS = 500


def test_ten_collectors_that_lose_all_connections_send_each_line_once(
    tmp_path: Path, authority: TestAuthority
) -> None:
    broker = BrokerProcess(tmp_path, BROKER_SETTINGS, tls=authority.write(), needs_login=True)
    with broker:
        fleet = Fleet(tmp_path, [broker], authority.file, COUNT, interval_ms=INTERVAL_MS)
        with fleet, fleet.reader() as reader:
            fleet.write()
            wait_until(lambda: len(reader.judge.arrived) == COUNT, 30, "lines of each collector")
            cut_ms = time.time_ns() // 1_000_000
            fleet.cut()
            wait_until(lambda: fleet.oldest_commit_ms > cut_ms, 60, "each has committed again")
            written = fleet.pause()
            assert len(written) == COUNT
            reader.wait_for_all(written, 60)
            fleet.end()
