"""Frames from chunks of any size, and the memory that this takes."""

import random

import pytest

from protocol.errors import FrameTooLarge
from protocol.wire.frame import FIRST_READ_BYTES, FrameBuffer
from tests.unit.protocol.examples import SEED, seeded_random


def framed(*frames: bytes) -> bytes:
    """Return frames as they are sent, with their lengths."""
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def feed(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    """Pass `data` to the buffer in as many reads as needed. Return copies of the complete
    frames."""
    found = []
    while data:
        room = buffer.get_buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        found += [bytes(frame) for frame in buffer.received(count)]
    return found


def test_whole_frames_come_out_without_their_size() -> None:
    buffer = FrameBuffer(100)
    assert feed(buffer, framed(b"one", b"", b"three")) == [b"one", b"", b"three"]
    assert buffer.pending_bytes == 0


def test_byte_by_byte() -> None:
    buffer = FrameBuffer(100)
    data = framed(b"one", b"", b"three")
    found = [frame for n in range(len(data)) for frame in feed(buffer, data[n : n + 1])]
    assert found == [b"one", b"", b"three"]


@pytest.mark.parametrize("read_bytes", [16, 64, 100, 1000])
def test_any_cutting(read_bytes: int) -> None:
    for seed in range(SEED, SEED + 40):
        pick = seeded_random(seed)
        sizes = [
            pick.choice((0, 1, 5, pick.randrange(60), pick.randrange(5000))) for _ in range(40)
        ]
        frames = [pick.randbytes(size) for size in sizes]
        assert run_program(pick, FrameBuffer(5000, read_bytes), frames) == frames, (
            f"MILLRACE_SEED={seed}"
        )


def run_program(pick: random.Random, buffer: FrameBuffer, frames: list[bytes]) -> list[bytes]:
    """Run random reads and early stops, and return copies of all frames. Views of a read must not
    change before the next read."""
    stream = framed(*frames)
    found: list[bytes] = []
    while stream:
        room = buffer.get_buffer()
        assert len(room) > 0
        count = min(pick.randrange(1, len(room) + 1), len(stream))
        room[:count] = stream[:count]
        stream = stream[count:]
        views: list[tuple[memoryview, bytes]] = []
        for frame in buffer.received(count):
            views.append((frame, bytes(frame)))
            if pick.random() < 0.1:
                break
        assert all(view == copy for view, copy in views)
        found += [copy for _, copy in views]
        if pick.random() < 0.05:
            buffer.shrink()
    return found + [bytes(frame) for frame in buffer.received(0)]


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_impossible_sizes_are_refused_before_anything_is_allocated(size: int) -> None:
    buffer = FrameBuffer(100, read_bytes=64)
    found = feed(buffer, framed(b"good"))
    with pytest.raises(FrameTooLarge, match=str(size)):
        feed(buffer, size.to_bytes(4, "big", signed=True))
    assert found == [b"good"]
    assert buffer.capacity_bytes <= 64


def test_frames_before_a_bad_size_still_come_out() -> None:
    buffer = FrameBuffer(100)
    data = framed(b"good") + b"\xff\xff\xff\xff"
    buffer.get_buffer()[: len(data)] = data
    frames = buffer.received(len(data))
    assert bytes(next(frames)) == b"good"
    with pytest.raises(FrameTooLarge):
        next(frames)


def test_an_announced_size_alone_allocates_nothing() -> None:
    buffer = FrameBuffer(100 << 20, read_bytes=1024)
    feed(buffer, (100 << 20).to_bytes(4, "big") + bytes(100))
    buffer.get_buffer()
    assert buffer.capacity_bytes <= 2048
    feed(buffer, bytes(10_000))
    assert buffer.capacity_bytes <= 4 * 10_104
    assert buffer.pending_bytes == 10_104


def test_a_large_frame_is_read_exactly_to_its_end() -> None:
    buffer = FrameBuffer(1 << 20, read_bytes=1024)
    large = bytes(range(256)) * 40
    data = framed(b"small", large, b"next")
    first = feed(buffer, data[: 9 + 4 + 500])
    assert first == [b"small"]
    asked = []
    data = data[9 + 4 + 500 :]
    while buffer.pending_bytes:
        room = buffer.get_buffer()
        asked.append(len(room))
        room[:] = data[: len(room)]
        data = data[len(room) :]
        frames = [bytes(frame) for frame in buffer.received(len(room))]
    assert frames == [large]
    assert data == framed(b"next")
    assert sum(asked) == len(large) - 500


def test_a_grown_buffer_still_ends_reads_where_a_large_frame_ends() -> None:
    buffer = FrameBuffer(1 << 20, read_bytes=1024)
    feed(buffer, framed(bytes(50_000)))
    feed(buffer, framed(bytes(3000))[:100])
    assert len(buffer.get_buffer()) == 3004 - 100


def test_a_grown_buffer_shrinks_by_itself_or_at_once() -> None:
    buffer = FrameBuffer(1 << 20, read_bytes=1024)
    large = framed(bytes(100_000))
    feed(buffer, large)
    assert buffer.capacity_bytes > 50_000
    for _ in range(10):
        feed(buffer, framed(b"small"))
    assert buffer.capacity_bytes > 50_000
    for _ in range(30):
        feed(buffer, framed(b"small"))
    assert buffer.capacity_bytes == 1024
    buffer.shrink()
    assert buffer.capacity_bytes == 0
    assert feed(buffer, framed(b"again")) == [b"again"]


def test_shrinking_waits_for_what_is_pending() -> None:
    buffer = FrameBuffer(100, read_bytes=64)
    feed(buffer, framed(b"frame")[:5])
    buffer.shrink()
    assert buffer.capacity_bytes == 64
    assert feed(buffer, framed(b"frame")[5:]) == [b"frame"]
    buffer.shrink()
    assert buffer.capacity_bytes == 0


def test_the_buffer_is_used_again() -> None:
    buffer = FrameBuffer(100, read_bytes=64)
    feed(buffer, framed(b"first"))
    capacity = buffer.capacity_bytes
    feed(buffer, framed(b"other") * 50)
    assert buffer.capacity_bytes == capacity


def test_the_limit_may_rise_after_authentication() -> None:
    buffer = FrameBuffer(4)
    feed(buffer, framed(b"sasl"))
    buffer.frame_bytes_max = 10
    assert feed(buffer, framed(b"longer")) == [b"longer"]


def test_a_buffer_begins_small_and_grows_when_reads_fill_it() -> None:
    buffer = FrameBuffer(1 << 20)
    assert len(buffer.get_buffer()) == FIRST_READ_BYTES
    asked = []
    for _ in range(4):
        room = buffer.get_buffer()
        asked.append(len(room))
        count = len(room) // 10
        room[: count * 10] = framed(b"abcdef") * count
        rest = len(room) - 10 * count
        room[count * 10 :] = framed(bytes(1_000))[:rest]
        assert len(list(buffer.received(len(room)))) == count
        # Complete the cut frame, so that the next round starts with an empty buffer.
        feed(buffer, framed(bytes(1_000))[rest:])
    assert asked == [16 << 10, 64 << 10, 256 << 10, 256 << 10]
    buffer.shrink()
    assert len(buffer.get_buffer()) == FIRST_READ_BYTES


def test_small_reads_leave_a_buffer_small() -> None:
    buffer = FrameBuffer(1 << 20)
    for _ in range(100):
        assert feed(buffer, framed(bytes(5_000))) == [bytes(5_000)]
    assert buffer.capacity_bytes == FIRST_READ_BYTES


def test_pitfall_30_the_beginning_of_tls_is_named() -> None:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    buffer = FrameBuffer(100 << 20)
    buffer.get_buffer()[: len(hello)] = hello
    with pytest.raises(FrameTooLarge, match="a client speaks TLS, but this listener does not"):
        list(buffer.received(len(hello)))
