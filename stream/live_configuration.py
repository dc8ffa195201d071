"""The configuration that the stream counts, and its changes while the stream runs.

A change is checked while the query runs. The query then ends between two batches, and the next
query continues at the same offsets with the new metrics. It opens the sinks again; everything that
they have stored before was counted with the old metrics. A change that cannot be counted is refused
and reported, and the stream continues as before. A restart does not forget the refusal.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from protocol.log import fields
from sinks.store import Sinks
from stream.config.changes import (
    ConfigWatch,
    RefusedConfig,
    UnreadableConfigFile,
    changed_section,
    later_keys,
)
from stream.config.settings import StreamSection, StreamSettings, StreamTopicSettings, StreamUpdate
from stream.fold.compile import FoldPlan, compile_plan
from stream.parse.check import check_section
from stream.parse.fault import Fault
from stream.plan_check import check_configuration, without
from stream.state import StreamState
from stream.threads import ThreadKeeper

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningConfiguration:
    """One configuration with its compiled plan, and the sinks for its metrics."""

    section: StreamSection
    topics: tuple[StreamTopicSettings, ...]
    plan: FoldPlan
    sinks: Sinks

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        return [metric.name for metric in self.section.metrics]


class LiveConfiguration:
    """Holds the configuration that is counted, `now`, and applies changes to it.

    After `adopt`, a change can be reverted until `settle` is called.
    """

    def __init__(self, settings: StreamSettings, state: StreamState) -> None:
        self._settings = settings
        self._state = state
        self._watch = None if settings.reload is None else ConfigWatch(settings.reload)
        self._refused = RefusedConfig(settings.data_dir / "refused.json")
        self._before: RunningConfiguration | None = None
        self._pending: RunningConfiguration | None = None
        self._stopped: dict[str, str] = {}
        section, topics = settings.section, settings.topics
        instead = self._refused.running_instead(section)
        if instead is not None:
            section, topics = (
                changed_section(section, instead.update.section),
                instead.update.topics,
            )
        self._asked = settings.section
        self.now = self._counting(section, topics)
        state.configured(self.now.names)
        if instead is not None:
            state.refused(instead.why)

    def start(self, keeper: ThreadKeeper) -> None:
        """Start to watch for changes."""
        if self._watch is not None:
            self._watch.start(keeper)

    def close(self) -> None:
        """Stop watching, and close the sinks."""
        if self._watch is not None:
            self._watch.close()
        for one in (self.now, self._before):
            if one is not None:
                one.sinks.close()

    def wanted(self, session: SparkSession) -> RunningConfiguration | None:
        """Return the configuration to change to; None if no change was made or it is refused."""
        found = None if self._watch is None else self._watch.take()
        if isinstance(found, UnreadableConfigFile):
            self._say_refused(found.why)
        elif found is not None:
            self._pending = self._judged(session, found)
        return self._pending

    def adopt(self, change: RunningConfiguration) -> None:
        """Let the next query count by this configuration."""
        self.now.sinks.rest()
        self._before, self.now, self._pending = self.now, change, None

    def go_back(self, why: str) -> bool:
        """Return to the configuration before the adopted change, because no query can count by it.

        Return False if no change was adopted.
        """
        if self._before is None:
            return False
        self.now.sinks.close()
        self.now, self._before = self._before, None
        self._refuse(why)
        return True

    def settle(self) -> None:
        """Confirm the adopted change, because a query counts by it now."""
        if self._before is None:
            return
        before, self._before = self._before, None
        before.sinks.close()
        known, names = set(before.names), set(self.now.names)
        logger.info(
            "the metrics have changed",
            extra=fields(added=sorted(names - known), removed=sorted(known - names)),
        )
        self._accept()

    def faults(self, session: SparkSession) -> list[Fault]:
        """Return the faults that Spark finds in the expressions of the first configuration."""
        return check_section(session, self.now.section)

    def stop_failing(self, session: SparkSession) -> bool:
        """Stop the inputs and metrics that Spark cannot run; return False if none was stopped.

        The next query must open the sinks again.
        """
        return self.stop(check_configuration(session, self.now.section))

    def can_go_on(self, names: Sequence[str], why: str) -> bool:
        """Continue although the sinks refuse the changed definition of these metrics.

        If an adopted change has caused the refusal, that change is reverted. Otherwise these
        metrics are stopped. Returns False if the stream cannot continue.
        """
        if self.go_back(why):
            return True
        known = self.now.names
        faults = [
            Fault(("stream", "metrics", known.index(name)), f"another meaning of {name}", why)
            for name in names
            if name in known
        ]
        return self.stop(faults)

    def stop(self, faults: Sequence[Fault]) -> bool:
        """Stop the inputs and metrics that have these faults.

        Returns False and stops nothing if there are no faults, or if no metric would remain.

        For the sinks this is a change of metrics. The table `metric_ranges` records which lines a
        stopped metric has not counted, so a later recount can count them.
        """
        before = self.now
        rest = without(before.section, [fault.path for fault in faults])
        if not faults or not rest.metrics:
            return False
        before.sinks.rest()
        before.sinks.close()
        self.now = self._counting(rest, before.topics)
        for fault in faults:
            self._stopped |= stopped_by(fault, before.section)
        for name, why in self._stopped.items():
            logger.error(
                "%s is stopped, everything else is counted; to count it again, correct it in the"
                " configuration, or restart the stream",
                name,
                extra=fields(why=why),
            )
        self._state.stopped_counting(self.now.names, self._stopped)
        return True

    def _judged(self, session: SparkSession, found: StreamUpdate) -> RunningConfiguration | None:
        if later := later_keys(self.now.section, found.section):
            logger.warning(
                "changed keys take effect when the stream is started again",
                extra=fields(keys=later),
            )
        self._asked = section = changed_section(self.now.section, found.section)
        if (section, found.topics) == (self.now.section, self.now.topics):
            self._accept()
            return None
        if not section.metrics:
            self._refuse("stream.metrics: found none, expected at least one while the stream runs")
            return None
        if faults := check_configuration(session, section):
            self._refuse("; ".join(map(str, faults)))
            return None
        return self._counting(section, found.topics)

    def _counting(
        self, section: StreamSection, topics: tuple[StreamTopicSettings, ...]
    ) -> RunningConfiguration:
        plan = compile_plan(section)
        sinks = Sinks(self._settings.sinks, [metric.definition for metric in plan.metrics])
        return RunningConfiguration(section, topics, plan, sinks)

    def _accept(self) -> None:
        self._refused.clear()
        self._stopped = {}
        self._state.stopped_counting(self.now.names, {})
        self._state.configured(self.now.names)

    def _refuse(self, why: str) -> None:
        try:
            self._refused.note(
                self._asked, StreamUpdate(section=self.now.section, topics=self.now.topics), why
            )
        except OSError as error:
            logger.error(
                "cannot store the refused configuration, so a restart tries it again",
                extra=fields(why=error),
            )
        self._say_refused(why)

    def _say_refused(self, why: str) -> None:
        logger.error(
            "the changed configuration is refused; the stream keeps the one before it",
            extra=fields(why=why),
        )
        self._state.refused(why)


def stopped_by(fault: Fault, section: StreamSection) -> dict[str, str]:
    """Return the input or metric that has a fault, in words for the user, and the reason."""
    why = f"found {fault.found}, expected {fault.expected}"
    _, kind, place, *key = fault.path
    if kind == "metrics":
        return {f"metric {section.metrics[int(place)].name}": _at_key(key, why)}
    readers = [metric.name for metric in section.metrics if place in metric.from_]
    also = f" (and what reads it: {', '.join(readers)})" if readers else ""
    return {f"input {place}{also}": _at_key(key, why)}


def _at_key(key: Sequence[str | int], why: str) -> str:
    return f"{'.'.join(map(str, key))}: {why}" if key else why
