"""For which faults a client's batch is rejected, and with which error code."""

from __future__ import annotations

from struct import pack_into

import pytest

from broker.config import LogConfig
from broker.storage.errors import InvalidRecords, RecordsUnseen
from broker.storage.storing import as_stored
from broker.storage.validation import check_client_batch, check_own_batch
from protocol.errors import ApiError, ErrorCode
from protocol.wire.crc32c import crc32c
from protocol.wire.records import BatchHeader, Codec, check_crc, read_header
from tests.unit.storage.kit import NOW, batch, look


def refusal(view: memoryview, **topic: str) -> ApiError:
    config = LogConfig.of({key.replace("__", "."): value for key, value in topic.items()})
    with pytest.raises(ApiError) as raised:
        check(view, config)
    return raised.value


def accept(view: memoryview, **topic: str) -> None:
    config = LogConfig.of({key.replace("__", "."): value for key, value in topic.items()})
    check(view, config)


def check(view: memoryview, config: LogConfig) -> None:
    """Perform all checks of a client's batch. Check its records only if that is required."""
    header = read_header(view)
    try:
        check_client_batch(view, header, config, NOW)
    except RecordsUnseen:
        check_client_batch(view, header, config, NOW, look(view, config, NOW))


def changed(at: int, layout: str, value: int) -> memoryview:
    """Return a valid batch in which one field is changed and the checksum is right."""
    view = batch(b"a", b"b", producer=(7, 0, 0))
    pack_into(layout, view, at, value)
    pack_into(">I", view, 17, crc32c(view[21:]))
    return view


def test_a_good_batch_passes() -> None:
    accept(batch(b"a", b"b"))
    accept(batch(b"a", codec=Codec.ZSTD, producer=(7, 0, 0)))


def test_a_wrong_checksum_is_corrupt() -> None:
    view = batch(b"abc")
    view[-1] ^= 1
    assert refusal(view).code is ErrorCode.CORRUPT_MESSAGE


def test_a_cut_batch_is_invalid() -> None:
    """Kafka rejects it too, because it finds no batch in the data. A client that sends such data
    truncates every batch."""
    assert refusal(batch(b"abc")[:-1]).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_an_unknown_codec_is_refused(bits: int) -> None:
    """No consumer could decompress the batch, and the log could not search it by timestamp."""
    view = changed(21, ">h", bits)
    assert refusal(view).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_two_batches_are_not_one() -> None:
    view = memoryview(bytearray(bytes(batch(b"a")) + bytes(batch(b"b"))))
    assert refusal(view).code is ErrorCode.INVALID_RECORD


def test_a_batch_above_the_limits_is_too_large() -> None:
    """Pitfall 29: `max.message.bytes` and `segment.bytes` each have their own error code."""
    view = batch(b"x" * 1000)
    assert refusal(view, max__message__bytes="1000").code is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(view, segment__bytes="1000").code is ErrorCode.RECORD_LIST_TOO_LARGE
    size = str(len(view))
    accept(view, max__message__bytes=size, segment__bytes=size)


@pytest.mark.parametrize(
    "view",
    [
        changed(0, ">q", 5),  # base offset
        changed(57, ">i", 0),  # record count
        changed(57, ">i", 3),
        changed(23, ">i", 0),  # last offset delta
        changed(21, ">h", 0x20),  # control
        changed(53, ">i", -1),  # sequence
        changed(51, ">h", -1),  # producer epoch
    ],
)
def test_what_only_a_log_may_write_is_invalid(view: memoryview) -> None:
    assert refusal(view).code is ErrorCode.INVALID_RECORD


def test_a_transaction_needs_a_producer() -> None:
    accept(batch(b"a", producer=(7, 0, 0), is_transactional=True))
    assert refusal(batch(b"a", is_transactional=True)).code is ErrorCode.INVALID_RECORD


def test_a_compacted_topic_names_the_records_without_key() -> None:
    """Pitfall 15: every record of a compacted topic needs a key, and the response names the records
    without one."""
    accept(batch(b"a", b"b", key=b"k"), cleanup__policy="compact")
    for codec in (Codec.NONE, Codec.GZIP):
        error = refusal(batch(b"a", b"b", codec=codec), cleanup__policy="compact,delete")
        assert isinstance(error, InvalidRecords)
        assert error.code is ErrorCode.INVALID_RECORD
        assert [number for number, _ in error.record_errors] == [0, 1]


def test_bounds_of_time_name_the_records() -> None:
    hour = 3_600_000
    accept(batch(b"a", timestamp_ms=NOW + hour))
    accept(batch(b"a", timestamp_ms=-1))
    accept(batch(b"a", timestamp_ms=0))
    error = refusal(batch(b"a", b"b", b"c", timestamps=[NOW, NOW + hour + 1, NOW]))
    assert isinstance(error, InvalidRecords)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in error.record_errors] == [1]
    old = batch(b"a", b"b", timestamps=[NOW - 101, NOW - 100])
    accept(old)
    error = refusal(old, message__timestamp__before__max__ms="100")
    assert isinstance(error, InvalidRecords)
    assert [number for number, _ in error.record_errors] == [0]


@pytest.mark.parametrize("key", ["message__timestamp__after__max__ms",
                                 "message__timestamp__difference__max__ms"])  # fmt: skip
