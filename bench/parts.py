"""The parts of the bench, in the order in which they run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench import (
    broker,
    catch_up,
    cluster,
    collector,
    collector_encode,
    fleet,
    footprint,
    formats,
    growth,
    live,
    mill,
    moves,
    protocol,
    sinks,
    storm,
    stream,
)
from bench.measurement import Measurement
from bench.session import Bench, Unavailable

__all__ = ["PARTS", "Part", "Unavailable"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the bench: a description, and the function that measures it."""

    what: str
    measure: Callable[[Bench], Iterator[Measurement]]
    is_asked_for: bool = False
    """True if the part runs only when the command line names it, because it takes too long."""


PARTS = {
    "broker": Part("librdkafka and raw clients against one broker", broker.measure),
    "cluster": Part("three brokers and their failovers; only if named", cluster.measure, True),
    "catch-up": Part(
        "acknowledgements beside a copy of `--size` bytes; only if named", catch_up.measure, True
    ),
    "moves": Part(
        "one replica of `--size` bytes becomes three under writes; only if named",
        moves.measure,
        True,
    ),
    "collector": Part("the collector beside a confluent-kafka loop", collector.measure),
    "startup": Part("how long a broker and the whole mill take to start", footprint.startup),
    "memory": Part("memory of every part, idle and at work", footprint.memory),
    "mill": Part("from a line written to its count, and lines a second", mill.measure),
    "stream": Part("the stream over real-looking traffic, by format and measure", stream.measure),
    "formats": Part("the stream over each shipped format; only if named", formats.measure, True),
    "live": Part("lines written while old ones are counted", live.measure),
    "sinks": Part("one merge into MySQL and Redis, by its size", sinks.measure),
    "growth": Part("MySQL with up to 100 million rows; only if named", growth.measure, True),
    "fleet": Part("up to 1,000 collectors of other hosts; only if named", fleet.measure, True),
    "storm": Part("1,000 collectors that reconnect at once; only if named", storm.measure, True),
    "protocol": Part("messages, frames, batches and codecs, call by call", protocol.measure),
    "encode": Part("lines to record batches, beside aiokafka", collector_encode.measure),
}
