"""Each supported encoding: its lines, its positions, and invalid bytes."""

import random
from pathlib import Path

import pytest

from collector.config.encoding_names import LINEWISE, OnInvalid, canonical_name
from collector.text.encodings import Encoding
from collector.text.fingerprint import Evidence
from collector.text.lines import LineRules, Overlong, RecordKind
from collector.text.tailer import Tailer
from tests.unit.collector.blocks import seed
from tests.unit.collector.world import World

NAMES = (*sorted(LINEWISE), "utf-8", "utf-16-le", "utf-16-be")


@pytest.mark.parametrize("name", sorted(LINEWISE))
def test_no_byte_before_a_newline_takes_it_away(name: str) -> None:
    for errors in ("replace", "backslashreplace"):
        for first in range(256):
            for second in (None, *range(0x80, 0x100, 5), 0x30):
                lead = bytes([first]) if second is None else bytes([first, second])
                text = (lead + b"\nx\n").decode(name, errors)
                assert text.count("\n") == 2 + lead.count(b"\n"), (name, lead)


@pytest.mark.parametrize(
    "name", ["iso2022_jp", "iso-2022-kr", "hz", "utf-7", "cp037", "idna", "rot13"]
)
def test_encodings_whose_lines_cannot_be_read_one_by_one_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="whose lines cannot be read one by one, expected utf-8"):
        canonical_name(name)


def test_names_are_those_of_python() -> None:
    found = [canonical_name(name) for name in ("UTF8", "latin-1", "windows-1252", "Shift-JIS")]
    assert found == ["utf-8", "iso8859-1", "cp1252", "shift_jis"]
    with pytest.raises(ValueError, match="found 'klingon', expected utf-8"):
        canonical_name("klingon")


class Source:
    """A file's bytes, which grow, and a tailer that can be restarted at its position."""

    def __init__(self, rules: LineRules, block: int):
        self.rules = rules
        self.block = block
        self.data = b""
        self.tailer = Tailer(rules, Evidence(), block)
        self.records: list[bytes] = []
        self.dead: list[bytes] = []
        self.altered = 0

    def restart(self) -> None:
        evidence = Evidence().advance(self.data[: self.tailer.position])
        self.tailer = Tailer(self.rules, evidence, self.block)

    def drain(self, rng: random.Random | None = None) -> None:
        while (request := self.tailer.request(len(self.data))) is not None:
            data = memoryview(self.data[request.offset : request.offset + request.length])
            for block in self.tailer.take(request, data):
                parts = [block]
                if rng is not None and block.count > 1:
                    parts = list(block.split_at(rng.randrange(1, block.count)))
                for part in parts:
                    values = bytes(part.data).split(b"\n")[:-1]
                    values = [v.removesuffix(b"\r") if part.cut_cr else v for v in values]
                    (self.dead if part.is_dead_letter else self.records).extend(values)
                    self.altered += 0 if part.altered is None else len(part.altered)
                    evidence = self.tailer.hand_out(part)
                    assert evidence.position == part.end
            expected = Evidence().advance(self.data[: self.tailer.position])
            assert self.tailer.evidence.fingerprint() == expected.fingerprint()


def some_text(name: str, rng: random.Random) -> str:
    """Return a line of random characters that the encoding can represent, without a line end."""
    while True:
        kinds = [range(32, 127), range(160, 0x2FFF), range(0x4E00, 0x9FFF), range(0x1F600, 0x1F640)]
        letters = [chr(rng.choice(rng.choice(kinds))) for _ in range(20)]
        kept = "".join(letters).encode(name, "ignore").decode(name)
        if "\ufeff" not in kept:
            return kept


@pytest.mark.parametrize("name", NAMES)
def test_any_growth_and_any_restart_gives_the_lines(name: str) -> None:
    number = seed()
    rng = random.Random(f"{number} {name}")
    encoding = Encoding(name, OnInvalid.REPLACE)
    unit = encoding.unit_bytes
    for _ in range(8):
        texts = [some_text(name, rng) for _ in range(30)]
        ends = [rng.choice(("\n", "\r\n")) for _ in texts]
        mark = rng.choice((b"", encoding.mark))
        lines = "".join(text + end for text, end in zip(texts, ends, strict=True))
        data = mark + lines.encode(name)
        source = Source(LineRules(4096 * unit, True, Overlong.SPLIT, encoding), 256)
        while len(source.data) < len(data):
            source.data = data[: len(source.data) + rng.choice((1, 3, 50, 700))]
            source.drain(rng)
            if rng.random() < 0.3:
                source.restart()
        assert source.records == [text.encode() for text in texts], f"MILLRACE_SEED={number}"
        assert source.tailer.position == len(data)


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be", "gb18030", "shift_jis", "cp1252"])
def test_a_line_that_is_too_long_is_cut_between_characters(name: str) -> None:
    number = seed()
    rng = random.Random(f"{number} {name}")
    encoding = Encoding(name)
    for mode in (Overlong.SPLIT, Overlong.CUT):
        for _ in range(20):
            text = "".join(some_text(name, rng) for _ in range(rng.randrange(1, 30)))
            data = (text + "\nend\n").encode(name)
            source = Source(LineRules(64, True, mode, encoding), rng.choice((66, 128, 1 << 20)))
            while len(source.data) < len(data):
                source.data = data[: len(source.data) + rng.choice((2, 60, 700))]
                source.drain()
                if rng.random() < 0.3:
                    source.restart()
            *pieces, last = source.records
            assert last == b"end"
            assert source.altered == 0, f"MILLRACE_SEED={number}"
            whole = b"".join(pieces).decode()
            assert whole == text if mode is Overlong.SPLIT else text.startswith(whole)
            assert max(len(piece.decode().encode(name)) for piece in pieces) <= 64