def test_how_far_ahead_a_record_may_be_is_the_topics_to_say(key: str) -> None:
    for bound in (50, 7_200_000):
        topic = {key: str(bound)}
        accept(batch(b"a", timestamp_ms=NOW + bound), **topic)
        error = refusal(batch(b"a", b"b", timestamps=[NOW, NOW + bound + 1]), **topic)
        assert isinstance(error, InvalidRecords)
        assert error.code is ErrorCode.INVALID_TIMESTAMP
        assert [number for number, _ in error.record_errors] == [1]


def test_the_older_bound_holds_for_the_past_too() -> None:
    topic = {"message__timestamp__difference__max__ms": "100"}
    accept(batch(b"a", timestamp_ms=NOW - 100), **topic)
    assert refusal(batch(b"a", timestamp_ms=NOW - 101), **topic).code is ErrorCode.INVALID_TIMESTAMP


def restamped(view: memoryview, max_timestamp: int, **topic: str) -> BatchHeader:
    """Give the batch's header this largest timestamp. Return the header that the log stores."""
    pack_into(">q", view, 35, max_timestamp)
    pack_into(">I", view, 17, crc32c(view[21:]))
    before = bytes(view)
    config = LogConfig.of({key.replace("__", "."): value for key, value in topic.items()})
    header = read_header(view)
    try:
        check_client_batch(view, header, config, NOW)
    except RecordsUnseen:
        newest_ms = look(view, config, NOW).max_timestamp_ms
        same, header = as_stored(view, header, config, newest_ms)
        assert same is view
    assert check_crc(view)
    assert header._replace(crc=0) == read_header(view)._replace(crc=0)
    for kept in (slice(17), slice(21, 35), slice(43, None)):
        assert view[kept] == before[kept]
    return header


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("told", [-1, 0, NOW - 1, NOW + 2**40])
def test_a_largest_timestamp_that_cannot_be_is_looked_for_in_the_records(
    told: int, codec: Codec
) -> None:
    """Sarama before 1.45.1 does not set the field. Searches by time and retention need a right
    value."""
    view = batch(b"a", b"b", b"c", timestamps=[NOW, NOW + 20, NOW + 10], codec=codec)
    assert restamped(view, told).max_timestamp == NOW + 20


def test_a_largest_timestamp_that_can_be_is_believed() -> None:
    view = batch(b"a", b"b", timestamps=[NOW, NOW + 20])
    assert restamped(view, NOW + 7).max_timestamp == NOW + 7
    with_keys = batch(b"a", b"b", timestamps=[NOW, NOW + 20], key=b"k")
    # The topic is compacted, so the records are checked anyway and the right value is found.
    assert restamped(with_keys, NOW + 7, cleanup__policy="compact").max_timestamp == NOW + 20


def test_records_without_time_leave_their_batch_without() -> None:
    assert restamped(batch(b"a", b"b", timestamp_ms=-1), -1).max_timestamp == -1
    assert restamped(batch(b"a", b"b", timestamp_ms=-1), -2).max_timestamp == -1


def test_records_out_of_bounds_cannot_hide_behind_a_small_largest_timestamp() -> None:
    view = batch(b"a", b"b", timestamps=[NOW, NOW * 2])
    pack_into(">q", view, 35, -1)
    pack_into(">I", view, 17, crc32c(view[21:]))
    error = refusal(view)
    assert isinstance(error, InvalidRecords)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in error.record_errors] == [1]
    accept(view, message__timestamp__type="LogAppendTime")


def test_nor_behind_one_that_can_be_where_records_are_looked_at() -> None:
    view = batch(b"a", b"b", timestamps=[NOW, NOW * 2], key=b"k")
    pack_into(">q", view, 35, NOW)
    pack_into(">I", view, 17, crc32c(view[21:]))
    accept(view)
    error = refusal(view, cleanup__policy="compact")
    assert isinstance(error, InvalidRecords)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in error.record_errors] == [1]


def test_times_before_1970_are_taken_as_kafka_does() -> None:
    view = batch(b"a", b"b", timestamps=[-5, NOW], key=b"k")
    accept(view)
    accept(view, cleanup__policy="compact")
    error = refusal(view, message__timestamp__before__max__ms="100")
    assert isinstance(error, InvalidRecords)
    assert [number for number, _ in error.record_errors] == [0]


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_payload_that_does_not_decode_is_invalid_where_it_is_looked_at(
    codec: Codec, policy: str
) -> None:
    view = batch(b"a" * 100, key=b"k", codec=codec)
    pack_into(">Q", view, 61, 0x9988776655443322)
    pack_into(">q", view, 35, NOW if policy == "compact" else -1)
    pack_into(">I", view, 17, crc32c(view[21:]))
    assert refusal(view, cleanup__policy=policy).code is ErrorCode.INVALID_RECORD


def test_only_the_log_stamps_records_as_appended() -> None:
    assert refusal(changed(21, ">h", 0x08)).code is ErrorCode.INVALID_TIMESTAMP


def test_a_topic_that_stamps_records_itself_takes_any_time() -> None:
    view = batch(b"a", timestamp_ms=NOW * 2)
    accept(view, message__timestamp__type="LogAppendTime")


def test_our_own_batches_may_be_what_clients_may_not_send() -> None:
    control = changed(21, ">h", 0x20)
    check_own_batch(control, read_header(control), LogConfig.of({}))
    short = batch(b"a")[:-1]
    with pytest.raises(ApiError):
        check_own_batch(short, read_header(short), LogConfig.of({}))
