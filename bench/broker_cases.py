"""The cases of the broker's bench. Each function returns a case, which runs on our server or the
peer.

A server is one broker, or three that replicate. With three, producers wait for all in-sync
replicas. Every case creates its topic, reads the brokers' CPU seconds before and after, checks that
no record was lost, and deletes the topic. Before the clock starts, it writes out the dirty pages of
earlier cases and warms memory pages.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bench import librdkafka, raw, wakeful
from bench.figures import percentile
from bench.measurement import Figures
from bench.requests import check_produced, fetch_frame, fetch_request, produce_frame
from bench.servers import Server, leader_addresses
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
"""The number of bytes of memory to warm. This is several times what any run writes, because clients
and sockets use memory too."""
DIFFERENT_VALUES = 64
LED_S_MAX = 30.0
POLL_S = 0.02

Case = Callable[[Server, Mapping[str, str]], Figures]
"""A function that measures one server with the given topic settings."""


class _Spent:
    """The CPU seconds that a server has used since this object was created."""

    def __init__(self, server: Server) -> None:
        os.sync()
        warm_pages(WARM_BYTES)
        self._server = server
        self._before_s = server.cpu_s

    @property
    def seconds(self) -> float:
        return self._server.cpu_s - self._before_s


@contextmanager
def new_topic(server: Server, settings: Mapping[str, str], partitions: int) -> Iterator[str]:
    """Create a topic for one run and delete it afterwards. Each topic has a name of its own,
    because Kafka answers DeleteTopics before the topic is gone."""
    server.topic_count += 1
    name = f"bench-{server.topic_count}"
    server.topics.create(name, partitions, settings)
    try:
        leaders(server, name, partitions)
        yield name
    finally:
        server.topics.delete(name)


def leaders(server: Server, topic: str, partitions: int) -> list[str]:
    """Wait until every partition's leader serves it, and return the leaders' addresses. Kafka
    answers CreateTopics before the leaders serve."""
    end_s = time.monotonic() + LED_S_MAX
    with WireClient(server.address, "bench") as client:
        while True:
            found = leader_addresses(client, topic)
            if len(found) == partitions and _are_led(topic, found):
                return [found[index] for index in range(partitions)]
            if time.monotonic() > end_s:
                raise TimeoutError(
                    f"not all partitions of topic {topic} have a leader that answers, "
                    f"{LED_S_MAX} s after the topic was created"
                )
            time.sleep(POLL_S)


def _are_led(topic: str, by_partition: Mapping[int, str]) -> bool:
    """Return whether each broker answers ListOffsets for the partitions that it leads according to
    the metadata."""
    for address in set(by_partition.values()):
        asked = [
            ListOffsetsPartition(partition_index=index, timestamp=-1)
            for index, leader in by_partition.items()
            if leader == address
        ]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)]
        )
        with WireClient(address, "bench") as client:
            if any(one.error_code for one in client.ask(request, 2).topics[0].partitions):
                return False
    return True


def _all_there(server: Server, topic: str, partitions: int, count: int) -> None:
    found = server.topics.record_count(topic, partitions)
    server.record_count += found
    if found != count:
        raise librdkafka.Lost(f"the topic has {found} records, expected {count}")


def produce(bench: Bench, size_bytes: int, count: int) -> Case:
    """Return the case in which librdkafka produces to six partitions with a linger time of 5 ms."""
    chance = random.Random(bench.options.seed)
    values = [chance.randbytes(size_bytes) for _ in range(DIFFERENT_VALUES)]

    def measure(server: Server, settings: Mapping[str, str]) -> Figures:
        with new_topic(server, settings, PARTITIONS) as topic:
            spent = _Spent(server)
            acks = server.replication.acks
            seconds = librdkafka.produce(server.bootstrap, topic, values, count, acks)
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
    """Return the case that replays Produce requests of one record (100 bytes) on plain connections
    to the leaders."""
    seconds = bench.options.sized(4, 1)
    partitions = min(PARTITIONS, connections)

    def measure(server: Server, settings: Mapping[str, str]) -> Figures:
        with new_topic(server, settings, partitions) as topic:
            acks = server.replication.acks
            sent = [
                (address, produce_frame(topic, index, acks))
                for index, address in enumerate(leaders(server, topic, partitions))
            ]
            wanted = [sent[number % partitions] for number in range(connections)]
            spent = _Spent(server)
            found = raw.replay(wanted, in_flight=in_flight, seconds=seconds)
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
    """Return the case that produces at a fixed rate on one connection, consumes on another, and
    measures how long records take."""
    seconds = bench.options.sized(5, 1)

    def measure(server: Server, settings: Mapping[str, str]) -> Figures:
        with new_topic(server, settings, 1) as topic:
            spent = _Spent(server)
            (leader,) = leaders(server, topic, 1)
            frame = produce_frame(topic, 0, server.replication.acks)
            found = wakeful.latencies(leader, topic, frame, rate, seconds)
            spent_s = spent.seconds
            server.record_count += len(found)
        return {
            "p50_ms": percentile(found, 0.5) * 1e3,
            "p99_ms": percentile(found, 0.99) * 1e3,
            "cpu_us_per_record": spent_s / len(found) * 1e6,
        }

    return measure


def consume(topic: str, count: int, size_bytes: int) -> Case:
    """Return the case in which librdkafka consumes a topic of six partitions from its start. All
    records are in the page cache."""

    def measure(server: Server, _: Mapping[str, str]) -> Figures:
        spent = _Spent(server)
        seconds = librdkafka.consume(server.bootstrap, topic, PARTITIONS, count)
        return _volume(count * size_bytes, seconds, spent.seconds)

    return measure


def replayed_fetches(bench: Bench, topic: str) -> Case:
    """Return the case that fetches a megabyte per request with a client that discards the
    records."""
    seconds = bench.options.sized(3, 1)

    def measure(server: Server, _: Mapping[str, str]) -> Figures:
        wanted = [
            (server.address, fetch_frame(fetch_request(topic, {number: 0}))) for number in range(2)
        ]
        spent = _Spent(server)
        found = raw.replay(wanted, in_flight=2, seconds=seconds)
        return _volume(found.answer_bytes, found.seconds, spent.seconds)

    return measure


def _volume(volume: int, seconds: float, spent_s: float) -> Figures:
    return {"mb_per_s": volume / seconds / 1e6, "cpu_s_per_gb": spent_s / volume * GB}
