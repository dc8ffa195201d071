"""`dump-log` reports a batch with a valid checksum and unreadable records, and continues.

A broker stores such a batch (decision 0015), so both dump commands must continue after it.
"""

import random
from pathlib import Path
from struct import pack_into

import pytest

from appliance.kafka_tools.dump_log import main as kafka_dump_log
from appliance.output import Exit
from protocol.wire.records import (
    HEADER_BYTES,
    BatchHeader,
    Codec,
    NewRecord,
    build_batch,
    compress,
    read_header,
    with_records,
)
from tests.harness.seed import seeded
from tests.unit.appliance.test_commands import run
from tests.unit.storage.kit import batch

LOG = f"{0:020}.log"
CONTROL, TRANSACTIONAL = 0x20, 0x10
DECODERS = ("offsets", "transactions", "metadata", "plain")
PRINTS = (
    [],
    ["--print-data"],
    ["--max-bytes", "100000", "--print-data"],
    ["--json"],
    *(["--decode", name] for name in DECODERS),
)
KAFKA_PRINTS: tuple[list[str], ...] = (
    [],
    ["--print-data-log"],
    ["--deep-iteration"],
    ["--print-data-log", "--skip-record-metadata"],
    ["--print-data-log", "--max-bytes", "100000"],
    ["--print-data-log", "--key-decoder-class", "org.apache.kafka.tools.api.DefaultDecoder"],
    ["--offsets-decoder"],
    ["--transaction-log-decoder"],
    ["--cluster-metadata-decoder"],
    ["--verify-index-only"],
    ["--index-sanity-check"],
)


def unopened(
    payload: bytes, codec: int = Codec.GZIP, *, attributes: int = 0, **header: int
) -> bytes:
    """Return a batch at offset 1 with a valid checksum whose payload is not a list of records."""
    plain = read_header(build_batch([NewRecord(b"k", b"v", 0)]))
    changed: BatchHeader = plain._replace(
        **{"attributes": codec | attributes, "base_offset": 1, **header}
    )
    return bytes(with_records(changed, payload))


def at(offset: int, value: bytes) -> bytes:
    made = bytearray(batch(value, key=b"k"))
    pack_into(">q", made, 0, offset)
    return bytes(made)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "t-0" / LOG
    path.parent.mkdir()
    path.write_bytes(at(0, b"first") + unopened(b"this is no gzip") + at(2, b"last-one"))
    return path


@pytest.mark.parametrize("options", PRINTS, ids=" ".join)
def test_dump_log_names_the_offset_and_goes_on(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    code, out, err = run(monkeypatch, tmp_path, "dump-log", str(log.parent), *options)
    assert code == Exit.CONDITION
    assert err[-1].startswith("1 finding: 1 file, 3 batches")
    assert any("the records of the batch at offset 1 cannot be read: gzip" in line for line in out)
    if "--print-data" in options:
        assert any(line.endswith("payload: last-one") for line in out)


@pytest.mark.parametrize("options", KAFKA_PRINTS, ids=" ".join)
def test_kafka_dump_log_names_the_offset_and_goes_on(
    log: Path, capfd: pytest.CaptureFixture[str], options: list[str]
) -> None:
    code = kafka_dump_log(["--files", str(log), *options])
    told = capfd.readouterr()
    assert code == Exit.CONDITION
    assert "the records of the batch at offset 1 cannot be read: gzip" in told.err
    assert "Traceback" not in told.err
    assert "baseOffset: 2 " in told.out
    if options == ["--print-data-log"]:
        assert told.out.index("offset 1 cannot be read") < told.out.index("last-one")


def test_the_records_before_the_fault_are_printed(
    log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = build_batch([NewRecord(None, b"good", 0), NewRecord(None, b"cut", 0)])
    payload = bytes(whole[HEADER_BYTES:-2])
    both = {"record_count": 2, "last_offset_delta": 1}
    log.write_bytes(at(0, b"first") + unopened(payload, Codec.NONE, **both) + at(3, b"last"))
    assert kafka_dump_log(["--files", str(log), "--print-data-log"]) == Exit.CONDITION
    told = capfd.readouterr()
    assert "payload: good" in told.out
    assert "payload: last" in told.out


@pytest.mark.parametrize(
    "broken",
    [
        unopened(b"\0" * 9, 5),
        unopened(b"\0" * 9, 7),
        unopened(b"", Codec.NONE),
        unopened(b"\0" * 9, Codec.NONE, record_count=0),
        unopened(b"", Codec.ZSTD),
        unopened(bytes(compress(Codec.GZIP, bytes(65 << 20)))),
        unopened(b"\x0e\0\0\0\x01\0\x01\0", Codec.NONE, attributes=CONTROL, producer_id=7),
        unopened(b"junk", Codec.LZ4, attributes=CONTROL | TRANSACTIONAL, producer_id=7),
        unopened(b"junk", Codec.SNAPPY, attributes=TRANSACTIONAL, producer_id=7),
    ],
    ids=["codec 5", "codec 7", "empty", "none", "zstd", "bomb", "control", "marker", "open"],
)
@pytest.mark.parametrize("options", [[], ["--print-data-log"], ["--cluster-metadata-decoder"]])
def test_whatever_is_wrong_inside_is_a_finding(
    log: Path, capfd: pytest.CaptureFixture[str], broken: bytes, options: list[str]
) -> None:
    log.write_bytes(at(0, b"first") + broken + at(2, b"last"))
    assert kafka_dump_log(["--files", str(log), *options]) == Exit.CONDITION
    told = capfd.readouterr()
    assert "the records of the batch at offset 1 cannot be read: " in told.err
    assert "baseOffset: 2 " in told.out


@pytest.mark.parametrize("options", KAFKA_PRINTS[1:9], ids=" ".join)
def test_no_payload_ends_the_dump(
    log: Path, capfd: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """The payloads are random bytes or random records, with every codec and attribute."""
    chance: random.Random = seeded("dump unopened")
    for _ in range(40):
        attributes = chance.choice((0, 0x08, CONTROL, TRANSACTIONAL, CONTROL | TRANSACTIONAL))
        codec = chance.randrange(8)
        payload = chance.randbytes(chance.randrange(40))
        if chance.random() < 0.6:
            key = chance.choice((b"", b"\0\x01", b"\0\0")) + chance.randbytes(chance.randrange(9))
            value = chance.choice((None, chance.randbytes(chance.randrange(20))))
            codec = chance.randrange(5)
            record = build_batch([NewRecord(key, value, 0)])
            payload = bytes(compress(codec, bytes(record[HEADER_BYTES:])))
        broken = unopened(payload, codec, attributes=attributes, producer_id=7)
        log.write_bytes(at(0, b"first") + broken + at(2, b"last"))
        assert kafka_dump_log(["--files", str(log), *options]) in (Exit.OK, Exit.CONDITION)
        assert "baseOffset: 2 " in capfd.readouterr().out
