"""Blocks of many cells as SQL text: they are written, split between tuples, and read back
unchanged."""

from dataclasses import replace
from decimal import Decimal

import pytest

from sinks.cells.blocks import OPENING, decode, head, is_clean, opened, stretches, tail
from sinks.keys import KEY_ID_TEXT_OCTETS_MAX, Key, cut, key_hash
from sinks.rows import CellBlock, MetricDefinition
from sinks.values import Aggregate
from tests.harness import worked
from tests.harness.cell_blocks import encode
from tests.harness.seed import seeded

START_S = worked.at("10:00:00")
AWKWARD = [
    "",
    "it's",
    "a\\b",
    "nul\0nul",
    "tab\tline\nreturn\r",
    "🙂é",
    "NULL",
    "_utf8mb4 0x41",
    "(other)",
    "(",
    "),(",
    "),('',",
    "('','=a',NULL,1)",
    "('' ,",
    "x" * KEY_ID_TEXT_OCTETS_MAX,
    "x" * (KEY_ID_TEXT_OCTETS_MAX + 1),
    "'" * KEY_ID_TEXT_OCTETS_MAX,
    "x" * 512,
    "🙂" * 512,
]


def metric(columns: int = 1, measure: str = "count") -> MetricDefinition:
    names = ("a", "b", "c")[:columns]
    return replace(worked.DEFINITIONS[0], name="m", key_columns=names, measure=measure)


def test_a_block_reads_as_documented() -> None:
    two = [(("GET", "/"), Aggregate(3)), ((None, "it's"), Aggregate(1))]
    block = encode(metric(2), 60, START_S, two)
    hashes = [key_hash(key).hex() for key, _ in two]
    assert block == CellBlock(
        "m",
        60,
        START_S,
        2,
        f"('',0x23{hashes[0]},'GET','/',3),"
        f"('',0x23{hashes[1]},NULL,_utf8mb4 0x69742773,1)".encode(),
    )
    assert head(metric(2)).endswith(b"(window_number,seq,k_id,k1,k2,`count`) VALUES ")
    assert tail(metric(2)).endswith(b"`count`=`count`+VALUES(`count`),seq=VALUES(seq)")
    one = encode(metric(), 60, START_S, [(("/",), Aggregate(3)), (("a'",), Aggregate(1))])
    assert one.body == b"('','=/',NULL,3),('',0x3d6127,NULL,1)"
    null = encode(metric(), 60, START_S, [((None,), Aggregate(3))])
    assert null.body == f"('',0x23{key_hash((None,)).hex()},NULL,3)".encode()
    no_key = encode(metric(0, "sum"), 0, 0, [((), Aggregate(1, Decimal("0E-12")))])
    assert no_key.body == f"('',0x23{key_hash(()).hex()},'*',1,'0E-12',NULL,NULL)".encode()


@pytest.mark.parametrize("columns", [1, 2])
def test_only_openings_become_the_windows_number(columns: int) -> None:
    keys: list[Key] = [(text, ",('',", "('")[:columns] for text in AWKWARD]
    block = encode(metric(columns), 60, START_S, [(key, Aggregate(1)) for key in keys])
    sent = opened(block.body, 17, 4711)
    assert sent.count(b"(17,4711,") == len(keys)
    assert replace(block, body=sent.replace(b"(17,4711,", OPENING)) == block
    assert [key for key, _ in decode(block, metric(columns))] == keys


@pytest.mark.parametrize("measure", ["count", "sum", "min", "max", "mean", "share"])
@pytest.mark.parametrize("columns", [0, 1, 2, 3])
def test_what_is_written_is_read_back(columns: int, measure: str) -> None:
    rng = seeded(f"blocks {columns} {measure}")
    keys: set[Key] = {
        tuple(rng.choice([*AWKWARD, None]) for _ in range(columns)) for _ in range(40)
    }
    cells = [(key, _aggregate(rng.randrange(5), measure)) for key in keys]
    block = encode(metric(columns, measure), 60, START_S, cells)
    assert decode(block, metric(columns, measure)) == cells
    assert block.keys == len(cells)


def _aggregate(choice: int, measure: str) -> Aggregate:
    if measure == "count":
        return Aggregate(choice + 1)
    number = [None, Decimal("-1E-12"), Decimal("9" * 16 + ".5"), Decimal(0), Decimal("1E+3")][
        choice
    ]
    return Aggregate(choice + 1, number, number, number)


@pytest.mark.parametrize("octets_max", [1, 100, 1_000, 5_000, 10**6])
def test_stretches_are_cut_between_tuples(octets_max: int) -> None:
    keys: list[Key] = [(text,) for text in [*AWKWARD, "plain", "more"]]
    block = encode(metric(), 60, START_S, [(key, Aggregate(1)) for key in keys])
    found = list(stretches(block, octets_max))
    assert b",".join(found) == block.body
    read: list[Key] = []
    for stretch in found:
        cells = stretch.count(OPENING)
        assert len(stretch) <= octets_max or cells == 1
        part = replace(block, body=stretch, keys=cells)
        read += [key for key, _ in decode(part, metric())]
    assert read == keys


def test_a_long_key_is_written_as_it_is_shown() -> None:
    block = encode(metric(), 60, START_S, [(("y" * 513,), Aggregate(1))])
    assert decode(block, metric()) == [((cut("y" * 513),), Aggregate(1))]


@pytest.mark.parametrize("spoil", ["cut off", "a cell too few", "nonsense"])
def test_a_block_that_is_none_is_refused(spoil: str) -> None:
    block = encode(metric(), 60, START_S, [((text,), Aggregate(1)) for text in "ab"])
    spoilt = {
        "cut off": replace(block, body=block.body[:-3]),
        "a cell too few": replace(block, keys=3),
        "nonsense": replace(block, body=block.body.replace(b"'=a'", b"a")),
    }[spoil]
    with pytest.raises(ValueError, match="block of m"):
        decode(spoilt, metric())


def test_octets_that_are_no_text_are_noticed_and_replaced() -> None:
    block = encode(metric(), 60, START_S, [(("abc",), Aggregate(1))])
    assert is_clean(block)
    torn = replace(block, body=block.body.replace(b"'=abc'", b"'=a\xffc'"))
    assert not is_clean(torn)
    assert decode(torn, metric()) == [(("a\ufffdc",), Aggregate(1))]
