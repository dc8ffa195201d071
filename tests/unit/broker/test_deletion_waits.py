"""A topic that is deleted while a flush of it is under way, and its namesake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.messages.topics import DeleteTopicsRequest
from protocol.wire.records import read_header
from tests.unit.broker.rig import Rig
from tests.unit.storage.kit import FOLDER, MANY, NOW, batch


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig


def test_a_flush_under_way_writes_nothing_into_a_namesakes_folder(rig: Rig) -> None:
    """Kafka's readers would drop what the namesake's producers have committed."""
    rig.create("t", segment_bytes="300")
    partition = rig.broker.parts.replicas.find("t", 0)
    log = partition.log
    view = batch(b"a" * 200, producer=(7, 0, 0), is_transactional=True)
    log.append_own(view, read_header(view), 0, NOW)
    log.append_marker(7, 0, False, 0, 0, NOW)
    log.write_staged(NOW)
    rig.broker.parts.replicas.written(partition)
    under_way = rig.flusher.begin()
    assert [one for one, _ in under_way.targets] == [log]
    asked = rig.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 4)
    # The deletion is decided and out of service, but the folder stays while a thread works there.
    rig.flusher.sync()
    rig.turn()
    assert "t-0" in rig.disk.list_folder(FOLDER)
    assert not asked.is_answered()
    rig.flusher.finish(under_way)
    rig.turn()
    assert asked.is_answered()
    assert "t-0" not in rig.disk.list_folder(FOLDER)
    rig.create("t")
    made = rig.broker.parts.replicas.find("t", 0).log
    assert made is not log
    assert made.aborted_transactions(0, MANY) == []
    names = rig.disk.list_folder(made.folder)
    assert not [name for name in names if name.endswith((".txnindex", ".snapshot"))]


def test_a_log_out_of_service_is_flushed_no_more(rig: Rig) -> None:
    rig.create("t")
    partition = rig.broker.parts.replicas.find("t", 0)
    view = batch(b"a")
    partition.log.append_own(view, read_header(view), 0, NOW)
    partition.log.write_staged(NOW)
    rig.broker.parts.replicas.written(partition)
    rig.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 4)
    rig.flusher.sync()
    assert partition.log.flush_target() is None
