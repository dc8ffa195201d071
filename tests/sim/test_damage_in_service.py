"""A replica in service is found to be damaged. Another in-sync replica takes over."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from broker.metadata.image import OFFSETS_TOPIC
from broker.replication.fetch_session import FULL_EPOCH
from broker.sessions.peers import LinkKind, Peers
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.folder_jobs import DAMAGED_KEPT_MAX
from broker.world import Address
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from tests.sim.clients import Client, Committed, settled, topic_made
from tests.sim.test_damaged_replicas import (
    ASIDE,
    LOG,
    RECORDS,
    VOUCHED_MS,
    cluster_with,
    is_settled,
    partition,
    problems,
    write,
)
from tests.sim.test_whole_brokers import Writing, is_in_service
from tests.sim.whole_brokers import BETWEEN_PORT, HOST_PORT, JOB_MS, WholeBroker, WholeCluster
from tests.unit.storage.kit import FOLDER

LENGTH_AT = 8
"""The position of the length field in a log's first batch."""

OFFSETS_LOG = f"{FOLDER}/{OFFSETS_TOPIC}-0/{0:020d}.log"


def leader_of(cluster: WholeCluster) -> WholeBroker:
    leader: int = partition(cluster).leader
    return cluster.nodes[leader - 1]


def flip_last(node: WholeBroker, path: str = LOG) -> bytes:
    """Flip one bit of the last written byte. Return all written bytes as they are now."""
    content = node.disk.contents(path)
    end = len(whole(node, path))
    content[end - 1] ^= 1
    return bytes(content[:end])


def whole(node: WholeBroker, path: str = LOG) -> bytes:
    """Return the written bytes of a file, without the zeros at its end."""
    return bytes(node.disk.contents(path)).rstrip(b"\0")


def kept(node: WholeBroker) -> bytes:
    return whole(node, f"{ASIDE}/{0:020d}.log")


def settle(cluster: WholeCluster) -> None:
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    cluster.run_until(lambda: is_settled(cluster), 20_000, "all are in sync")


def with_one_behind(replicas: int, **configs: str) -> tuple[WholeCluster, Writing, WholeBroker]:
    """Return a cluster, its producer, and a stopped follower that lacks some records."""
    cluster, writing = cluster_with(replicas, **configs)
    leader = leader_of(cluster)
    behind = next(
        one
        for one in cluster.nodes
        if one is not leader and one.node_id in partition(cluster).replicas
    )
    behind.kill()
    cluster.run_for(1_000)
    write(cluster, writing)
    return cluster, writing, behind


def assert_alike(cluster: WholeCluster, path: str = LOG) -> None:
    cluster.run_for(VOUCHED_MS)
    first, *others = (whole(one, path) for one in cluster.nodes)
    assert first
    assert others == [first, first]


def test_a_leader_that_cannot_bring_a_follower_up_hands_over_and_is_fetched_again() -> None:
    cluster, writing, behind = with_one_behind(3)
    hurt = leader_of(cluster)
    broken = flip_last(hurt)
    behind.start()
    settle(cluster)
    assert leader_of(cluster) not in (hurt, behind)
    write(cluster, writing)
    assert_alike(cluster)
    assert kept(hurt) == broken
    assert [problems(one) for one in cluster.nodes] == [[], [], []]
    assert writing.offsets[0] == list(range(3 * RECORDS))


