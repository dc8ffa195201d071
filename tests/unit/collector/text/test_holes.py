"""NULs after the text of a file, before a line, and within a line: when they are skipped, and when
reading waits for them."""

import random
import re

import pytest

from collector.config.multiline import By, EventRules
from collector.text.encodings import Encoding
from collector.text.fingerprint import Evidence
from collector.text.lines import LineRules, Overlong, RecordKind
from collector.text.tailer import Tailer
from tests.unit.collector.blocks import seed

LIMIT = 1000


class Written:
    """A file that is written in place, and a tailer that is called as the reader calls it."""

    def __init__(
        self,
        data: bytes = b"",
        *,
        limit: int = LIMIT,
        mode: Overlong = Overlong.SPLIT,
        encoding: Encoding | None = None,
        events: EventRules | None = None,
        block: int = 256,
    ):
        self.data = bytearray(data)
        rules = LineRules(limit, True, mode, encoding or Encoding(), events)
        self.tailer = Tailer(rules, Evidence(), block)
        self.records: list[bytes] = []
        self.kinds: list[RecordKind] = []
        self.bytes_read = 0

    def put(self, offset: int, text: bytes) -> None:
        self.data[offset : offset + len(text)] = text

    def wake(self, *, is_changed: bool = False) -> None:
        """Read all available bytes. `is_changed` means that a new modification time shows a
        write."""
        probe = self.tailer.nuls_to_probe(len(self.data))
        if probe is not None and any(self.data[probe.offset : probe.offset + probe.length]):
            self.tailer.look_again(is_written_at_start=True)
        elif is_changed:
            self.tailer.look_again()
        while (request := self.tailer.request(len(self.data))) is not None:
            data = bytes(self.data[request.offset : request.offset + request.length])
            self.bytes_read += len(data)
            for block in self.tailer.take(request, memoryview(data)):
                self.kinds.append(block.kind)
                records = bytes(block.data)
                for begin, end in zip([0, *(block.newlines + 1)], block.newlines, strict=False):
                    self.records.append(records[begin:end])
                self.tailer.hand_out(block)
            self.check()

    def check(self) -> None:
        expected = Evidence().advance(bytes(self.data[: self.tailer.position]))
        assert self.tailer.evidence.fingerprint() == expected.fingerprint()

    def trust(self) -> None:
        """Skip the doubtful NULs, as the reader does when they have not changed for long enough."""
        while self.tailer.doubt is not None:
            self.tailer.trust(len(self.data))
            self.wake()

    def close(self) -> list[bytes]:
        """Close the file and return its last records."""
        size = len(self.data)
        request = self.tailer.final_request(size)
        data = b"" if request is None else bytes(self.data[request.offset :][: request.length])
        return [bytes(block.data) for block in self.tailer.take_final(memoryview(data), size)]


def test_nuls_are_replaced_by_lines_one_by_one() -> None:
    file = Written(bytes(8192))
    file.wake()
    for number in range(50):
        file.put(number * 6, b"pf%03d\n" % number)
        file.wake()
    assert file.records == [b"pf%03d" % number for number in range(50)]
    del file.data[300:]
    file.wake(is_changed=True)
    assert len(file.records) == 50
    assert file.close() == []


def test_nuls_beyond_the_longest_line_are_no_record() -> None:
    for mode in Overlong:
        file = Written(bytes(50 * LIMIT), mode=mode)
        file.wake()
        assert (file.records, file.tailer.position) == ([], 0)
        for number in range(20):
            file.put(number * 6, b"pf%03d\n" % number)
            file.wake()
        assert file.records == [b"pf%03d" % number for number in range(20)]
        assert file.close() == []


def test_what_was_found_to_be_nul_is_not_read_again_for_each_line() -> None:
    file = Written(bytes(1 << 22), block=1 << 20)
    file.wake()
    file.bytes_read = 0
    for number in range(20):
        file.put(number * 6, b"pf%03d\n" % number)
        file.wake()
    assert len(file.records) == 20
    assert file.bytes_read < 2_000_000


def test_a_torn_line_waits_until_it_is_whole() -> None:
    file = Written(b"one\n" + bytes(100))
    file.wake()
    # The end of the line is written before its beginning, as can happen with a memory-mapped file.
    file.put(8, b"end\n")
    file.wake(is_changed=True)
    assert file.records == [b"one"]
    assert file.tailer.doubt is not None
    file.put(4, b"the ")
    file.wake()
    assert file.records == [b"one", b"the end"]
    assert file.tailer.doubt is None


def test_a_line_torn_in_its_middle_waits_as_well() -> None:
    file = Written(b"one\nt\0\0 end\nlast\n" + bytes(100))
    file.wake()
    assert file.records == [b"one"]
    file.put(5, b"he")
    file.wake()
    assert file.records == [b"one", b"the end", b"last"]


def test_nuls_before_a_line_are_no_part_of_it() -> None:
    file = Written(b"a\n" + bytes(64) + b"b\nc\n\0d\n" + bytes(600) + b"e\n")
    file.wake()
    assert file.records == [b"a"]
    file.trust()
    assert file.records == [b"a", b"b", b"c", b"d", b"e"]
    assert file.tailer.nul_bytes_skipped == 665


def test_nuls_within_a_line_are_its_content() -> None:
    file = Written(b"a\0b\nc\0\0\n")
    file.wake()
    file.trust()
    assert file.records == [b"a\0b", b"c\0\0"]


