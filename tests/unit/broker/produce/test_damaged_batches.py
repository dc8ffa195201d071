"""A listener with a login refuses batches whose records no reader could read, and appends nothing
of them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config import LOG_APPEND_TIME
from broker.settings import LONG_MAX
from broker.storage.log import Log
from broker.storage.validation import AT_ONCE_BYTES_MAX
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.wire.compression import Codec
from protocol.wire.records import assemble_batch, read_header, stamp_max_timestamp
from tests.harness.damaged_batches import Damaged, claiming, damaged_batches, one
from tests.harness.wire import batch_of, produce_request
from tests.unit.broker.login_rig import LoginClient, LoginRig
from tests.unit.storage.kit import NOW, batches_of, values_of

CASES = damaged_batches(NOW)
NOISE = claiming(Codec.GZIP, b"this was never compressed", NOW)
LARGE = [bytes([number]) * 40 for number in range(250)] * 10
"""Values of a batch that is too large to be checked at once."""


@pytest.fixture(scope="module")
def rig() -> LoginRig:
    rig = LoginRig()
    rig.set_password("shop", "secret")
    for name in ("t", "small", "large", "mixed", "keyed", "trusted"):
        rig.create(name, 3, **({"cleanup_policy": "compact"} if name == "keyed" else {}))
    return rig


@pytest.fixture
def client(rig: LoginRig) -> LoginClient:
    client = rig.connect()
    assert client.log_in().error_code == 0
    return client


def log_of(rig: LoginRig, topic: str, partition: int = 0) -> Log:
    return rig.broker.parts.replicas.find(topic, partition).log


def settle(rig: LoginRig) -> None:
    rig.world.settle()
    rig.flusher.sync()
    rig.world.settle()


def answer(rig: LoginRig, client: LoginClient) -> list[Any]:
    settle(rig)
    return [one for topic in client.answer(ProduceRequest, 9).responses
            for one in topic.partition_responses]  # fmt: skip


def produce(rig: LoginRig, client: LoginClient, topic: str, batch: bytes | bytearray) -> Any:
    client.send(produce_request(topic, batch), 9)
    (one,) = answer(rig, client)
    return one


@pytest.mark.parametrize("case", CASES, ids=[one.name for one in CASES])
def test_each_kind_of_damage_has_its_answer(
    rig: LoginRig, client: LoginClient, case: Damaged
) -> None:
    """The first request takes the normal path and makes the template, the second the fast path."""
    log = log_of(rig, "t")
    for _ in range(2):
        before = log.log_end_offset
        one = produce(rig, client, "t", case.batch)
        assert ErrorCode(one.error_code) is case.ours, one.error_message
        count = read_header(case.batch).record_count if case.ours is ErrorCode.NONE else 0
        assert log.log_end_offset == before + count
        assert (one.base_offset >= 0) == (case.ours is ErrorCode.NONE)
    assert not client.is_closed


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("topic", ["small", "large"])
def test_good_batches_are_stored_as_they_came(
    rig: LoginRig, client: LoginClient, topic: str, codec: Codec
) -> None:
    values: Any = [b"v"] if topic == "small" else LARGE
    batch = batch_of(values, codec=codec, timestamp_ms=NOW)
    is_small = len(batch) <= AT_ONCE_BYTES_MAX and topic == "small"
    assert is_small == (topic == "small")
    before = log_of(rig, topic).log_end_offset
    offsets = [produce(rig, client, topic, batch).base_offset for _ in range(3)]
    assert offsets == [before + len(values) * number for number in range(3)]
    stored = batches_of(log_of(rig, topic), before)
    assert [one[61:] for one in stored] == [bytes(batch[61:])] * 3


def quick_count(rig: LoginRig, client: LoginClient, topic: str, batch: bytes | bytearray) -> int:
    """Send a batch three times. Return how many of the requests took the fast path."""
    taken = []
    reception = client.session.reception
    inner = reception.fast_path

    class Counted:
        def start(self, *arguments: Any) -> bool:
            is_done: bool = inner.start(*arguments)
            taken.append(is_done)
            return is_done

    reception.fast_path = Counted()
    try:
        for _ in range(3):
            assert produce(rig, client, topic, batch).error_code == 0
    finally:
        reception.fast_path = inner
    return sum(taken)


def test_small_batches_keep_the_fast_path(rig: LoginRig, client: LoginClient) -> None:
    assert quick_count(rig, client, "small", batch_of([b"v"])) == 2


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_small_compressed_batches_keep_it_too(
    rig: LoginRig, client: LoginClient, codec: Codec
) -> None:
    assert quick_count(rig, client, "small", batch_of([b"v" * 100] * 9, codec=codec)) == 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_large_batches_do_not(rig: LoginRig, client: LoginClient, codec: Codec) -> None:
    """A batch that is small when compressed counts by its decompressed size."""
    assert quick_count(rig, client, "large", batch_of(LARGE, codec=codec)) == 0


def test_a_compacted_topic_still_asks_for_keys(rig: LoginRig, client: LoginClient) -> None:
    for key, code in (
        (b"k", ErrorCode.NONE),
        (b"k", ErrorCode.NONE),
        (None, ErrorCode.INVALID_RECORD),
    ):
        batch = batch_of([b"v"], key=key)
        assert produce(rig, client, "keyed", batch).error_code == code


def test_only_the_damaged_batch_of_a_request_is_refused(rig: LoginRig, client: LoginClient) -> None:
    good = bytes(batch_of(LARGE))
    batches = [(0, good), (1, NOISE), (1, good), (2, NOISE), (2, good)]
    data = [PartitionProduceData(index=index, records=batch) for index, batch in batches]
    topic = TopicProduceData(name="mixed", partition_data=data)
    client.send(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic]), 9)
    codes = [ErrorCode(one.error_code).name for one in answer(rig, client)]
    assert codes == ["NONE", "INVALID_RECORD", "NONE", "INVALID_RECORD", "NONE"]
    assert [log_of(rig, "mixed", index).log_end_offset for index in range(3)] == [len(LARGE)] * 3


def test_requests_of_one_connection_keep_their_order(rig: LoginRig, client: LoginClient) -> None:
    """Large and small batches of an idempotent producer alternate in one read. A large one takes
    several turns of the loop, and the small one behind it must wait."""
    log = log_of(rig, "trusted", 1)
    sequence, frames = 0, []
    for values in ([b"v"], LARGE, [b"w"], LARGE, [b"x"], [b"y"]):
        batch = batch_of(values, producer_id=7, producer_epoch=0, base_sequence=sequence)
        frames.append(client.encoded(produce_request("trusted", batch, partition=1), 9))
        sequence += len(values)
    client.send_bytes(b"".join(frames))
    settle(rig)
    found = [client.answer(ProduceRequest, 9) for _ in frames]
    parts = [one.responses[0].partition_responses[0] for one in found]
    assert [one.error_code for one in parts] == [0] * len(frames)
    assert values_of(log) == [b"v", *LARGE, b"w", *LARGE, b"x", b"y"]
    # The producer sends its last batch again, and it is not stored twice.
    client.send_bytes(frames[-1])
    (again,) = answer(rig, client)
    assert (again.error_code, again.base_offset) == (0, parts[-1].base_offset)
    assert log.log_end_offset == sequence


def test_the_header_gets_the_largest_time_of_the_records(
    rig: LoginRig, client: LoginClient
) -> None:
    batch = batch_of([b"a", b"b", b"c"], timestamp_ms=NOW)
    stamp_max_timestamp(batch, NOW + 1)
    before = log_of(rig, "t").log_end_offset
    assert produce(rig, client, "t", batch).error_code == 0
    (stored,) = batches_of(log_of(rig, "t"), before)
    assert read_header(stored).max_timestamp == NOW + 2


@pytest.mark.parametrize("later_ms", [5, -5])
@pytest.mark.parametrize(
    "settings",
    [
        {"message_timestamp_after_max_ms": str(LONG_MAX)},
        {"message_timestamp_type": LOG_APPEND_TIME, "compression_type": "gzip"},
    ],
    ids=["any-future", "repacked"],
)
def test_a_time_that_no_header_can_hold_is_refused(
    rig: LoginRig, client: LoginClient, settings: dict[str, str], later_ms: int
) -> None:
    topic = f"far.{later_ms}.{len(settings)}"
    rig.create(topic, 1, **settings)
    base_ms = LONG_MAX if later_ms > 0 else -LONG_MAX - 1
    payload = one(0, later_ms)
    batch = assemble_batch(
        payload, record_count=1, base_timestamp_ms=base_ms, max_timestamp_ms=base_ms
    )
    assert produce(rig, client, topic, batch).error_code == ErrorCode.INVALID_TIMESTAMP
    # The template of a good batch leads the next one to the fast path.
    assert produce(rig, client, topic, batch_of([b"v"], timestamp_ms=NOW)).error_code == 0
    assert produce(rig, client, topic, batch).error_code == ErrorCode.INVALID_TIMESTAMP
    assert not client.is_closed


def test_without_acks_the_connection_is_closed(rig: LoginRig, client: LoginClient) -> None:
    client.send(produce_request("t", NOISE, required_acks=0), 9)
    settle(rig)
    assert client.is_closed


def test_a_listener_without_a_login_takes_them_unread(rig: LoginRig) -> None:
    """Its clients are on the same machine, so only the header is checked (decision 0015)."""
    asked = rig.ask(produce_request("trusted", NOISE), 9)
    assert asked.responses[0].partition_responses[0].error_code == 0
