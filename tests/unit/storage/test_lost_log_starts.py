"""Without `log-start-offset-checkpoint`, a log begins with its first segment."""

import random

import pytest

from broker.storage.checkpoint import LOG_START_OFFSETS
from broker.storage.dropped import unlink_if_there
from tests.unit.storage.kit import FOLDER, NOW, Node, batch, retain, values_of


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_whose_start_is_above_zero_is_online_without_the_file_of_starts(
    is_clean: bool,
) -> None:
    node = Node(topic={"segment.bytes": "300", "retention.ms": "1000"})
    for number in range(6):
        node.put(batch(b"%03d" % number * 30, timestamp_ms=NOW))
    node.flush()
    dropped = retain(node, NOW + 5_000)
    assert dropped is not None
    dropped.perform()
    node.put(batch(b"kept", timestamp_ms=NOW + 5_000))
    node.flush()
    node.manager.checkpoint().perform()
    assert node.log.log_start_offset == 6
    if is_clean:
        node.manager.close_clean()
    unlink_if_there(node.disk, f"{FOLDER}/{LOG_START_OFFSETS}")
    node.disk.sync_folder(FOLDER)
    report = node.reopen() if is_clean else node.crash(random.Random(1))
    assert report.offline == {}
    assert (node.log.log_start_offset, values_of(node.log)) == (6, [b"kept"])