@pytest.mark.parametrize("mode", list(Overlong))
def test_a_hole_longer_than_any_line_before_a_line(mode: Overlong) -> None:
    file = Written(b"a\n" + bytes(5 * LIMIT) + b"b\nc\n", mode=mode)
    file.wake()
    file.trust()
    assert file.records == [b"a", b"b", b"c"]
    assert file.tailer.nul_bytes_skipped == 5 * LIMIT


@pytest.mark.parametrize(
    ("mode", "records"),
    [
        (Overlong.SPLIT, [b"a", b"half", b"b", b"c"]),
        (Overlong.CUT, [b"a", b"half", b"c"]),
        (Overlong.DEAD_LETTER, [b"a", b"half", b"c"]),
    ],
)
def test_a_hole_longer_than_any_line_within_a_line(mode: Overlong, records: list[bytes]) -> None:
    """After a power cut the rest of a line and the bytes after it are NUL. The writer continues
    behind these NULs."""
    for block in (64, 1 << 20):
        file = Written(b"a\nhalf" + bytes(5 * LIMIT) + b"b\nc\n", mode=mode, block=block)
        file.wake()
        assert file.records == [b"a"]
        file.trust()
        assert file.records == records


def test_a_hole_before_an_overlong_line() -> None:
    for block in (64, 1 << 20):
        file = Written(bytes(300) + b"x" * 2500 + b"\nend\n", block=block)
        file.wake()
        file.trust()
        assert [len(record) for record in file.records] == [1000, 1000, 500, 3]


def test_nuls_at_the_end_of_a_file_that_is_closed_are_no_record() -> None:
    file = Written(b"a\nhalf" + bytes(3000))
    file.wake()
    assert file.close() == [b"half\n"]
    file = Written(b"a\n" + bytes(3000))
    file.wake()
    assert file.close() == []


def test_units_of_utf_16_are_nul_only_as_a_whole() -> None:
    for name in ("utf-16-le", "utf-16-be"):
        text = "\ufeff1\n\u0100\u0a00\n".encode(name)
        file = Written(text + bytes(600), encoding=Encoding(name), block=64)
        file.wake()
        assert file.records == [b"1", "\u0100\u0a00".encode()]
        file.put(len(text), "2\n".encode(name))
        file.wake()
        assert file.records[2:] == [b"2"]
        file.put(100, "3\n".encode(name))
        file.wake(is_changed=True)
        file.trust()
        assert file.records[3:] == [b"3"]


def test_an_open_line_that_is_rewritten_shorter() -> None:
    for mode in Overlong:
        for long_line in (b"progress 10% ....................", b"x" * 5000):
            file = Written(b"one\n", mode=mode)
            file.wake()
            position = file.tailer.position
            file.data += long_line[:30]
            file.wake()
            file.data += long_line[30:900]
            file.wake()
            assert file.tailer.position == position
            file.data[4:] = b"two\nthree\n"
            file.wake(is_changed=True)
            assert file.records == [b"one", b"two", b"three"]


def test_the_search_for_the_end_of_a_long_line_begins_again() -> None:
    file = Written(b"x" * 5000, mode=Overlong.CUT)
    file.wake()
    assert file.records == []
    file.data[:] = b"one\ntwo\n" + b"y" * 6000
    request = file.tailer.request(len(file.data))
    assert request is not None
    before = file.tailer.before(request)
    assert bytes(file.data[request.offset - len(before) : request.offset]) != before
    file.wake(is_changed=True)
    assert file.records == [b"one", b"two"]


def test_an_event_that_is_open_before_nuls_goes_on() -> None:
    rules = EventRules(By.CONTINUE, re.compile(r"^\s"), 100, 900, 1000)
    file = Written(b"a\n b\n" + bytes(5000), events=rules)
    file.wake()
    assert file.records == []
    file.put(5, b" c\nd\n")
    file.wake()
    assert file.records == [b"a\n b\n c"]
    assert file.tailer.pending is not None
    del file.data[10:]
    assert file.close() == [b"d\n"]


def test_a_file_that_is_written_in_place_is_read_like_one_that_grows() -> None:
    """Lines replace the NULs in parts and out of order, within a window that moves forward."""
    number = seed()
    rng = random.Random(number)
    for _ in range(40):
        lines = [
            bytes(rng.choices(b"abc", k=rng.choice((0, 1, 30, 999, 1000, 1001, 2500)))) + b"\n"
            for _ in range(rng.randrange(12))
        ]
        text = b"".join(lines)
        mode = rng.choice(list(Overlong))
        whole = Written(text, mode=mode, block=rng.choice((64, 1 << 20)))
        whole.wake()
        file = Written(
            bytes(len(text) + rng.randrange(5000)), mode=mode, block=rng.choice((64, 999))
        )
        at = 0
        while at < len(text):
            end = at + rng.choice((1, 40, 700))
            parts = list(range(at, min(end, len(text))))
            if rng.random() < 0.3:
                parts.reverse()
            for place in parts:
                file.put(place, text[place : place + 1])
                if rng.random() < 0.02:
                    file.wake(is_changed=rng.random() < 0.5)
            at = end
        if rng.random() < 0.5:
            del file.data[len(text) :]
        file.wake(is_changed=True)
        assert file.records == whole.records, f"MILLRACE_SEED={number}"
        assert file.close() == []
