"""The speed of the collector's encoder compared with aiokafka's batch builder.

The figure is lines per CPU second of this process, from a block of a file to a batch's payload. The
work is finding the line ends, encoding, and compression if the case names a codec. The peer takes
single lines, so Python splits the block for it. Both run in turn on the same data.
"""

import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder

from bench.lines import LineSource
from bench.machine import Watch
from bench.measurement import Measurement, Peer, Run
from bench.session import Bench
from collector.text.encode import Piece, encode
from collector.text.lines import LineRules, split_lines
from protocol.wire.compression import Codec, compress

KEY = b"access/access.log"
GZIP = 1
QUICK_WORKLOAD = "120 B"
LINES = 8_738
"""At 120 bytes each, these lines make one mebibyte."""
ROUNDS = 5
ROUND_S = 0.4


def workloads() -> dict[str, bytes]:
    """Blocks of about 1 MiB, each of whole lines."""
    rng = random.Random(1)
    return {
        "120 B": b"".join(b"x" * 119 + b"\n" for _ in range(LINES)),
        "60-180 B": b"".join(b"x" * rng.randint(59, 179) + b"\n" for _ in range(LINES)),
        "60-180 B, CRLF": b"".join(b"x" * rng.randint(58, 178) + b"\r\n" for _ in range(LINES)),
        "0 B": b"\n" * 100_000,
        "an access log": LineSource(1).at(datetime(2026, 1, 1, tzinfo=UTC), LINES),
    }


def ours(data: bytes, codec: Codec = Codec.NONE) -> int:
    """Encode a block with the collector's encoder."""
    (block,) = split_lines(memoryview(data), 0, LineRules(1 << 30))
    records = encode([Piece(KEY, block)])
    compress(codec, records.payload)
    return records.record_count


def peer(builder: type, data: bytes, codec: int = 0) -> int:
    """Encode a block with aiokafka's batch builder, line by line."""
    made: Any = builder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    lines = data.split(b"\n")
    lines.pop()
    for offset, line in enumerate(lines):
        made.append(offset, 1_000, KEY, line.removesuffix(b"\r"), [])
    made.build()
    return len(lines)


def lines_per_cpu_s(work: Callable[[], int]) -> float:
    """Repeat the work for one round, and return how many lines it processed per CPU second."""
    begin, lines = time.process_time(), 0
    while time.process_time() - begin < ROUND_S:
        lines += work()
    return lines / (time.process_time() - begin)


def compared(name: str, ours: Callable[[], int], peer: Callable[[], int]) -> Measurement:
    """Measure the collector and a peer alternately, in several rounds."""
    with Watch() as watch:
        rounds = [(lines_per_cpu_s(ours), lines_per_cpu_s(peer)) for _ in range(ROUNDS)]
    runs, theirs = (
        [Run({"lines_per_cpu_s": rate}, watch.other_load) for rate in rates]
        for rates in zip(*rounds, strict=True)
    )
    return Measurement("encode", name, runs, Peer("aiokafka", theirs))


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure all workloads, without compression and with the collector's default codec."""
    for name, data in workloads().items():
        if bench.options.quick and name != QUICK_WORKLOAD:
            continue
        yield compared(
            f"lines of {name}", partial(ours, data), partial(peer, AiokafkaBuilder, data)
        )
        yield compared(
            f"lines of {name}, gzip",
            partial(ours, data, Codec.GZIP),
            partial(peer, AiokafkaBuilder, data, GZIP),
        )
