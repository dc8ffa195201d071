"""A log that is deleted while a flush of it is under way, and its namesake."""

from __future__ import annotations

import threading
import uuid

import pytest

from broker.storage.errors import DiskError
from broker.storage.flush import FlushTarget
from tests.unit.storage.kit import FOLDER, MANY, NOW, TP, Node, batch


def aborting(node: Node) -> FlushTarget:
    """A flush not yet performed that has an aborted transaction and a snapshot to write."""
    node.topic = {"segment.bytes": "200"}
    node.log.config = node.log_config
    node.put(batch(b"a" * 100, producer=(7, 0, 0), is_transactional=True))
    node.log.append_marker(7, 0, False, 0, 0, NOW)
    node.log.write_staged(NOW)
    target = node.log.flush_target()
    assert target is not None
    return target


def test_a_flush_under_way_writes_nothing_into_a_namesakes_folder() -> None:
    """Kafka's readers would drop what the namesake's producers have committed."""
    node = Node()
    target = aborting(node)
    node.manager.delete(TP)
    node.log = node.manager.create(TP, uuid.uuid4(), node.log_config, NOW)
    names = node.names()
    target.perform()
    assert node.names() == names
    for number in range(3):
        node.put(batch(b"b" * 100, producer=(7, 0, number), is_transactional=True))
        node.log.append_marker(7, 0, True, 0, 0, NOW)
        node.log.write_staged(NOW)
    node.flush()
    assert node.restart().was_clean
    assert node.log.aborted_transactions(0, MANY) == []


def test_a_deletion_waits_for_what_a_flush_writes_into_the_folder() -> None:
    node = Node()
    target = aborting(node)
    is_renamed = threading.Event()

    def delete() -> None:
        node.manager.delete(TP)
        is_renamed.set()

    deletion = threading.Thread(target=delete)

    def delete_meanwhile(path: str, operation: str) -> bool:
        if ".txnindex" in path and operation == "write":
            deletion.start()
            assert not is_renamed.wait(0.1)
        return False

    node.sim.refuses = delete_meanwhile
    target.perform()
    deletion.join(20)
    assert is_renamed.is_set()
    (folder,) = [name for name in node.sim.list_folder(FOLDER) if name.endswith("-delete")]
    assert any(name.endswith(".txnindex") for name in node.sim.list_folder(f"{FOLDER}/{folder}"))


def test_a_log_whose_folder_cannot_be_renamed_is_still_flushed() -> None:
    node = Node()
    target = aborting(node)
    node.sim.refuses = lambda path, operation: operation == "rename" and not path.endswith(".tmp")
    with pytest.raises(DiskError):
        node.manager.delete(TP)
    node.sim.refuses = None
    target.perform()
    assert any(name.endswith(".txnindex") for name in node.names())
