"""Request and response headers, whole and malformed."""

import pytest

from protocol.errors import BadLength, BadString, BufferUnderflow, WireError
from protocol.messages import headers
from protocol.messages.api import ApiKey
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.wire.schema import CHUNK_SIZE_BYTES


def test_client_id_may_be_null_or_empty() -> None:
    for version in (8, 9):
        for client_id in (None, "", "größe"):
            frame = headers.encode_request(MetadataRequest(), version, 5, client_id)[4:]
            header, position = headers.decode_request_header(memoryview(frame))
            assert header.client_id == client_id
            assert MetadataRequest.decode(frame, version, position)[1] == len(frame)


def test_unknown_tags_in_headers_are_skipped() -> None:
    frame = headers.encode_request(MetadataRequest(), 9, 5, "c")[4:]
    with_tags = frame[:11] + b"\x02\x07\x01x\xff\x01\x00" + frame[12:]
    header, position = headers.decode_request_header(with_tags)
    assert header.client_id == "c"
    assert MetadataRequest.decode(with_tags, 9, position)[1] == len(with_tags)
    answer = b"\0\0\0\x05\x01\x00\x03abc" + b"body"
    assert headers.decode_response_header(answer, ApiKey.METADATA, 9) == (5, len(answer) - 4)


def test_every_prefix_of_a_header_is_a_wire_error() -> None:
    frame = headers.encode_request(MetadataRequest(), 9, 5, "client")[4:17]
    for length in range(len(frame)):
        with pytest.raises(WireError):
            headers.decode_request_header(frame[:length])
    for length in range(5):
        with pytest.raises(BufferUnderflow):
            headers.decode_response_header(b"\0\0\0\x05\x00"[:length], ApiKey.METADATA, 9)


def test_nonsense_is_named() -> None:
    with pytest.raises(BadLength):
        headers.decode_request_header(bytes.fromhex("0003 0008 00000001 fffe"))
    with pytest.raises(BadString):
        headers.decode_request_header(bytes.fromhex("0003 0008 00000001 0001 ff"))


def test_an_unknown_api_key_still_has_a_header() -> None:
    header, position = headers.decode_request_header(bytes.fromhex("7000 0009 00000001 0001 61"))
    assert (header.request_api_key, header.client_id, position) == (0x7000, "a", 11)


def test_chunks_of_a_request_pass_large_batches_on() -> None:
    batch = bytearray(CHUNK_SIZE_BYTES)
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=0, records=batch)]
            )
        ]
    )
    chunks = headers.encode_request_chunks(request, 9, 1, "c")
    assert chunks[1] is batch
    assert b"".join(chunks) == headers.encode_request(request, 9, 1, "c")
