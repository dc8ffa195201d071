"""A damaged metadata log. No broker applies the damaged records, and no leader sends them."""

from __future__ import annotations

import pytest

from broker.storage.errors import CorruptionError, FolderError
from tests.sim.clients import topic_made
from tests.sim.test_damaged_replicas import cluster_with, write
from tests.sim.whole_brokers import WholeBroker
from tests.sim.world import Died
from tests.unit.storage.kit import FOLDER


def flip(node: WholeBroker, topic: str) -> str:
    """Flip one bit of a topic's id in its record, so that the record can still be decoded. Return
    the path of the file."""
    topic_id = node.metadata.image.topics[topic].topic_id.bytes
    folder = f"{FOLDER}/__cluster_metadata-0"
    logs = [name for name in node.disk.list_folder(folder) if name.endswith(".log")]
    for path in (f"{folder}/{name}" for name in logs):
        content = node.disk.contents(path)
        if topic_id in content:
            content[content.index(topic_id)] ^= 1
            return path
    raise AssertionError(f"no log holds {topic}")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_refuses_what_was_not_written(is_clean: bool) -> None:
    cluster, writing = cluster_with(3)
    hurt = cluster.nodes[2]
    path = flip(hurt, "t")
    if is_clean:
        hurt.stop()
        cluster.run_until(lambda: hurt.broker is None, 30_000, "it has stopped")
    else:
        hurt.kill()
    with pytest.raises((CorruptionError, FolderError), match=path):
        hurt.start()
    hurt.ended()
    assert hurt.disk.exists(f"{FOLDER}/t-0")
    write(cluster, writing)


def test_a_controller_that_cannot_believe_its_log_ends_and_another_takes_over() -> None:
    cluster, writing = cluster_with(3)
    hurt = cluster.active()
    assert hurt is not None
    behind, sound = (one for one in cluster.nodes if one is not hurt)
    behind.kill()
    cluster.run_for(1_000)
    # A damaged batch at the end of the log would look like a write that was not finished.
    for name in ("late", "last"):
        made = writing.client(sound.node_id, topic_made(name, 1, replication_factor=1))
        cluster.run_until(lambda made=made: made.is_done, 5_000, "the topic is made")
    cluster.run_for(500)
    late = sound.metadata.image.topics["late"]
    path = flip(hurt, "late")
    behind.start()
    with pytest.raises(Died, match=path):
        cluster.run_for(5_000)
    hurt.kill()
    cluster.run_until(lambda: cluster.active() in (behind, sound), 15_000, "another decides")
    cluster.run_for(1_000)
    assert [one.metadata.image.topics["late"] for one in (behind, sound)] == [late, late]
    write(cluster, writing)
    with pytest.raises((CorruptionError, FolderError), match=path):
        hurt.start()
