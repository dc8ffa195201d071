"""`segment.jitter.ms`: logs that are created together roll at different times."""

from __future__ import annotations

from uuid import UUID

from broker.storage.log import Log
from protocol.types import TopicPartition
from protocol.wire.records import read_header
from tests.unit.storage.kit import NOW, TOPIC_ID, Node, batch

SEGMENT_MS = 100
STEP_MS = 1
SEGMENTS = 30


def fill(log: Log, count: int, first: int = 0) -> None:
    """Append one record per millisecond."""
    for number in range(first, first + count):
        view = batch(b"x", timestamp_ms=NOW + number)
        log.append(view, read_header(view), 0, NOW)
    log.write_staged(NOW)


def spans(log: Log) -> list[int]:
    """Return the number of milliseconds that each closed segment covers."""
    return [segment.next_offset - segment.base_offset for segment in log.segments.closed()]


def test_without_jitter_every_segment_spans_the_whole_time() -> None:
    node = Node(topic={"segment.ms": str(SEGMENT_MS)})
    fill(node.log, SEGMENT_MS * SEGMENTS)
    assert set(spans(node.log)) == {SEGMENT_MS + 1}


def test_each_segment_of_each_log_ends_earlier_by_a_share_of_its_own() -> None:
    jitter_ms = 60
    topic = {"segment.ms": str(SEGMENT_MS), "segment.jitter.ms": str(jitter_ms)}
    node = Node(topic=topic)
    other_id = UUID(int=TOPIC_ID.int + 1)
    other = node.manager.create(TopicPartition("other", 0), other_id, node.log_config, NOW)
    for log in (node.log, other):
        fill(log, SEGMENT_MS * SEGMENTS)
        found = spans(log)
        assert SEGMENT_MS - jitter_ms + 1 < min(found) < SEGMENT_MS - jitter_ms / 2
        assert SEGMENT_MS - jitter_ms / 2 < max(found) <= SEGMENT_MS + 1
        assert len(set(found)) > SEGMENTS / 2
    assert spans(node.log) != spans(other)


def test_a_segments_share_survives_the_end_of_the_process_and_a_change_of_settings() -> None:
    topic = {"segment.ms": str(SEGMENT_MS), "segment.jitter.ms": "60"}
    whole, broken = Node(topic=topic), Node(topic=topic)
    fill(whole.log, 1_000)
    fill(broken.log, 440)
    broken.flush()
    broken.restart()
    broken.log.use(broken.config.log_config({**topic, "retention.ms": "5"}))
    fill(broken.log, 560, 440)
    assert spans(broken.log) == spans(whole.log)


def test_the_nodes_own_keys_apply_to_topics_without_one_and_never_exceed_the_time() -> None:
    node = Node({"log.roll.jitter.hours": 1}, topic={"segment.ms": str(SEGMENT_MS)})
    assert node.log_config.segment_jitter_ms == 3_600_000
    fill(node.log, SEGMENT_MS * SEGMENTS)
    found = spans(node.log)
    assert min(found) < SEGMENT_MS / 4
    assert max(found) <= SEGMENT_MS + 1
    assert Node({"log.roll.jitter.ms": 7}).log_config.segment_jitter_ms == 7
