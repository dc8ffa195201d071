"""A broker that is killed again and again while recorded clients use it, and the final check.

with Campaign(broker, chance, places) as campaign:
    campaign.add_producers(3)
    campaign.add_consumer()
    campaign.kills(20)
    campaign.judge("20 kills")
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.harness.broker import BrokerProcess
from tests.harness.checker import Report, Rules, check
from tests.harness.history import Place
from tests.harness.mounts import Ext4Image
from tests.harness.recorded import (
    Recorded,
    RecordedCommitter,
    RecordedConsumer,
    RecordedProducer,
    read_everything,
)
from tests.harness.recorded_transformer import RecordedTransformer
from tests.harness.tally import tell
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient

PROGRESS_DEADLINE_S = 45.0

RECORDS_BETWEEN_MAX = 1_500
"""The broker is killed after a random number of further acknowledgements, at most this one."""

DEATH_AT_START = 0.2
"""The probability that the next kill comes while the broker still recovers from the last one."""

START_S_MAX = 0.6
"""A kill during a start comes within this time: before, during or after the recovery of the
logs."""


def pause(seconds: float) -> None:
    """Sleep for a random time, so that a fault comes at a random moment. Never use this in place
    of waiting for a condition."""
    time.sleep(seconds)


def create_topic(
    broker: BrokerProcess,
    name: str,
    partitions: int,
    configs: Sequence[CreatableTopicConfig] = (),
) -> ErrorCode:
    """Create a topic. Return the error code of the broker's response."""
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=list(configs)
    )
    with WireClient(broker.bootstrap) as client:
        answer = client.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0]
        return ErrorCode(answer.error_code)


class Campaign:
    """Clients of one broker. Leaving the block ends all of them."""

    def __init__(
        self, broker: BrokerProcess, chance: random.Random, places: Iterable[Place]
    ) -> None:
        self.broker = broker
        self.chance = chance
        self.places = list(places)
        self.producers: list[RecordedProducer] = []
        self.consumers: list[RecordedConsumer] = []
        self.committers: list[RecordedCommitter] = []
        self.transformers: list[RecordedTransformer] = []
        self.counts: dict[str, int] = {}
        """Faults by name, for the summary line."""
        self._is_finished = False

    def add_producers(
        self,
        count: int,
        settings: Mapping[str, Any] | None = None,
        *,
        keys: int = 0,
        per_turn: int = 10,
    ) -> None:
        """Start this number of idempotent producers. Each one sends at most `per_turn` records
        every 4 ms."""
        for _ in range(count):
            name = f"p{len(self.producers)}"
            self.producers.append(
                RecordedProducer(
                    self.broker.bootstrap,
                    name,
                    self.places,
                    self.chance,
                    settings=settings,
                    keys=keys,
                    per_turn=per_turn,
                )
            )

    def create(self, partitions: int, **config: object) -> None:
        """Create the campaign's topic with these settings (`segment_bytes=…` for
        `segment.bytes`)."""
        configs = [
            CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
            for key, value in config.items()
        ]
        name = self.places[0][0]
        code = create_topic(self.broker, name, partitions, configs)
        assert code is ErrorCode.NONE, code

    def add_consumer(self, settings: Mapping[str, Any] | None = None) -> None:
        name = f"c{len(self.consumers)}"
        self.consumers.append(
            RecordedConsumer(self.broker.bootstrap, name, self.places, settings=settings)
        )

    def add_committer(self, group: str) -> None:
        self.committers.append(RecordedCommitter(self.broker.bootstrap, group, self.places))

    # Progress.

    @property
    def acknowledged(self) -> int:
        return sum(one.acknowledged for one in self.producers)

    def wait_for(self, more: int, what: str) -> None:
        """Wait until this number of further records has been acknowledged."""
        target = self.acknowledged + more
        wait_until(partial(self._has_reached, target), PROGRESS_DEADLINE_S, what)

    def _has_reached(self, count: int) -> bool:
        failures = self.failures
        if failures:
            raise SystemExit(f"records were refused for good: {failures[:3]}")
        return self.acknowledged >= count

    @property
    def failures(self) -> list[str]:
        found = [one.failures for one in self.producers]
        found += [one.failures for one in self.transformers]
        return [failure for failures in found for failure in failures]

    # Faults.

    def kills(self, count: int, between: Callable[[], None] | None = None) -> None:
        """Kill the broker this number of times at random moments. Writes continue after each
        kill."""
        self._deaths(count, self.broker.kill9, "kills", between)

    def cuts(self, disk: Ext4Image, count: int, between: Callable[[], None] | None = None) -> None:
        """Cut the power of the data disk and kill the broker, this number of times."""

        def cut() -> None:
            # A machine without power also runs no code. An fsync during the shutdown of the file
            # system returns a wrong result, so freeze the broker first: it must acknowledge
            # nothing.
            self.broker.freeze()
            disk.cut_power()
            self.broker.kill9()
            disk.return_power()

        self._deaths(count, cut, "power cuts", between)

    def _deaths(
        self, count: int, death: Callable[[], None], name: str, between: Callable[[], None] | None
    ) -> None:
        for number in range(count):
            if self.broker.process is None:
                # The broker is down: start it, and kill it before, during or after its recovery.
                self.broker.spawn()
                pause(self.chance.uniform(0, START_S_MAX))
            else:
                self.wait_for(self.chance.randint(1, RECORDS_BETWEEN_MAX), f"the next of {name}")
                if between is not None:
                    between()
            death()
            self.count(name)
            if number == count - 1 or self.chance.random() >= DEATH_AT_START:
                self.broker.start()
                self.wait_for(1, "writes go on")

    def count(self, what: str, more: int = 1) -> None:
        """Count a fault for the printed summary."""
        self.counts[what] = self.counts.get(what, 0) + more

    def _clients(self) -> list[Recorded]:
        return [*self.producers, *self.consumers, *self.committers, *self.transformers]

    # The end.

    def finish(self) -> None:
        """Stop all clients after every record has a result. The broker must be running."""
        self._is_finished = True
        faults = []
        for one in self._clients():
            try:
                one.finish()
            except AssertionError as error:
                faults.append(str(error))
        assert not faults, faults

    def judge(
        self, what: str, rules: Rules | None = None, *, places: Iterable[Place] | None = None
    ) -> Report:
        """Stop the clients, read all records, check the history and print the counts. Fail on any
        anomaly."""
        self.finish()
        places = set(places or ()) | {place for one in self.producers for place in one.places}
        last = read_everything(self.broker.bootstrap, places)
        report = check(
            [one.log for one in self.producers],
            [*(one.log for one in self.consumers), last],
            [one.log for one in self.committers],
            rules,
        )
        named = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        tell(f"{what}: {named}; {report.line()}")
        assert report.is_clean, report.text()
        assert not self.failures, self.failures[:5]
        assert report.acknowledged == report.sent
        return report

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_finished:
            return
        if self.broker.process is not None:
            self.broker.kill9()
        # The clients' threads must end even if no broker responds any more.
        for one in self._clients():
            one.abandon()
