"""The container of a part that is not configured: it is healthy, says why it is idle, and can be
stopped."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.healthz import ask
from appliance.mill.home import CODE
from tests.harness.ports import free_ports
from tests.harness.wait import wait_until

DEADLINE_S = 20.0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_that_is_not_asked_for_waits(tmp_path: Path, how: signal.Signals) -> None:
    port = free_ports(3)
    config = tmp_path / "mill.yaml"
    config.write_text(f"cluster: {{brokers: 1}}\nports: {{broker_status: {port}}}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", "--config", str(config), "run", "broker-3"],
        cwd=CODE,
        env={"MILLRACE_HOME": str(tmp_path), "MILLRACE_PUBLISHED": "loopback"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: ask(str(port + 2))[0], DEADLINE_S, "it answers for its health")
        process.send_signal(how)
        _, said = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "the configuration has no part broker-3" in said
    assert not (tmp_path / "data" / "broker-3").exists()
