"""Every notable event of the broker is one method; numbers for `/metrics` and `/status`.

Floor: server. Plain integers: a counter object per event would cost the hot path more than the
event. The text format is Prometheus's.
"""

from __future__ import annotations

import logging
from collections import Counter

from broker.storage.errors import DiskError
from protocol.log import fields
from protocol.messages.api import ApiKey
from protocol.types import TopicPartition

logger = logging.getLogger(__name__)

DISK_WARNING_INTERVAL = 1_000
"""A full disk fails every write: the first of so many is logged."""


class Metrics:
    """Counts since the start of the process."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.bytes_in = 0
        self.bytes_out = 0
        self.fetches_completed_early = 0
        self.write_failures = 0
        self.last_write_failure: tuple[int, str] | None = None
        """When the disk refused a write last (wall clock), and what it said."""
        self.connections_refused = 0
        self.loop_lags = 0
        self.connections_total = 0

    @property
    def requests_total(self) -> int:
        return sum(self.requests.values())

    def request(self, api_key: int) -> None:
        """A request is about to be served."""
        self.requests[api_key] += 1

    def appended(self, size_bytes: int) -> None:
        """A client's batch has been staged."""
        self.bytes_in += size_bytes

    def fetched(self, size_bytes: int) -> None:
        """A fetch has found this much."""
        self.bytes_out += size_bytes

    def fetch_completed_early(self) -> None:
        """A parked fetch made room for the request behind it."""
        self.fetches_completed_early += 1

    def write_failed(self, topic_partition: TopicPartition, error: DiskError, now_ms: int) -> None:
        """The disk has refused a write; producers were told to retry."""
        if self.write_failures % DISK_WARNING_INTERVAL == 0:
            logger.warning("write refused", extra=fields(partition=topic_partition, error=error))
        self.write_failures += 1
        self.last_write_failure = (now_ms, str(error))

    def loop_lagged(self, lag_ms: int) -> None:
        """The loop has come late to its duties: something held it."""
        self.loop_lags += 1
        logger.warning("loop came late", extra=fields(lag_ms=lag_ms))

    def text(self, gauges: dict[str, int]) -> str:
        """Everything in Prometheus's text format; `gauges` are what the caller measured now."""
        lines = ["# TYPE millrace_broker_requests_total counter"]
        lines.extend(
            f'millrace_broker_requests_total{{api="{ApiKey(key).name.lower()}"}} {count}'
            for key, count in sorted(self.requests.items())
        )
        counters = {
            "bytes_in_total": self.bytes_in,
            "bytes_out_total": self.bytes_out,
            "fetch_completed_early_total": self.fetches_completed_early,
            "write_failures_total": self.write_failures,
            "loop_lags_total": self.loop_lags,
            "connections_total": self.connections_total,
            "connections_refused_total": self.connections_refused,
        }
        for kind, values in (("counter", counters), ("gauge", gauges)):
            for name, value in values.items():
                lines.append(f"# TYPE millrace_broker_{name} {kind}")
                lines.append(f"millrace_broker_{name} {value}")
        return "\n".join(lines) + "\n"
