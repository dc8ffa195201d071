"""kcat as packaged by a distribution. Its old librdkafka compresses only if the broker's versions
suit it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from broker.storage.disk import OsDisk
from broker.storage.walk import BatchWalk
from tests.harness.broker import BrokerProcess
from tests.harness.cluster import ClusterProcesses

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed"),
]

SETTINGS = {"group.initial.rebalance.delay.ms": 0}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
DEADLINE_S = 60.0


def kcat(servers: ClusterProcesses, *arguments: str, stdin: str = "", says: str = "") -> str:
    """Run kcat and return its output. Each line on standard error must match `says`."""
    ended = subprocess.run(
        ["kcat", "-b", servers.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    unforeseen = [
        line for line in ended.stderr.splitlines() if not (says and re.search(says, line))
    ]
    assert not unforeseen, ended.stderr
    return ended.stdout


def codecs_on_disk(broker: BrokerProcess, topic: str) -> set[int]:
    """Return the codecs of the batches in the log. Walk the batches, because the file can have
    preallocated zeros at its end (decision 0012)."""
    files = [OsDisk().open(str(path)) for path in (broker.log_dir / f"{topic}-0").glob("*.log")]
    return {
        header.attributes & 7 for file in files for header in BatchWalk(file, 0, file.size_bytes())
    }


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", ["false", "true"])
def test_pitfall_1_batches_arrive_compressed_and_read_back(
    servers: ClusterProcesses, codec: str, idempotent: str
) -> None:
    topic = f"by-{codec}-{idempotent}"
    lines = "".join(f"k{number}:{'value ' * 20}{number}\n" for number in range(500))
    kcat(
        servers,
        *("-P", "-t", topic, "-p", "0", "-K:", "-z", codec),
        *("-X", f"enable.idempotence={idempotent}", "-X", "linger.ms=50"),
        stdin=lines,
    )
    found = kcat(servers, "-C", "-t", topic, "-p", "0", "-e", "-q", "-K:", "-o", "beginning")
    assert found == lines
    for broker in servers.brokers.values():
        assert codecs_on_disk(broker, topic) == {CODECS[codec]}


def test_lists_queries_and_groups(servers: ClusterProcesses) -> None:
    kcat(servers, "-P", "-t", "asked", "-p", "0", stdin="a\nb\nc\n")
    listed = kcat(servers, "-L")
    assert re.search(r'topic "asked" with 1 partitions', listed)
    assert len(re.findall(r"broker \d at 127\.0\.0\.1:\d+", listed)) == servers.size
    assert "offset 3" in kcat(servers, "-Q", "-t", "asked:0:-1")
    assert "offset 0" in kcat(servers, "-Q", "-t", "asked:0:-2")
    grouped = kcat(
        servers,
        *("-G", "readers", "-c", "3", "-X", "auto.offset.reset=earliest", "asked"),
        says=r"^% (?:Group|Reached|Waiting)",
    )
    assert grouped == "a\nb\nc\n"
    again = kcat(
        servers,
        *("-G", "readers", "-e", "-X", "auto.offset.reset=earliest", "asked"),
        says=r"^% (?:Group|Reached|Waiting)",
    )
    assert again == "", "the group has read everything"


def test_headers_nulls_and_times(servers: ClusterProcesses) -> None:
    kcat(
        servers,
        *("-P", "-t", "odd", "-p", "0", "-Z", "-K:", "-H", "one=1", "-H", "two=2"),
        stdin="key:\n:value\n",
    )
    shape = "%k|%s|%h|%K|%S\\n"
    found = kcat(servers, "-C", "-t", "odd", "-p", "0", "-e", "-q", "-f", shape)
    assert found == "key||one=1,two=2|3|-1\n|value|one=1,two=2|-1|5\n"
