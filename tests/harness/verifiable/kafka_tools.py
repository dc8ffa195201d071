"""Kafka's own VerifiableProducer and VerifiableConsumer, as a verifiable client (`words`).

    python -m tests.harness.verifiable.kafka_tools BOOTSTRAP TOPIC

They use Java's newest clients, without transactions. VerifiableProducer disables retries, so the
settings here enable them again.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.harness.tools import VERIFIABLE_CONSUMER, VERIFIABLE_PRODUCER, KafkaTools
from tests.harness.verifiable import words

RETRIES = f"enable.idempotence=true\nretries={2**31 - 1}\nlinger.ms=5\n"


def _security() -> str:
    return "".join(f"{key}={value}\n" for key, value in words.java_security().items())


def produce(bootstrap: str, topic: str) -> None:
    """Produce idempotently until the test ends the writing. Every record gets a result."""
    with tempfile.TemporaryDirectory() as folder:
        tools = KafkaTools(Path(folder), bootstrap)
        tool = _start(
            tools.command(
                VERIFIABLE_PRODUCER,
                *("--topic", topic, "--acks", "-1", "--throughput", str(round(1 / words.PACE_S))),
                *("--command-config", tools.file("producer.properties", RETRIES + _security())),
            )
        )
        words.when_writing_ends(tool.terminate)
        for event in _events(tool, "produce", topic):
            if event["name"] == "producer_send_success":
                words.sent(topic, int(event["value"]), event["partition"], event["offset"])
            elif event["name"] == "producer_send_error":
                words.say("error", doing="produce", topic=topic, exception=event["exception"],
                          message=event["message"])  # fmt: skip
            elif event["name"] == "tool_data" and event["sent"] != event["acked"]:
                words.failed("produce", topic, f"sent {event['sent']}, acked {event['acked']}")


def consume(bootstrap: str, topic: str) -> None:
    """Consume as the only member of a group, with a commit after every batch."""
    with tempfile.TemporaryDirectory() as folder:
        tools = KafkaTools(Path(folder), bootstrap)
        group = ("--group-id", f"{topic}-readers", "--reset-policy", "earliest", "--verbose")
        settings = ("--command-config", tools.file("consumer.properties", _security()))
        tool = _start(tools.command(VERIFIABLE_CONSUMER, "--topic", topic, *group, *settings))
        words.when_reading_ends(tool.terminate)
        for event in _events(tool, "consume", topic):
            if event["name"] == "record_data":
                value = str(event["value"]).encode()
                words.read(topic, event["partition"], event["offset"], value)
            elif event["name"] == "partitions_assigned":
                words.assigned((one["topic"], one["partition"]) for one in event["partitions"])
            elif event["name"] == "offsets_committed" and not event["success"]:
                words.failed("commit", topic, event["error"])


def _start(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _events(tool: "subprocess.Popen[str]", doing: str, topic: str) -> Iterator[dict[str, Any]]:
    """Yield the tool's events. Report its other lines as log lines."""
    assert tool.stdout is not None
    for line in tool.stdout:
        if line.startswith("{"):
            yield json.loads(line)
        else:
            words.say("log", doing=doing, topic=topic, line=line.rstrip())
    tool.wait()


if __name__ == "__main__":
    words.in_threads((produce,), consume)
