"""The collector's peer: `python -m bench.peer_produce BOOTSTRAP TOPIC FILE CODEC KEY`.

This is a simple program that reads blocks, splits them at line ends and calls `produce()` for each
line. Its librdkafka producer is idempotent, as the collector's is. It runs as a process of its own,
so that the kernel reports its whole cost, as for the collector.
"""

import sys
from pathlib import Path

from confluent_kafka import Producer

BLOCK_BYTES = 1 << 20
FLUSH_S = 120.0


def main(bootstrap: str, topic: str, path: str, codec: str, key: str) -> int:
    """Send every line of the file. Return 0 if all are acknowledged."""
    failed = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "compression.type": codec,
            "queue.buffering.max.messages": 200_000,
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
            "log_level": 0,
        }
    )
    send, record_key, rest = producer.produce, key.encode(), b""
    with Path(path).open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                while True:
                    try:
                        send(topic, line, record_key)
                        break
                    except BufferError:
                        producer.poll(0.005)
    left = producer.flush(FLUSH_S)
    return 1 if left or failed or rest else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
