"""Produce, Fetch and ListOffsets on a bare connection: errors, parked requests, exact offsets."""

from collections.abc import Iterator

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.cluster import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
)
from protocol.messages.fetch import FetchRequest
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.topics import DeleteTopicsRequest
from protocol.wire.records import NewRecord, build_batch
from tests.harness.broker import BrokerProcess
from tests.harness.wait import wait_until
from tests.harness.wire import (
    WireClient,
    batch_of,
    create,
    fetch_request,
    list_request,
    produce,
    produce_request,
    read_values,
    serving,
)

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with serving(
        tmp_path_factory.mktemp("broker"), "fetch", "errors", "silent", "parked"
    ) as process:
        yield process


# Produce.


def produced(
    client: WireClient, topic: str, batch: bytes | bytearray | None, version: int = 9
) -> ErrorCode:
    answer = client.ask(produce_request(topic, batch), 9)
    one = answer.responses[0].partition_responses[0]
    if one.error_code:
        assert one.base_offset == -1
    return ErrorCode(one.error_code)


def test_produce_refusals(client: WireClient) -> None:
    good = batch_of([b"v"])
    flipped = bytearray(good)
    flipped[-1] ^= 1
    old_format = bytearray(good)
    old_format[16] = 1
    based = bytearray(good)
    based[7] = 5
    control = batch_of([b"v"])
    assert produced(client, "none", good) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produced(client, "errors", flipped) is ErrorCode.CORRUPT_MESSAGE
    assert produced(client, "errors", good[:-1]) is ErrorCode.INVALID_RECORD
    assert produced(client, "errors", good[:30]) is ErrorCode.INVALID_RECORD
    assert produced(client, "errors", old_format) is ErrorCode.INVALID_RECORD
    assert produced(client, "errors", based) is ErrorCode.INVALID_RECORD
    assert produced(client, "errors", good + control) is ErrorCode.INVALID_RECORD
    assert produced(client, "errors", None) is ErrorCode.INVALID_RECORD
    assert produced(client, "errors", b"") is ErrorCode.INVALID_RECORD
    transactional = batch_of([b"v"], is_transactional=True, producer_id=1, producer_epoch=0)
    assert (
        produced(client, "errors", transactional) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    assert produced(client, "errors", good) is ErrorCode.NONE


def test_pitfall_29_a_batch_above_the_limit_is_too_large(client: WireClient) -> None:
    large = batch_of([bytes(1_048_588)])
    assert produced(client, "errors", large) is ErrorCode.MESSAGE_TOO_LARGE


def test_pitfall_14_internal_topics_are_not_written_to(client: WireClient) -> None:
    client.ask(FindCoordinatorRequest(key="g"), 3)
    refused = produced(client, "__consumer_offsets", batch_of([b"v"]))
    assert refused is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_acks_are_minus_one_zero_or_one(client: WireClient) -> None:
    answer = client.ask(produce_request("errors", batch_of([b"v"]), required_acks=2), 9)
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.INVALID_REQUIRED_ACKS


def test_without_acks_there_is_no_answer_and_a_fault_hangs_up(
    broker: BrokerProcess, client: WireClient
) -> None:
    silent = produce_request("silent", batch_of([b"v"]), required_acks=0)
    client.send(silent, 9, is_answered=False)
    assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert broker.partition("silent", 0)["log_end_offset"] == 1
    client.send(produce_request("none", batch_of([b"v"]), required_acks=0), 9, is_answered=False)
    assert client.is_hung_up()


def test_a_repeated_batch_is_recognised_and_a_gap_is_not_taken(client: WireClient) -> None:
    producer_id = client.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id

    def send(sequence: int, epoch: int = 0) -> tuple[ErrorCode, int]:
        batch = batch_of(
            [b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        answer = client.ask(produce_request("errors", batch), 9)
        one = answer.responses[0].partition_responses[0]
        return ErrorCode(one.error_code), one.base_offset

    first = send(0)
    assert send(0) == first
    assert send(1) == (ErrorCode.NONE, first[1] + 1)
    assert send(3)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, epoch=1)[0] is ErrorCode.NONE
    assert send(2)[0] is ErrorCode.INVALID_PRODUCER_EPOCH


# Fetch.


def test_pitfall_21_22_a_batch_is_given_whole_from_any_offset_inside(client: WireClient) -> None:
    base = produce(client, "fetch", b"a" * 1000, b"b" * 1000, b"c" * 1000)
    for offset in range(base, base + 3):
        request = fetch_request("fetch", offset, max_bytes=1, partition_max_bytes=1)
        part = client.ask(request, 12).responses[0].partitions[0]
        assert len(read_values(part.records)) == 3


def test_pitfall_24_read_committed_works_without_transactions(client: WireClient) -> None:
    produce(client, "fetch", b"x")
    for version in ApiKey.FETCH.valid_versions:
        answer = client.ask(fetch_request("fetch", isolation_level=1), version)
        part = answer.responses[0].partitions[0]
        assert part.aborted_transactions == []
        assert part.last_stable_offset == part.high_watermark > 0
        assert read_values(part.records)
    end = part.high_watermark
    empty = client.ask(fetch_request("fetch", end, isolation_level=1), 12)
    part = empty.responses[0].partitions[0]
    assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (end, end, 0)


def test_pitfall_23_without_read_committed_aborted_transactions_are_null(
    client: WireClient,
) -> None:
    part = client.ask(fetch_request("fetch"), 12).responses[0].partitions[0]
    assert part.aborted_transactions is None


def test_fetch_sessions_are_made_and_missed(client: WireClient) -> None:
    answer = client.ask(fetch_request("fetch", session_epoch=0), 12)
    assert answer.error_code == 0
    assert answer.session_id > 0
    # The request has session id 0, which stands for no session.
    answer = client.ask(fetch_request("fetch", session_epoch=3), 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_fetch_refusals(client: WireClient) -> None:
    def code(request: FetchRequest) -> ErrorCode:
        return ErrorCode(client.ask(request, 12).responses[0].partitions[0].error_code)

    assert code(fetch_request("fetch", 10_000)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code(fetch_request("fetch", -5)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code(fetch_request("none")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    newer = fetch_request("fetch", current_leader_epoch=50)
    assert code(newer) is ErrorCode.UNKNOWN_LEADER_EPOCH
    replica = fetch_request("fetch")
    replica.replica_id = 2
    assert code(replica) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_fetch_waits_for_data_and_gets_it_at_once(
    broker: BrokerProcess, client: WireClient
) -> None:
    end = client.ask(list_request("parked", -1), 7).topics[0].partitions[0].offset
    client.send(fetch_request("parked", end, max_wait_ms=60_000), 12)
    with WireClient(broker.bootstrap) as other:
        produce(other, "parked", b"now")
    assert read_values(client.receive().responses[0].partitions[0].records) == [b"now"]


def test_a_fetch_waits_until_there_is_enough(broker: BrokerProcess, client: WireClient) -> None:
    end = client.ask(list_request("parked", -1), 7).topics[0].partitions[0].offset
    client.send(fetch_request("parked", end, max_wait_ms=60_000, min_bytes=3_000), 12)
    with WireClient(broker.bootstrap) as other:
        for number in range(3):
            produce(other, "parked", b"%d" % number * 1000)
    assert len(read_values(client.receive().responses[0].partitions[0].records)) == 3


def test_a_fetch_is_answered_empty_when_its_time_is_up(client: WireClient) -> None:
    end = client.ask(list_request("parked", -1), 7).topics[0].partitions[0].offset
    answer = client.ask(fetch_request("parked", end, max_wait_ms=50), 12)
    part = answer.responses[0].partitions[0]
    assert (part.error_code, len(part.records), part.high_watermark) == (0, 0, end)


def test_a_parked_fetch_makes_room_for_a_search_of_offsets_in_what_it_reads_alone(
    broker: BrokerProcess, client: WireClient
) -> None:
    def completed_early() -> int:
        return int(str(broker.status().details["fetch_completed_early"]))

    create(client, "elsewhere")
    end = client.ask(list_request("parked", -1), 7).topics[0].partitions[0].offset
    before = completed_early()
    # A ListOffsets for the same partition must complete the waiting Fetch before it. Otherwise
    # the Fetch would wait for 60 s, longer than this client waits for a response.
    client.send(fetch_request("parked", end, max_wait_ms=60_000), 12)
    client.send(list_request("parked", -1), 7)
    assert len(client.receive().responses[0].partitions[0].records) == 0
    assert client.receive().topics[0].partitions[0].offset == end
    assert completed_early() == before + 1
    for behind, version in (
        (fetch_request("parked", end, max_wait_ms=200), 12),
        (list_request("elsewhere", -1), 7),
        (produce_request("elsewhere", batch_of([b"v"])), 9),
        (ApiVersionsRequest(), 0),
    ):
        client.send(fetch_request("parked", end, max_wait_ms=200), 12)
        client.send(behind, version)
        client.receive()
        client.receive()
    assert completed_early() == before + 1


def test_a_fetch_of_a_deleted_topic_is_told(broker: BrokerProcess, client: WireClient) -> None:
    with WireClient(broker.bootstrap) as other:
        create(other, "doomed")
        client.send(fetch_request("doomed", 0, max_wait_ms=60_000), 12)
        wait_until(lambda: broker.status().details["parked_fetches"] == 1, 5, "the fetch waits")
        other.ask(DeleteTopicsRequest(topic_names=["doomed"]), 5)
    code = client.receive().responses[0].partitions[0].error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ListOffsets.


def test_pitfall_10_11_offsets_by_time_are_exact_to_the_record(client: WireClient) -> None:
    create(client, "times")
    base_ms = 1_700_000_000_000
    for codec in range(5):
        # The largest timestamp is in the middle of the batch, so neither its first nor its last
        # record has it.
        records = [NewRecord(b"k", b"v", base_ms + step) for step in (0, 2, 1)]
        client.ask(produce_request("times", build_batch(records, codec=codec)), 9)
        base_ms += 10

    def at(timestamp: int) -> tuple[int, int]:
        one = client.ask(list_request("times", timestamp), 7).topics[0].partitions[0]
        assert one.error_code == 0
        return one.offset, one.timestamp

    first_ms = 1_700_000_000_000
    assert at(first_ms) == (0, first_ms)
    assert at(first_ms + 1) == (1, first_ms + 2)
    assert at(first_ms + 3) == (3, first_ms + 10)
    assert at(first_ms + 41) == (13, first_ms + 42)
    assert at(first_ms + 43) == (-1, -1)
    assert at(-3) == (13, first_ms + 42)
    assert at(-2)[0] == 0
    assert at(-1)[0] == 15


def test_special_timestamps_of_later_versions_are_refused(client: WireClient) -> None:
    for timestamp, version in ((-3, 6), (-4, 7), (-5, 7)):
        one = client.ask(list_request("fetch", timestamp), version).topics[0].partitions[0]
        assert one.error_code == ErrorCode.UNSUPPORTED_VERSION
    request = list_request("fetch", -1)
    request.topics[0].partitions *= 2
    answer = client.ask(request, 7)
    codes = {one.error_code for one in answer.topics[0].partitions}
    assert codes == {ErrorCode.INVALID_REQUEST}


def test_the_epoch_in_list_offsets_is_that_of_the_record(client: WireClient) -> None:
    create(client, "quiet")
    one = client.ask(list_request("quiet", -1), 7).topics[0].partitions[0]
    assert (one.offset, one.leader_epoch) == (0, 0)
    produce(client, "quiet", b"x")
    one = client.ask(list_request("quiet", -1), 7).topics[0].partitions[0]
    assert (one.offset, one.leader_epoch) == (1, 0)
