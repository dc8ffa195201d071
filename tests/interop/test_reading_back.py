"""The harness reads topics correctly even while a log start offset moves."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.harness import recorded
from tests.harness.history import Place
from tests.harness.wire import serving

pytestmark = pytest.mark.live

PLACE = ("moving", 0)


def test_a_start_that_moves_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, PLACE[0]) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(20):
            producer.produce(PLACE[0], b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for answer in admin.delete_records([TopicPartition(*PLACE, 10)]).values():
            answer.result(30)
        asked = recorded.start_of
        earlier = [0]

        def start_of(consumer: Consumer, place: Place) -> int:
            return earlier.pop() if earlier else asked(consumer, place)

        monkeypatch.setattr(recorded, "start_of", start_of)
        log = recorded.read_everything(broker.bootstrap, [PLACE])
    assert log.starts == {PLACE: 10}
    assert list(log.records(PLACE)) == [(number, b"%d" % number) for number in range(10, 20)]
