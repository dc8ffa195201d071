"""A real monitor process on a separate port, for brokers that a test has started."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sinks.config import SinksSettings
from tests.harness import ROOT
from tests.harness.broker import BrokerProcess
from tests.harness.ports import free_port
from tests.harness.processes import launch


class MonitorProcess:
    """A monitor process. It starts with this object and runs until the test kills it."""

    def __init__(
        self,
        brokers: Sequence[BrokerProcess],
        folder: Path,
        sinks: SinksSettings | None = None,
        *,
        refresh: str = "2s",
        alerts: Mapping[str, object] | None = None,
        token: str | None = None,
    ) -> None:
        """Start the monitor. `brokers` are its bootstrap servers, in this order, and its parts.

        `alerts` is its section `monitor.alerts`; the default is the shipped rules. Orders on the
        page require `token`. Without a token the page accepts no orders.
        """
        self.port = free_port()
        settings = {
            "bootstrap_servers": ",".join(one.bootstrap for one in brokers),
            "data_dir": str(folder),
            "parts": {
                f"broker-{one.node_id}": f"http://127.0.0.1:{one.status_port}" for one in brokers
            },
            "sinks": None if sinks is None else sinks.model_dump(mode="json"),
            "section": {
                "listen": f"127.0.0.1:{self.port}",
                "refresh": refresh,
                "alerts": alerts or {},
                "admin": token is not None,
            },
            "token": token,
        }
        command = (sys.executable, "-m", "monitor")
        self.process = launch(command, json.dumps(settings).encode(), cwd=ROOT)

    def get(self, path: str) -> Any:
        """Return the JSON response to a GET request."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return json.load(answer)

    def rows(self, what: str) -> list[Any]:
        """Return the rows of one table of the API."""
        found: list[Any] = self.get(f"/api/v1/{what}")["data"]
        return found

    def lag(self) -> list[Any]:
        """Return (state, lag, last_lag) of every cell."""
        return [(row["state"], row["lag"], row["last_lag"]) for row in self.rows("lag")]

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
