"""The broker's counters and times, for `/metrics` and `/status`.

A counter is a plain integer, because a call of a counter object would cost more than most events.
The code that serves an event adds to its counter. An event that is also logged, or that has more
than one counter, has a method. The text format is Prometheus's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from broker.metrics.times import PHASES, ApiTimes, Times
from broker.metrics.warnings import Warnings
from broker.storage.errors import DiskError
from broker.world import Clock
from protocol.log import fields
from protocol.messages.api import ApiKey
from protocol.types import TopicPartition

logger = logging.getLogger(__name__)


class Metrics:
    """The counters since the start of the process."""

    def __init__(self, now_ns: Callable[[], int], clock: Clock) -> None:
        """`now_ns` is a clock for durations."""
        self._now_ns = now_ns
        self.warnings = Warnings(clock)
        self.apis: dict[ApiKey, ApiTimes] = {}
        self.flushes = Times()
        self.loop_lateness = Times()
        self.bytes_in = 0
        """The number of bytes of the batches that clients have appended."""
        self.bytes_out = 0
        """The number of bytes of batches in the answers to fetches of clients."""
        self.fetches_completed_early = 0
        """The number of parked fetches that were completed early for a later request."""
        self.write_failures = 0
        self.last_write_failure: tuple[int, str] | None = None
        """The wall time at which the disk last refused a write, and its error; None if it never
        did."""
        self.connections_refused = 0
        self.loop_lags = 0
        self.connections_total = 0
        self.authorization_denied = 0
        """The operations that clients may not do, and that a request asked for."""

    @property
    def requests_total(self) -> int:
        return sum(one.count for one in self.apis.values())

    def times_of(self, key: ApiKey) -> ApiTimes:
        """Return the counts and times of one API's requests."""
        return self.apis.setdefault(key, ApiTimes(key, self._now_ns))

    def connection_came(self, refusal: str) -> None:
        """Count a new connection. `refusal` is the reason why it was refused; empty if it was
        accepted."""
        if refusal:
            self.connections_refused += 1
        else:
            self.connections_total += 1

    def write_failed(self, topic_partition: TopicPartition, error: DiskError, now_ms: int) -> None:
        """Count a write that the disk refused. The producers got an error that they retry."""
        self.warnings.warn(logger, "write refused", partition=topic_partition, error=error)
        self.write_failures += 1
        self.last_write_failure = (now_ms, str(error))

    def loop_lagged(self, lag_ms: int) -> None:
        """Count and log that the event loop was blocked, so that a timer ran late."""
        self.loop_lags += 1
        logger.warning(
            "the event loop was late",
            extra=fields(lag_ms=lag_ms),
        )

    def details(self) -> dict[str, object]:
        """Return the times for `/status`, in microseconds. The 0.99 quantiles are correct to a
        factor of two."""
        return {
            "apis": [
                {"api": one.name, "count": one.count}
                | {
                    f"{phase}_us": _mean_us(one.phase(phase))
                    for phase in PHASES
                    if one.phase(phase).count
                }
                for _, one in sorted(self.apis.items())
                if one.count
            ],
            "flush_us": _mean_us(self.flushes),
            "flush_us_p99": self.flushes.quantile_ns(0.99) // 1000,
            "loop_late_us_p99": self.loop_lateness.quantile_ns(0.99) // 1000,
            "loop_late_us_max": self.loop_lateness.max_ns // 1000,
        }

    def text(
        self, gauges: Mapping[str, int], topics: Mapping[str, Mapping[str, int]] | None = None
    ) -> str:
        """Return everything in Prometheus's text format, with the caller's current gauges.

        `topics` maps the name of a metric to the value for each topic. Topic names need no escaping
        in this format.
        """
        lines = ["# TYPE millrace_broker_requests_total counter"]
        used = [one for _, one in sorted(self.apis.items()) if one.count]
        lines.extend(
            f'millrace_broker_requests_total{{api="{one.name}"}} {one.count}' for one in used
        )
        lines.append("# TYPE millrace_broker_request_seconds histogram")
        for one in used:
            for phase in PHASES:
                if (times := one.phase(phase)).count:
                    labels = f'api="{one.name}",phase="{phase}"'
                    lines.extend(times.text("millrace_broker_request_seconds", labels))
        for name, single in (("flush", self.flushes), ("loop_late", self.loop_lateness)):
            lines.append(f"# TYPE millrace_broker_{name}_seconds histogram")
            lines.extend(single.text(f"millrace_broker_{name}_seconds"))
        for name, by_topic in (topics or {}).items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines.append(f"# TYPE millrace_broker_{name} {kind}")
            lines.extend(
                f'millrace_broker_{name}{{topic="{topic}"}} {value}'
                for topic, value in sorted(by_topic.items())
            )
        counters = {
            "bytes_in_total": self.bytes_in,
            "bytes_out_total": self.bytes_out,
            "fetch_completed_early_total": self.fetches_completed_early,
            "write_failures_total": self.write_failures,
            "loop_lags_total": self.loop_lags,
            "connections_total": self.connections_total,
            "connections_refused_total": self.connections_refused,
            "authorization_denied_total": self.authorization_denied,
            "warnings_left_out_total": self.warnings.left_out_count,
        }
        plain: tuple[tuple[str, Mapping[str, int]], ...] = (
            ("counter", counters),
            ("gauge", gauges),
        )
        for kind, values in plain:
            for name, value in values.items():
                lines.append(f"# TYPE millrace_broker_{name} {kind}")
                lines.append(f"millrace_broker_{name} {value}")
        return "\n".join(lines) + "\n"


def _mean_us(times: Times) -> int:
    return times.total_ns // 1000 // times.count if times.count else 0
