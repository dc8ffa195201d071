"""What is done to one broker, ours or the peer, and what it cost it: one function a row.

Every case makes its topic anew, looks at the broker's CPU seconds before and after, checks that
nothing was lost, and removes the topic. What earlier cases have left to be written back is written
before the clock starts, and pages are warmed.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bench import librdkafka, raw, wakeful
from bench.figures import percentile
from bench.machine import cpu_s
from bench.measurement import Figures
from bench.requests import check_produced, fetch_frame, fetch_request, produce_frame
from bench.servers import Server
from bench.session import Bench
from bench.warm import warm_pages
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.harness.wire import WireClient

PARTITIONS = 6
GB = 1e9

WARM_BYTES = 4 << 30
"""Several times what any run writes, for the client and the sockets take pages as well."""
DIFFERENT_VALUES = 64
LED_S_MAX = 30.0
POLL_S = 0.02

Case = Callable[[Server, Mapping[str, str]], Figures]
"""Takes the broker and the topic's settings."""


class _Spent:
    """CPU seconds of a broker since it was made."""

    def __init__(self, server: Server) -> None:
        os.sync()
        warm_pages(WARM_BYTES)
        self._pid = server.pid
        self._before_s = cpu_s(server.pid)

    @property
    def seconds(self) -> float:
        return cpu_s(self._pid) - self._before_s


@contextmanager
def new_topic(server: Server, settings: Mapping[str, str], partitions: int) -> Iterator[str]:
    """A topic for one run, under a name of its own: Kafka deletes behind its answer."""
    server.topic_count += 1
    name = f"bench-{server.topic_count}"
    server.topics.create(name, partitions, settings)
    try:
        until_led(server, name, partitions)
        yield name
    finally:
        server.topics.delete(name)


def until_led(server: Server, topic: str, partitions: int) -> None:
    """Wait until every partition is served: Kafka answers a creation before that."""
    end_s = time.monotonic() + LED_S_MAX
    asked = [
        ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)]
    )
    with WireClient(server.bootstrap, "bench") as client:
        while any(one.error_code for one in client.ask(request, 2).topics[0].partitions):
            if time.monotonic() > end_s:
                raise TimeoutError(f"{topic} is not served {LED_S_MAX} s after its creation")
            time.sleep(POLL_S)


def _all_there(server: Server, topic: str, partitions: int, count: int) -> None:
    found = server.topics.record_count(topic, partitions)
    server.record_count += found
    if found != count:
        raise librdkafka.Lost(f"{found} of {count} records in the topic")


def produce(bench: Bench, size_bytes: int, count: int) -> Case:
    """librdkafka, linger 5 ms, acks=1, six partitions."""
    chance = random.Random(bench.options.seed)
    values = [chance.randbytes(size_bytes) for _ in range(DIFFERENT_VALUES)]

    def measure(server: Server, settings: Mapping[str, str]) -> Figures:
        with new_topic(server, settings, PARTITIONS) as topic:
            spent = _Spent(server)
            seconds = librdkafka.produce(server.bootstrap, topic, values, count, "1")
            spent_s = spent.seconds
            _all_there(server, topic, PARTITIONS, count)
        volume = count * size_bytes
        return {
            "mb_per_s": volume / seconds / 1e6,
            "records_per_s": count / seconds,
            "cpu_s_per_gb": spent_s / volume * GB,
            "cpu_s_per_million": spent_s / count * 1e6,
        }

    return measure


def requests(bench: Bench, connections: int, in_flight: int) -> Case:
    """One record of 100 bytes a request, acks=1, replayed on bare connections."""
    seconds = bench.options.sized(4, 1)
    partitions = min(PARTITIONS, connections)

    def measure(server: Server, settings: Mapping[str, str]) -> Figures:
        with new_topic(server, settings, partitions) as topic:
            frames = [
                produce_frame(topic, number % partitions, "1") for number in range(connections)
            ]
            spent = _Spent(server)
            found = raw.replay(server.bootstrap, frames, in_flight=in_flight, seconds=seconds)
            spent_s = spent.seconds
            check_produced(found.last_answer)
            _all_there(server, topic, partitions, found.requests)
        return {
            "requests_per_s": found.requests / found.seconds,
            "cpu_us_per_request": spent_s / found.requests * 1e6,
            "ack_p50_us": percentile(found.latencies_s, 0.5) * 1e6,
            "ack_p99_us": percentile(found.latencies_s, 0.99) * 1e6,
        }

    return measure


def on_the_way(bench: Bench, rate: int) -> Case:
    """Produced at a pace on one connection, consumed on another."""
    seconds = bench.options.sized(5, 1)

    def measure(server: Server, settings: Mapping[str, str]) -> Figures:
        with new_topic(server, settings, 1) as topic:
            spent = _Spent(server)
            frame = produce_frame(topic, 0, "1")
            found = wakeful.latencies(server.bootstrap, topic, frame, rate, seconds)
            spent_s = spent.seconds
            server.record_count += len(found)
        return {
            "p50_ms": percentile(found, 0.5) * 1e3,
            "p99_ms": percentile(found, 0.99) * 1e3,
            "cpu_us_per_record": spent_s / len(found) * 1e6,
        }

    return measure


def consume(topic: str, count: int, size_bytes: int) -> Case:
    """librdkafka from the start of a topic of six partitions, all of it in the page cache."""

    def measure(server: Server, _: Mapping[str, str]) -> Figures:
        spent = _Spent(server)
        seconds = librdkafka.consume(server.bootstrap, topic, PARTITIONS, count)
        return _volume(count * size_bytes, seconds, spent.seconds)

    return measure


def replayed_fetches(bench: Bench, topic: str) -> Case:
    """Answers of a megabyte, thrown away by a client that does nothing else."""
    seconds = bench.options.sized(3, 1)

    def measure(server: Server, _: Mapping[str, str]) -> Figures:
        frames = [fetch_frame(fetch_request(topic, {number: 0})) for number in range(2)]
        spent = _Spent(server)
        found = raw.replay(server.bootstrap, frames, in_flight=2, seconds=seconds)
        return _volume(found.answer_bytes, found.seconds, spent.seconds)

    return measure


def _volume(volume: int, seconds: float, spent_s: float) -> Figures:
    return {"mb_per_s": volume / seconds / 1e6, "cpu_s_per_gb": spent_s / volume * GB}
