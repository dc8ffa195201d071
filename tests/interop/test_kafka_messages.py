"""The newest kafka-clients decode requests between brokers, and encode them to the same bytes.

`tests/unit/protocol` compares the field tables with Kafka's definitions. Here Kafka's generated
code decodes random messages of every version, and must encode each one to the same bytes again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.api import BETWEEN_BROKERS, UNSERVED, ApiKey, request_class, response_class
from protocol.wire.schema import Message
from tests.harness.java import NEWEST, JavaClients
from tests.unit.protocol.examples import SEED, Examples

pytestmark = [pytest.mark.live, pytest.mark.slow]

PER_VERSION = 100

KEYS = sorted((BETWEEN_BROKERS.keys() | UNSERVED) - {ApiKey.REPLICA_REPORT})
CLASSES: list[type[Message]] = [of(key) for key in KEYS for of in (request_class, response_class)]


def test_java_reads_and_writes_the_same_bytes(tmp_path: Path) -> None:
    java = JavaClients(tmp_path, NEWEST)
    examples = Examples(SEED)
    asked = [
        (cls.__name__, version, examples.message(cls, version).encode(version))
        for cls in CLASSES
        for version in cls.valid_versions
        for _ in range(PER_VERSION)
    ]
    lines = "".join(f"{name} {version} {body.hex()}\n" for name, version, body in asked)
    answers = java.run("Messages", given=lines).splitlines()
    assert len(answers) == len(asked)
    wrong = [
        f"{name} v{version} {body.hex()}: {answer}"
        for (name, version, body), answer in zip(asked, answers, strict=True)
        if answer != "ok"
    ]
    assert wrong[:3] == [], f"MILLRACE_SEED={SEED}"
    assert len(asked) > 30 * PER_VERSION
