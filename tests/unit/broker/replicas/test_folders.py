"""The folders of replicas follow the metadata in steps. A thread performs the file operations of a
step, and then the loop applies the result."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from broker.config import InForce
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.partition_image import PartitionImage
from broker.replicas.folders import CreatedLogs, Folders
from broker.storage.checkpoint import RECOVERY_POINTS
from broker.storage.log import Log
from protocol.types import NO_BROKER_EPOCH, TopicPartition
from protocol.wire.records import read_header
from tests.sim.world import SimWorld
from tests.unit.broker.rig import HeldWorker
from tests.unit.storage.kit import FOLDER, NOW, TP, Node, batch

LED_HERE = PartitionImage(
    replicas=(1,), in_sync_replicas=(1,), leader=1, leader_epoch=0, partition_epoch=0
)

PLACE = TopicPartition("t", 0)


def topic(name: str, number: int) -> TopicImage:
    return TopicImage(name, UUID(int=number), (LED_HERE, LED_HERE))


class Scene:
    """A broker's folders, and a thread that works when the test says so."""

    def __init__(self) -> None:
        self.node = Node()
        self.logs = self.node.manager
        self.worker = HeldWorker()
        clock = SimWorld(1, NOW, 0).clock
        self.folders = Folders(
            InForce(self.node.config), clock, self.logs, self.worker, NO_BROKER_EPOCH
        )
        self.heard: list[list[CreatedLogs]] = []

    def change(self, *, removed: tuple[TopicImage, ...] = (), wanted: tuple[TopicImage, ...] = (),
               done: Callable[[list[CreatedLogs]], None] | None = None) -> None:  # fmt: skip
        self.folders.change(removed, wanted, MetadataImage(), done or self.heard.append)

    def names(self) -> list[str]:
        return [
            name
            for name in self.node.disk.list_folder(FOLDER)
            if name.startswith("t-") and "delete" not in name
        ]


def test_a_thread_changes_nothing_that_the_loop_sees() -> None:
    scene = Scene()
    making = scene.logs.begin_making([PLACE], UUID(int=7), scene.node.log_config, NOW)
    made = making.perform()
    assert scene.names() == ["t-0"]
    assert scene.logs.get(PLACE) is None
    scene.logs.made(making, made)
    log = scene.logs.get(PLACE)
    assert log is made.new[PLACE]
    removal = scene.logs.begin_removal([PLACE])
    assert removal is not None
    assert scene.logs.get(PLACE) is None
    file = log.segments.active.file
    renamed = removal.perform()
    # A running fetch can send from this file, so only the loop may take the file from the log.
    assert scene.names() == []
    assert log.segments.active.file is file
    scene.logs.removed(removal, renamed)


def test_what_is_removed_is_out_of_all_checkpoints_before_its_folder_is_renamed() -> None:
    scene = Scene()
    scene.change(wanted=(topic("t", 7),))
    scene.worker.work()
    scene.change(removed=(topic("t", 7),))
    assert scene.names() == ["t-0", "t-1"]
    assert scene.logs.get(PLACE) is None
    scene.worker.work()
    assert scene.names() == []
    assert len(scene.heard) == 2


def test_two_changes_that_want_the_same_make_it_once() -> None:
    """If the folder was created a second time, it would lose the records written in between."""
    scene = Scene()

    def write(made: list[CreatedLogs]) -> None:
        scene.heard.append(made)
        log = made[0].logs[0]
        view = batch(b"a")
        log.append(view, read_header(view), 0, NOW)
        log.write_staged(NOW)

    scene.change(wanted=(topic("t", 7),), done=write)
    scene.change(wanted=(topic("t", 7),))
    scene.worker.work()
    first, second = (made[0].logs[0] for made in scene.heard)
    assert first is second
    assert first.log_end_offset == 1


def test_whoever_hears_of_a_change_may_ask_for_the_next() -> None:
    scene = Scene()
    order: list[str] = []

    def more(_: list[CreatedLogs]) -> None:
        scene.change(removed=(topic("t", 7),), done=lambda _: order.append("third"))
        order.append("first")

    scene.change(wanted=(topic("t", 7),), done=more)
    scene.change(wanted=(topic("u", 8),), done=lambda _: order.append("second"))
    scene.worker.work()
    assert order == ["first", "second", "third"]
    assert scene.names() == []


@pytest.mark.parametrize("is_namesake", [False, True])
def test_a_folder_that_the_disk_does_not_let_go_stays_known(is_namesake: bool) -> None:
    """This holds also if a topic of the same name is created. The new partition gets no folder
    then."""
    scene = Scene()
    scene.change(wanted=(topic("t", 7),))
    scene.worker.work()
    log = scene.logs.get(PLACE)
    scene.node.sim.refuses = lambda path, operation: operation == "rename" and "/t-0" in path
    scene.change(removed=(topic("t", 7),), wanted=(topic("t", 9),) if is_namesake else ())
    scene.worker.work()
    assert scene.logs.get(PLACE) is log
    assert "t-0" in scene.names()
    if is_namesake:
        (made,) = scene.heard[-1]
        assert list(made.logs) == [1]
        assert "another topic id" in made.refused[PLACE]


@pytest.mark.parametrize("refused", ["", "rename", "checkpoint"])
def test_a_stray_folder_hides_no_loss_of_a_later_log_of_its_name(refused: str) -> None:
    """The stray folder stays for good. So a start must not take it as proof that no log is
    missing."""
    node = Node()
    stray = write_and_flush(node)
    clock = SimWorld(1, NOW, 0).clock
    folders = Folders(InForce(node.config), clock, node.manager, HeldWorker(), NO_BROKER_EPOCH)
    node.sim.refuses = {
        "": None,
        "rename": lambda path, operation: operation == "rename" and path.endswith(str(TP)),
        "checkpoint": lambda path, _: RECOVERY_POINTS in path,
    }[refused]
    folders.finish_removals(MetadataImage(), set())
    node.sim.refuses = None
    if refused:
        # The folder is unchanged, and the next attempt puts it aside.
        assert node.manager.get(TP) is stray
        folders.finish_removals(MetadataImage(), set())
    assert node.manager.get(TP) is None
    node.reopen()
    assert node.manager.offline == {}
    node.log = node.manager.create(TP, UUID(int=8), node.log_config, NOW)
    write_and_flush(node)
    node.manager.checkpoint().perform()
    node.disk.rename(f"{FOLDER}/{TP}", f"{FOLDER}/lost+found")
    node.reopen()
    assert "is missing" in node.manager.offline[TP]


def write_and_flush(node: Node) -> Log:
    node.put(batch(b"a"))
    node.flush()
    node.manager.checkpoint().perform()
    return node.log
