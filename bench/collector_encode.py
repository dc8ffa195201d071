"""How fast lines become record batches: `python -m bench.collector_encode`, one JSON line each.

Lines per CPU-second of one process, from a block of a file to a batch's payload: finding the
newlines, encoding, and (in its own rows) compression. Peers get the block split into lines already
counted in, in the same run on the same data; the best of several rounds counts.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from collector.encode import Piece, encode
from collector.lines import LineRules, split_lines
from protocol.wire.compression import Codec, compress

KEY = b"access/access.log"
BLOCK_BYTES = 1 << 20
ROUNDS = 5
ROUND_S = 0.4


def workloads(log: Path | None) -> dict[str, bytes]:
    """Blocks of about 1 MiB, each of whole lines."""
    rng = random.Random(1)
    found = {
        "120 B": b"".join(b"x" * 119 + b"\n" for _ in range(8_738)),
        "60-180 B": b"".join(b"x" * rng.randint(59, 179) + b"\n" for _ in range(8_738)),
        "60-180 B CRLF": b"".join(b"x" * rng.randint(58, 178) + b"\r\n" for _ in range(8_738)),
        "empty": b"\n" * 100_000,
    }
    if log is not None:
        data = log.read_bytes()[:BLOCK_BYTES]
        found[log.name] = data[: data.rindex(b"\n") + 1]
    return found


def ours(data: bytes, codec: Codec = Codec.NONE) -> int:
    """The collector's way."""
    (block,) = split_lines(memoryview(data), 0, LineRules(1 << 30))
    records = encode([Piece(KEY, block)])
    compress(codec, records.payload)
    return records.record_count


def peer(builder: type, data: bytes, codec: int = 0) -> int:
    """A client's own builder, line by line."""
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
    """The best round."""
    best = 0.0
    for _ in range(ROUNDS):
        begin, lines = time.process_time(), 0
        while time.process_time() - begin < ROUND_S:
            lines += work()
        best = max(best, lines / (time.process_time() - begin))
    return best


def measure(name: str, data: bytes) -> None:
    """One line for each way to encode a workload."""
    ways: dict[str, Callable[[], int]] = {
        "collector": lambda: ours(data),
        "aiokafka": lambda: peer(AiokafkaBuilder, data),
        "kafka-python": lambda: peer(KafkaPythonBuilder, data),
        "collector gzip": lambda: ours(data, Codec.GZIP),
        "collector lz4": lambda: ours(data, Codec.LZ4),
        "aiokafka gzip": lambda: peer(AiokafkaBuilder, data, 1),
    }
    base = 0.0
    for way, work in ways.items():
        rate = lines_per_cpu_s(work)
        base = base or rate
        row = {
            "bench": "collector_encode",
            "lines": name,
            "way": way,
            "million_lines_per_cpu_s": round(rate / 1e6, 3),
            "times_slower_than_collector": round(base / rate, 2),
        }
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Measure all workloads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, help="a real log to take a block of lines from")
    log: Path | None = parser.parse_args().log
    for name, data in workloads(log).items():
        measure(name, data)


if __name__ == "__main__":
    main()