def test_a_leader_that_is_alone_in_sync_goes_on_and_tells_until_another_is() -> None:
    cluster, writing, behind = with_one_behind(2)
    hurt = leader_of(cluster)
    broken = flip_last(hurt)
    behind.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    cluster.run_for(5_000)
    assert leader_of(cluster) is hurt
    assert partition(cluster).in_sync_replicas == (hurt.node_id,)
    (problem,) = problems(hurt)
    assert LOG in problem
    assert "no other broker is in sync" in problem
    write(cluster, writing)
    assert whole(hurt).startswith(broken)
    # Repair the file, so that the other broker can copy all records. The leader must still know
    # that it had found damage.
    hurt.disk.contents(LOG)[len(broken) - 1] ^= 1
    cluster.run_until(lambda: leader_of(cluster) is behind, 20_000, "the other leads")
    settle(cluster)
    assert problems(hurt) == []
    assert kept(hurt)[: len(broken) - 1] == broken[:-1]
    write(cluster, writing)
    assert writing.offsets[0] == list(range(4 * RECORDS))


def test_the_only_copy_serves_what_can_be_read_and_tells_of_it_also_after_a_restart() -> None:
    cluster, writing = cluster_with(1, segment_bytes="150")
    hurt = leader_of(cluster)
    flip_last(hurt)
    assert hurt.broker is not None
    replicas = hurt.broker.parts.replicas
    (replica,) = [one for one in replicas if one.topic == "t"]
    replicas.read_failed(replica, CorruptionError(LOG, 0, "found"))
    for _ in range(2):
        cluster.run_for(3_000)
        (problem,) = problems(hurt)
        assert f"{LOG} at byte 0: found" in problem
        assert "the only copy" in problem
        write(cluster, writing)
        hurt.kill()
        hurt.start()
        cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    assert writing.offsets[0] == list(range(3 * RECORDS))
    assert not hurt.disk.exists(ASIDE)


def test_a_sector_that_cannot_be_read_is_damage() -> None:
    cluster, writing, behind = with_one_behind(3)
    hurt = leader_of(cluster)
    hurt.disk.refuses = lambda path, operation: path == LOG and operation == "read"
    hurt.disk.refusal = errno.EIO
    behind.start()
    settle(cluster)
    assert leader_of(cluster) not in (hurt, behind)
    hurt.disk.refuses = None
    write(cluster, writing)
    assert_alike(cluster)


def test_a_follower_that_finds_its_own_log_damaged_leaves_and_comes_back() -> None:
    cluster, writing = cluster_with(3)
    leader = leader_of(cluster)
    hurt = next(one for one in cluster.nodes if one is not leader)
    assert hurt.broker is not None
    replicas = hurt.broker.parts.replicas
    (replica,) = [one for one in replicas if one.topic == "t"]
    replicas.read_failed(replica, DiskError(LOG, "read", errno.EMFILE))
    cluster.run_for(3_000)
    assert not hurt.disk.exists(ASIDE)
    hurt.disk.refuses = lambda path, operation: operation == "rename" and path.endswith("t-0")
    before = whole(hurt)
    replicas.read_failed(replica, CorruptionError(LOG, 0, "found"))
    cluster.run_until(lambda: not is_settled(cluster), 1_000, "it leaves")
    cluster.run_for(3_000)
    assert not is_settled(cluster)
    hurt.disk.refuses = None
    settle(cluster)
    assert kept(hurt) == before
    assert leader_of(cluster) is leader
    write(cluster, writing)
    assert_alike(cluster)
    assert problems(hurt) == []


def test_a_change_of_folders_under_way_does_not_bring_a_damaged_log_back() -> None:
    cluster, _ = cluster_with(3)
    leader = leader_of(cluster)
    hurt = next(one for one in cluster.nodes if one is not leader)
    assert hurt.broker is not None
    replicas = hurt.broker.parts.replicas
    (replica,) = [one for one in replicas if one.topic == "t"]
    world = cluster.network.world_of(hurt.host)
    replicas.unmade[replica.topic_partition] = "tried again"
    world.job_ms = (2_000, 2_000)
    replicas.retry(lambda: None)
    world.job_ms = JOB_MS
    replicas.read_failed(replica, CorruptionError(LOG, 0, "found"))
    cluster.run_until(lambda: not replicas.holds(replica), 1_000, "it is out of service")
    for _ in range(300):
        cluster.run_for(10)
        assert replica.log not in [one.log for one in replicas]
    settle(cluster)
    assert_alike(cluster)


