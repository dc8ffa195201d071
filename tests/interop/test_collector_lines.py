"""What lines may be, by a collector process before a real broker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, TopicReader

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


Read = Callable[..., TopicReader]


@pytest.fixture
def read(broker: BrokerProcess) -> Iterator[Read]:
    """Begins to read a topic, for as long as the test lasts."""
    readers: list[TopicReader] = []

    def begin(topic: str, *partitions: int) -> TopicReader:
        readers.append(TopicReader(broker.bootstrap, topic, partitions or (0, 1, 2)))
        return readers[-1]

    yield begin
    for reader in readers:
        reader.close()


def inputs(topic: str, **keys: object) -> dict[str, object]:
    return {"inputs": [{"paths": ["watched/**"], "topic": topic, **keys}], "scan_interval": "1s"}


def test_a_line_as_long_as_allowed_is_one_record(
    broker: BrokerProcess, tmp_path: Path, read: Read
) -> None:
    reader = read("t.longest")
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, inputs("t.longest"))
    limit = 1 << 20
    lines = [b"before", b"x" * limit, b"y" * (limit + 1), b"after"]
    (collector.home / "watched/text/a.log").write_bytes(b"\n".join(lines) + b"\n")
    code, _ = collector.run("--once")
    assert code == 0, collector.log_text()
    values = reader.values(5)
    assert [len(value) for value in values] == [6, limit, limit, 1, 5]
