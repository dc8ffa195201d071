"""A tailer returns each line once and in order, for any sequence of growth and short reads."""

import random
from collections.abc import Callable

import pytest

from collector.config.settings import BLOCK_BYTES
from collector.text.fingerprint import Evidence
from collector.text.lines import LineRules, Overlong, RecordKind
from collector.text.tailer import Request, Tailer
from tests.unit.collector.blocks import seed


class File:
    """A file's bytes, which grow, and a tailer that reads them."""

    def __init__(self, limit: int = 1 << 20, mode: Overlong = Overlong.SPLIT, block: int = 1 << 20):
        self.data = b""
        self.tailer = Tailer(LineRules(limit, True, mode), Evidence(), block)
        self.records: list[bytes] = []
        self.kinds: list[RecordKind] = []
        self.most_read = 0

    def read(self, request: Request) -> memoryview:
        self.most_read = max(self.most_read, request.length)
        return memoryview(self.data[request.offset : request.offset + request.length])

    def next_request(self, look: int) -> Request | None:
        if self.tailer.doubt is not None:
            self.tailer.trust(len(self.data))
        return self.tailer.request(len(self.data), look)

    def drain(self, look: Callable[[], int] = lambda: BLOCK_BYTES) -> None:
        """Read all bytes, at most `look()` bytes at a time. NULs are skipped without waiting."""
        while (request := self.next_request(look())) is not None:
            for block in self.tailer.take(request, self.read(request)):
                self.kinds.append(block.kind)
                lines = bytes(block.data).split(b"\n")[:-1]
                cut = b"\r" if block.cut_cr else b""
                self.records += [line.removesuffix(cut) for line in lines]
                evidence = self.tailer.hand_out(block)
                assert evidence.position == block.end
            expected = Evidence().advance(self.data[: self.tailer.position])
            assert self.tailer.evidence.fingerprint() == expected.fingerprint()


def test_an_unfinished_line_waits_for_its_end() -> None:
    file = File()
    file.data = b"one\ntwo\nhal"
    file.drain()
    assert file.records == [b"one", b"two"]
    assert file.tailer.position == 8
    file.data += b"f\n"
    file.drain()
    assert file.records[-1] == b"half"
    assert file.tailer.request(len(file.data)) is None


def test_a_line_of_20_mb_needs_no_more_memory_than_the_limit() -> None:
    for mode, count in ((Overlong.SPLIT, 20), (Overlong.CUT, 1)):
        file = File(1_000_000, mode)
        file.data = b"x" * 20_000_000 + b"\nnext\n"
        file.drain()
        assert len(file.records) == count + 1
        assert max(map(len, file.records)) == 1_000_000
        assert file.records[-1] == b"next"
        assert file.most_read <= 1 << 20


def test_a_split_line_resumed_at_a_piece_gives_the_same_pieces() -> None:
    data = bytes(random.Random(3).choices(b"abc", k=5000)) + b"\nend\n"
    whole = File(700)
    whole.data = data
    whole.drain()
    for pieces in range(1, 8):
        resumed = File(700)
        resumed.data = data
        before = Evidence().advance(data[: 700 * pieces])
        resumed.tailer = Tailer(LineRules(700), before)
        resumed.drain()
        assert resumed.records == whole.records[pieces:]


def test_leading_nuls_are_skipped_and_counted() -> None:
    file = File(block=512)
    file.data = b"\0" * 2000 + b"a\n\0b\n"
    file.drain()
    assert file.records == [b"a", b"b"]
    assert file.tailer.nul_bytes_skipped == 2001


def test_nuls_that_come_before_any_line_are_skipped_when_they_come_late() -> None:
    file = File()
    file.data = b"\0" * 10
    file.drain()
    file.data += b"\0" * 10
    file.drain()
    file.data += b"x\n"
    file.drain()
    assert file.records == [b"x"]
    assert file.tailer.nul_bytes_skipped == 20


def test_the_last_line_of_a_closed_file_is_marked_unfinished() -> None:
    file = File()
    file.data = b"one\nhalf"
    file.drain()
    request = file.tailer.final_request(len(file.data))
    assert request == Request(4, 4)
    (block,) = file.tailer.take_final(file.read(request), len(file.data))
    assert (block.kind, bytes(block.data)) == (RecordKind.UNFINISHED, b"half\n")
    file.tailer.hand_out(block)
    assert file.tailer.position == 8
    assert file.tailer.final_request(8) is None


def test_an_unfinished_overlong_line_is_cut_when_the_file_closes() -> None:
    file = File(100, Overlong.CUT, block=64)
    file.data = b"y" * 1000
    file.drain()
    request = file.tailer.final_request(1000)
    assert request == Request(0, 100)
    (block,) = file.tailer.take_final(file.read(request), 1000)
    assert block.end == 1000
    assert bytes(block.data) == b"y" * 100 + b"\n"


@pytest.mark.parametrize("mode", list(Overlong))
def test_any_growth_gives_the_same_records_as_one_look(mode: Overlong) -> None:
    number = seed()
    rng = random.Random(number)
    for _ in range(60):
        limit = rng.choice((16, 40, 300))
        block = rng.choice((64, 200, 1000))
        ends = (b"\n", b"\r\n", b"")
        data = b"".join(
            bytes(rng.choices(b"ab\r\0", k=rng.choice((0, 1, 5, limit - 1, limit, limit + 1, 900))))
            + rng.choice(ends)
            for _ in range(rng.randrange(12))
        )
        once, grown = File(limit, mode, 1 << 20), File(limit, mode, block)
        once.data = data
        once.drain()
        while len(grown.data) < len(data):
            end = len(grown.data) + rng.choice((1, 7, 50, 400))
            grown.data = data[:end]
            grown.drain(lambda: rng.choice((8, 64, 1000)))
            if rng.random() < 0.2:
                grown.tailer.rewind()
        grown.drain()
        assert grown.records == once.records, f"MILLRACE_SEED={number}"
        # NULs before a line may be skipped before the line is complete, so the positions can differ
        # by NULs.
        first, last = sorted((grown.tailer.position, once.tailer.position))
        assert not data[first:last].strip(b"\0"), f"MILLRACE_SEED={number}"