def test_a_disk_that_damages_everything_is_not_filled_with_copies() -> None:
    cluster, writing = cluster_with(3)
    leader = leader_of(cluster)
    hurt = next(one for one in cluster.nodes if one is not leader)

    def find_damage() -> None:
        assert hurt.broker is not None
        replicas = hurt.broker.parts.replicas
        (replica,) = [one for one in replicas if one.topic == "t"]
        replicas.read_failed(replica, CorruptionError(LOG, 0, "found"))
        cluster.run_until(lambda: not is_settled(cluster), 1_000, "it leaves")

    for _ in range(DAMAGED_KEPT_MAX):
        find_damage()
        settle(cluster)
    find_damage()
    cluster.run_for(10_000)
    assert not is_settled(cluster)
    (problem,) = problems(hurt)
    assert "3 damaged copies are kept already" in problem
    # Remove one of the damaged copies, as an operator would.
    hurt.disk.remove_folder(f"{FOLDER}/t-0.00000002-damaged")
    settle(cluster)
    assert problems(hurt) == []
    write(cluster, writing)
    assert_alike(cluster)


def test_a_read_of_a_batch_without_a_length_finds_the_damage() -> None:
    cluster, writing = cluster_with(3)
    hurt = leader_of(cluster)
    assert hurt.broker is not None
    hurt.disk.contents(LOG)[LENGTH_AT] ^= 0x40
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition_max_bytes=1)])]
    )

    def reading() -> Any:
        yield from settled(
            request,
            lambda answer: answer.responses[0].partitions[0].error_code,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )

    reader = writing.client(hurt.node_id, reading())
    cluster.run_until(lambda: leader_of(cluster) is not hurt, 5_000, "another leads")
    settle(cluster)
    cluster.run_until(lambda: reader.is_done, 1_000, "the reader knows")
    write(cluster, writing)
    assert_alike(cluster)


def with_one_to_be_cut() -> tuple[WholeCluster, WholeBroker]:
    """Return a cluster, and a stopped broker that must truncate its log at its next start: it has a
    record that no other broker has."""
    cluster, writing = cluster_with(3)
    hurt = leader_of(cluster)
    others = [one for one in cluster.nodes if one is not hurt]
    for one in others:
        one.kill()
    writing.write(0, hurt.node_id)
    cluster.run_for(100)
    hurt.kill()
    for one in others:
        one.start()
    cluster.run_until(lambda: all(one.is_ready for one in others), 15_000, "they serve")
    cluster.run_until(lambda: leader_of(cluster) in others, 15_000, "another leads")
    write(cluster, writing)
    return cluster, hurt


@pytest.mark.parametrize("how", ["find", "cut", "read"])
def test_a_log_that_is_found_damaged_as_it_is_cut_is_fetched_again(how: str) -> None:
    """A leader died with a record that no other broker has, so it must truncate its log. The disk
    fails during that truncation."""
    cluster, hurt = with_one_to_be_cut()
    found: list[str] = []

    def fails(path: str, operation: str) -> bool:
        if how == "find" and path == LOG and operation == "read":
            found.append("find")
            return True
        if path == LOG and operation == "truncate" and not found:
            found.append("cut")
            if how == "cut":
                hurt.disk.contents(LOG)[70] ^= 1
        return how == "read" and bool(found) and path == LOG and operation == "read"

    hurt.start()
    hurt.disk.refuses = fails
    hurt.disk.refusal = errno.EIO
    cluster.run_until(lambda: bool(found), 15_000, "its log is cut")
    cluster.run_until(lambda: hurt.disk.exists(ASIDE), 15_000, "it is put aside")
    hurt.disk.refuses = None
    settle(cluster)
    assert_alike(cluster)
    assert [problems(one) for one in cluster.nodes] == [[], [], []]


