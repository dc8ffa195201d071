"""Sends records and counts the results. A command must report every record that was not stored."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from appliance.kafka.lines import Headers
from appliance.output import CommandError, Exit
from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError
from protocol.client.producer import Producer
from protocol.errors import ApiError, ErrorCode

READ_BYTES = 1 << 16
LINE_BYTES_MAX = 64 << 20
REASONS_KEPT = 3
KNOWN_WITHIN_MS = 1_500


@dataclass(slots=True)
class ProduceTally:
    """The numbers of records that were sent, stored and rejected, and the reasons of the first
    rejections."""

    sent: int = 0
    stored: int = 0
    failed: int = 0
    reasons: list[str] | None = None

    def settle(self, error: BaseException | None) -> None:
        """Count the result of one record; `error` is None if the record was stored."""
        if error is None:
            self.stored += 1
            return
        self.failed += 1
        self.reasons = self.reasons or []
        if len(self.reasons) < REASONS_KEPT and str(error) not in self.reasons:
            self.reasons.append(str(error))


@dataclass(frozen=True, slots=True)
class RecordToSend:
    """One record to send. If `partition` is None, the key decides the partition."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class RecordPace:
    """Limits the number of records per second."""

    per_second: float

    async def wait(self, sent: int, began_s: float) -> None:
        """Wait until the record with the number `sent`, counted from 0, is due."""
        left_s = began_s + sent / self.per_second - time.monotonic()
        if left_s > 0:
            await asyncio.sleep(left_s)


async def refuse_unknown(cluster: Cluster, topic: str) -> None:
    """Raise CommandError for a topic that does not exist.

    A new topic is known to all brokers within KNOWN_WITHIN_MS, so wait that long.
    """
    try:
        await cluster.topic(topic, timeout_ms=KNOWN_WITHIN_MS)
    except ApiError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        text = f"topic {topic!r} does not exist; `millrace topic create` makes it"
        raise CommandError(text, Exit.NOT_FOUND) from error


async def send(
    cluster: Cluster,
    topic: str,
    records: AsyncIterator[RecordToSend],
    *,
    settings: dict[str, Any],
    tally: ProduceTally,
    pace: RecordPace | None = None,
    per_transaction: int | None = None,
) -> None:
    """Send all of `records`. Return, or raise an error, when each record has its result.

    `settings` are the settings of the producer. With a transactional id, all records are one
    transaction, or several of `per_transaction` records. A transaction is aborted when an error
    interrupts it.
    """
    producer = Producer(cluster, **settings)
    is_transactional = settings.get("transactional_id") is not None
    await producer.start()
    began_s = time.monotonic()
    try:
        if is_transactional:
            await producer.init_transactions()
            producer.begin_transaction()
        async for one in records:
            if pace is not None:
                await pace.wait(tally.sent, began_s)
            is_whole = per_transaction and tally.sent and tally.sent % per_transaction == 0
            if is_transactional and is_whole:
                await producer.commit_transaction()
                producer.begin_transaction()
            future = await producer.send(
                topic,
                one.value,
                key=one.key,
                headers=one.headers,
                partition=one.partition,
            )
            future.add_done_callback(lambda done: tally.settle(_error_of(done)))
            tally.sent += 1
        if is_transactional:
            await producer.commit_transaction()
    finally:
        await _finish(producer, tally)


async def _finish(producer: Producer, tally: ProduceTally) -> None:
    """Wait for all results. Closing aborts an open transaction."""
    try:
        await producer.flush()
    except (ApiError, ClientError) as error:
        tally.settle(error)
    finally:
        await producer.close()
        # The callbacks that count the results run in the next iteration of the event loop, so wait
        # for it.
        await asyncio.sleep(0)


def _error_of(done: "asyncio.Future[Any]") -> BaseException | None:
    return asyncio.CancelledError() if done.cancelled() else done.exception()


async def lines_of(descriptor: int) -> AsyncIterator[bytes]:
    """Return the lines of a file or a pipe as they come, without line ends. The last line can be
    without a line end.

    Raises ValueError for a line above LINE_BYTES_MAX.
    """
    held = bytearray()
    while True:
        more = await asyncio.to_thread(os.read, descriptor, READ_BYTES)
        if not more:
            break
        held += more
        *whole, rest = held.split(b"\n")
        held = bytearray(rest)
        for line in whole:
            yield bytes(line).removesuffix(b"\r")
        if len(held) > LINE_BYTES_MAX:
            raise ValueError(
                f"found more than {LINE_BYTES_MAX} bytes without a line end, expected shorter lines"
            )
    if held:
        yield bytes(held)
