"""On a full disk clients retry rejected writes, reads continue, and the broker resumes
automatically."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.harness.broker import BrokerProcess
from tests.harness.wait import wait_until
from tests.harness.wire import (
    WireClient,
    batch_of,
    fetch_request,
    produce_request,
    read_values,
)

pytestmark = pytest.mark.live

SIZE = "8m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of a separate file system that is small enough to fill."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def create(client: WireClient, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    code: int = client.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code
    return code


def send(client: WireClient, topic: str, value: bytes) -> ErrorCode:
    answer = client.ask(produce_request(topic, batch_of([value])), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def fill(folder: Path) -> Path:
    """Fill the file system. Return the file that uses the space."""
    path = folder / "fill"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return path
    raise AssertionError("the disk never became full")


def test_a_full_disk_refuses_and_resumes(small_disk: Path) -> None:
    with BrokerProcess(small_disk) as broker, WireClient(broker.bootstrap) as client:
        assert create(client, "t") == 0
        codes = [send(client, "t", os.urandom(900_000)) for _ in range(12)]
        accepted = codes.count(ErrorCode.NONE)
        assert 0 < accepted < 12
        assert codes == [ErrorCode.NONE] * accepted + [ErrorCode.KAFKA_STORAGE_ERROR] * (
            12 - accepted
        )
        filler = fill(small_disk)
        assert send(client, "t", bytes(5_000)) is ErrorCode.KAFKA_STORAGE_ERROR
        part = client.ask(fetch_request("t"), 12).responses[0].partitions[0]
        assert part.error_code == 0
        assert part.high_watermark == accepted
        codes_of_problems = {one.code for one in broker.status().problems}
        assert "write_refused" in codes_of_problems
        assert str(broker.status().state) == "degraded"
        made_while_full = create(client, "late")
        filler.unlink()
        assert send(client, "t", b"again") is ErrorCode.NONE
        if made_while_full:
            assert create(client, "late") == 0
        wait_until(
            lambda: send(client, "late", b"x") is ErrorCode.NONE, 15, "the late topic is in service"
        )
        broker.restart()
        assert broker.partition("t", 0)["log_end_offset"] == accepted + 1
        with WireClient(broker.bootstrap) as after:
            part = after.ask(fetch_request("t", accepted), 12).responses[0].partitions[0]
            assert read_values(part.records) == [b"again"]