@pytest.mark.parametrize(
    ("name", "bad", "kept", "replaced"),
    [
        ("utf-8", b"b\xffd", b"b\xffd", "b\ufffdd".encode()),
        ("cp1252", b"b\x81d", rb"b\x81d", "b\ufffdd".encode()),
        ("gbk", b"b\xff d", rb"b\xff d", "b\ufffd d".encode()),
        ("gbk", b"b\x81", rb"b\x81", "b\ufffd".encode()),
        ("utf-16-le", b"b\0\x00\xd8d\0", rb"b\x00\xd8d", "b\ufffdd".encode()),
    ],
)
def test_bytes_that_are_no_text_become_what_is_configured(
    name: str, bad: bytes, kept: bytes, replaced: bytes
) -> None:
    newline = "\n".encode(name)
    lines = ["one".encode(name), bad, "two".encode(name), bad, bad]
    data = newline.join(lines) + newline
    for action, expected in ((OnInvalid.KEEP, kept), (OnInvalid.REPLACE, replaced)):
        source = Source(LineRules(1024, True, Overlong.SPLIT, Encoding(name, action)), 1 << 20)
        source.data = data
        source.drain(random.Random(1))
        assert source.records == [b"one", expected, b"two", expected, expected]
        assert source.altered == (0 if name == "utf-8" and action is OnInvalid.KEEP else 3)
    encoding = Encoding(name, OnInvalid.DEAD_LETTER)
    source = Source(LineRules(1024, True, Overlong.SPLIT, encoding), 1 << 20)
    source.data = data
    source.drain()
    assert (source.records, source.dead) == ([b"one", b"two"], [bad] * 3)


def test_the_unfinished_line_of_a_file_is_text_too() -> None:
    tailer = Tailer(LineRules(1024, True, Overlong.SPLIT, Encoding("utf-16-le")), Evidence())
    data = "ä\nhalb\r".encode("utf-16-le") + b"x"
    request = tailer.request(len(data))
    assert request is not None
    (block,) = tailer.take(request, memoryview(data)[: request.length])
    tailer.hand_out(block)
    final = tailer.final_request(len(data))
    assert final is not None
    (last,) = tailer.take_final(memoryview(data)[final.offset :], len(data))
    assert (last.kind, bytes(last.data), last.end) == (
        RecordKind.UNFINISHED,
        b"halb\r\\x78\n",
        len(data),
    )


def test_utf_16_is_read_by_its_byte_order_mark(tmp_path: Path) -> None:
    world = World(tmp_path, encoding="utf-16")
    texts = {"a": ("utf-16-le", "\ufeffä\r\nb\n"), "b": ("utf-16-be", "\ufeffz\nü\n"),
             "b2": ("utf-16-le", "no mark ß\n")}  # fmt: skip
    for name, (encoding, text) in texts.items():
        data = text.encode(encoding)
        world.append(name, data[:1])
        world.look()
        world.append(name, data[1:])
    world.look()
    assert sorted(line.decode() for line in world.lines) == ["b", "no mark ß", "z", "ä", "ü"]
    world.kill()
    world.up()
    world.append("b", "wieder\n".encode("utf-16-be"))
    world.look()
    assert world.lines[5:] == [b"wieder"]
    assert world.count("new") == 0


def test_the_end_of_a_file_in_utf_16_is_a_line_start(tmp_path: Path) -> None:
    # U+0A00 and U+0A0A contain the byte of a newline, but only U+000A is one.
    text = "\u0a00\n\u0a0a\u0a00"
    (tmp_path / "a").write_bytes(text.encode("utf-16-be"))
    world = World(tmp_path, encoding="utf-16-be", start="end")
    world.look()
    assert world.lines == []
    world.append("a", "x\n".encode("utf-16-be"))
    world.look()
    assert world.lines == ["\u0a0a\u0a00x".encode()]


def test_lines_that_are_no_text_are_dead_letters_and_counted(tmp_path: Path) -> None:
    world = World(tmp_path, encoding="shift_jis", on_invalid="dead_letter")
    world.append("a", "日本\n".encode("shift_jis") + b"\xff\xff\n" + "語\n".encode("shift_jis"))
    world.look()
    assert world.lines == ["日本".encode(), "語".encode()]
    assert ("millrace.dead-letters", b"\xff\xff") in world.sent
    assert (world.count("dead_lettered"), world.count("invalid_dead_letter")) == (1, 1)
    world = World(tmp_path, encoding="utf-8", on_invalid="replace")
    world.look()
    assert world.count("invalid_replace") == 3


def test_a_dead_letter_is_cut_to_what_its_topic_takes(tmp_path: Path) -> None:
    world = World(tmp_path, on_overlong="dead_letter", max_line_bytes="64KiB")
    world.limits["millrace.dead-letters"] = 10_000
    world.append("a", b"y" * 100_000 + b"\nend\n")
    world.look()
    assert world.lines == [b"end"]
    (dead,) = (value for topic, value in world.sent if topic == "millrace.dead-letters")
    assert 9_000 < len(dead) < 10_000
    assert set(dead) == {ord("y")}