def test_what_was_not_put_aside_is_not_believed_after_a_restart() -> None:
    """The damaged folder could not be set aside before the stop. The next start must still know the
    damage, although after a clean stop it does not check the log's bytes."""
    cluster, writing = cluster_with(3, segment_bytes="150")
    leader = leader_of(cluster)
    hurt = next(one for one in cluster.nodes if one is not leader)
    assert hurt.broker is not None
    replicas = hurt.broker.parts.replicas
    (replica,) = [one for one in replicas if one.topic == "t"]
    flip_last(hurt)
    hurt.disk.refuses = lambda path, operation: operation == "rename" and path.endswith("t-0")
    replicas.read_failed(replica, CorruptionError(LOG, 0, "found"))
    cluster.run_until(lambda: not is_settled(cluster), 1_000, "it leaves")
    cluster.run_for(1_000)
    hurt.kill()
    hurt.disk.refuses = None
    hurt.start()
    settle(cluster)
    assert hurt.disk.exists(ASIDE)
    write(cluster, writing)
    assert_alike(cluster)


def test_two_of_three_are_damaged_at_once_in_different_places() -> None:
    cluster, writing, behind = with_one_behind(3, segment_bytes="150")
    behind.start()
    settle(cluster)
    leader = leader_of(cluster)
    other = next(one for one in cluster.nodes if one not in (leader, behind))
    flip_last(leader)
    flip_last(other, f"{FOLDER}/t-0/{2:020d}.log")
    for node in (leader, other):
        assert node.broker is not None
        replicas = node.broker.parts.replicas
        (replica,) = [one for one in replicas if one.topic == "t"]
        replicas.read_failed(replica, CorruptionError(LOG, 0, "found"))
    cluster.run_until(lambda: leader_of(cluster) is behind, 5_000, "the sound one leads")
    settle(cluster)
    write(cluster, writing)
    assert_alike(cluster)
    assert [one.disk.exists(ASIDE) for one in (leader, other, behind)] == [True, True, False]
    assert writing.offsets[0] == list(range(3 * RECORDS))


def test_where_all_in_sync_are_damaged_one_leads_until_a_sound_one_is_in_sync() -> None:
    cluster, writing, behind = with_one_behind(3, segment_bytes="150")
    leader = leader_of(cluster)
    other = next(one for one in cluster.nodes if one not in (leader, behind))
    broken = flip_last(leader), flip_last(other)
    for node in (leader, other):
        assert node.broker is not None
        replicas = node.broker.parts.replicas
        (replica,) = [one for one in replicas if one.topic == "t"]
        replicas.read_failed(replica, CorruptionError(LOG, 0, "found"))
    cluster.run_for(5_000)
    left = leader_of(cluster)
    assert partition(cluster).in_sync_replicas == (left.node_id,)
    (problem,) = problems(left)
    assert LOG in problem
    for node, content in zip((leader, other), broken, strict=True):
        assert (whole(node) if node is left else kept(node)) == content
    # The broker that was down needs none of the damaged bytes. After it has copied the rest, it
    # leads, and the others copy from it.
    behind.start()
    cluster.run_until(lambda: leader_of(cluster) is behind, 20_000, "the sound one leads")
    settle(cluster)
    write(cluster, writing)
    assert_alike(cluster)
    assert [kept(node) for node in (leader, other)] == list(broken)
    assert [problems(one) for one in cluster.nodes] == [[], [], []]
    assert writing.offsets[0] == list(range(3 * RECORDS))


def test_a_leader_checks_no_more_than_what_it_is_about_to_send() -> None:
    """A follower without a session names all its partitions, and can lack many records of each. The
    leader must not check batches that do not fit into this response."""
    cluster, writing = cluster_with(3)
    hurt = leader_of(cluster)
    behind = next(one for one in cluster.nodes if one is not hurt)
    for name in ("u", "v", "w"):
        made = writing.client(hurt.node_id, topic_made(name, 1, replication_factor=3))
        cluster.run_until(lambda made=made: made.is_done, 5_000, "another topic is made")
    cluster.run_for(500)
    topics = hurt.metadata.image.topics
    other = next(name for name in "uvw" if topics[name].partitions[0].leader == hurt.node_id)
    epoch = hurt.metadata.image.brokers[behind.node_id].broker_epoch
    behind.freeze()
    for one in (writing, Writing(cluster, other)):
        one.write(0, hurt.node_id)
    cluster.run_for(100)
    flip_last(hurt, f"{FOLDER}/{other}-0/{0:020d}.log")

    world = cluster.network.world("asks")
    peers = Peers(world, "asks", {hurt.node_id: Address(hurt.host, BETWEEN_PORT)})

    def ask(*topics: tuple[str, int]) -> list[int]:
        """Fetch topics from these offsets. Return the error codes of the partitions in the
        response."""
        images = hurt.metadata.image.topics
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=behind.node_id, replica_epoch=epoch),
            session_epoch=FULL_EPOCH,
            max_bytes=1,
            topics=[
                FetchTopic(
                    topic_id=images[topic].topic_id,
                    partitions=[
                        FetchPartition(
                            current_leader_epoch=images[topic].partitions[0].leader_epoch,
                            fetch_offset=offset,
                            partition_max_bytes=1,
                        )
                    ],
                )
                for topic, offset in topics
            ],
        )

        answers: list[FetchResponse] = []
        peers.ask(
            hurt.node_id,
            LinkKind.DATA,
            request,
            world.clock.monotonic_ms() + 1_000,
            answers.append,
            lambda end: None,
        )
        cluster.run_until(lambda: bool(answers), 1_000, "it is answered")
        assert answers[0].error_code == 0
        return [one.error_code for topic in answers[0].responses for one in topic.partitions]

    assert hurt.broker is not None
    damaged = hurt.broker.parts.replicas.damaged
    for _ in range(3):
        assert ask(("t", RECORDS), (other, 0)) == [0]
        assert not damaged
    # Check only the error code. When the response arrives, another broker can lead already, and
    # then the log is no longer in `damaged`.
    assert ask((other, 0)) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_coordinator_that_cannot_believe_its_log_lets_another_load_it() -> None:
    cluster, _ = cluster_with(3)
    addresses = {one: Address(f"n{one}", HOST_PORT) for one in (1, 2, 3)}

    def offsets() -> Any:
        return cluster.running[0].metadata.image.topics[OFFSETS_TOPIC].partitions[0]

    def commit(count: int) -> None:
        def find(_: object) -> int:
            is_made = OFFSETS_TOPIC in cluster.running[0].metadata.image.topics
            known = [one.node_id for one in cluster.running]
            return offsets().leader if is_made and offsets().leader in known else known[0]

        script = Committed("g", "t", count).script()
        committing = Client(cluster.network, f"c{count}", addresses, script, find)
        cluster.run_until(lambda: committing.is_done, 20_000, "all is committed")

    commit(5)
    cluster.run_for(VOUCHED_MS)
    leader, hurt, sound = (cluster.nodes[one - 1] for one in order(offsets()))
    flip_last(hurt, OFFSETS_LOG)
    leader.kill()
    cluster.run_until(lambda: offsets().leader == hurt.node_id, 5_000, "the first in line leads")
    cluster.run_until(lambda: offsets().leader == sound.node_id, 5_000, "the sound one leads")
    commit(7)
    leader.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "all in service")
    cluster.run_until(lambda: len(offsets().in_sync_replicas) == 3, 20_000, "all are in sync")
    assert_alike(cluster, OFFSETS_LOG)


def order(one: Any) -> list[int]:
    """Return the replicas of a partition in the order of election, with the current leader
    first."""
    return [one.leader, *(other for other in one.replicas if other != one.leader)]
