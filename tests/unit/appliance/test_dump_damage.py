"""Damaged log files: the tool finds every damage, and reports no damage in undamaged files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.dump.folder import check_files, check_folder
from appliance.dump.indexes import TIME_ENTRY, time_entries
from broker.storage.disk import OsDisk
from broker.storage.log_manager import LogManager
from protocol.types import TopicPartition
from protocol.wire.records import Codec, iterate_batches
from tests.harness.seed import seeded
from tests.unit.storage.kit import DIRECTORY_ID, NOW, TOPIC_ID, append, batch, broker_config

TP = TopicPartition("dumped", 0)
TRANSACTIONAL = {5: True, 6: False, 7: False}
"""Producer id -> True if its transactions are committed, False if they are aborted."""

ENTRY_BYTES = {".index": 8, ".timeindex": 12}
FAST, LONG = 16, 600


def make_folder(home: Path) -> Path:
    """Return a partition of several segments with transactions, leader epochs and all its
    indexes."""
    chance = random.Random("dump damage")
    config = broker_config(
        {"log.segment.bytes": 6_000, "log.index.interval.bytes": 256}, log_dir=str(home / "data")
    )
    manager = LogManager(OsDisk(), config, DIRECTORY_ID)
    manager.open_all(NOW)
    log = manager.create(TP, TOPIC_ID, config.log_config(), NOW)
    sequences = dict.fromkeys((1, *TRANSACTIONAL), 0)
    for number in range(160):
        producer = chance.choice(list(sequences))
        count = chance.randint(1, 5)
        view = batch(
            *[b"%d" % number * chance.randint(1, 20) for _ in range(count)],
            timestamp_ms=NOW + number,
            producer=(producer, 0, sequences[producer]),
            is_transactional=producer in TRANSACTIONAL,
            codec=chance.choice(list(Codec)),
        )
        sequences[producer] += count
        append(log, view, number // 60, NOW + number)
        if chance.random() < 0.15:
            ended = chance.choice(list(TRANSACTIONAL))
            log.append_marker(ended, 0, TRANSACTIONAL[ended], 3, number // 60, NOW + number)
        log.write_staged(NOW + number)
        target = log.flush_target()
        if target is not None:
            target.perform()
            log.flushed(target)
            log.advance_high_watermark(log.recovery_point)
    manager.close_clean()
    return home / "data" / str(TP)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("whole"))


def of_kind(folder: Path, *suffixes: str) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix in suffixes)
    return [path for path in found if path.stat().st_size]


def test_the_folder_has_everything(whole: Path) -> None:
    assert len(of_kind(whole, ".log")) >= 4
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        assert len(of_kind(whole, suffix)) >= 2, suffix
    assert (whole / "leader-epoch-checkpoint").read_text().splitlines()[1] == "3"


def test_nothing_is_found_where_nothing_is_wrong(whole: Path) -> None:
    report = check_folder(whole)
    assert [str(one) for one in report.findings] == []
    assert report.batches >= 160
    assert check_files(of_kind(whole, ".log", ".index", ".timeindex", ".txnindex")).findings == []


def flipped(folder: Path, chance: random.Random) -> str:
    path = chance.choice(of_kind(folder, ".log", ".index", ".timeindex", ".txnindex", ".snapshot"))
    data = bytearray(path.read_bytes())
    place, bit = chance.randrange(len(data)), chance.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {path.name} flipped"


def torn(folder: Path, chance: random.Random) -> str:
    path = chance.choice(of_kind(folder, ".log", ".index", ".timeindex", ".txnindex", ".snapshot"))
    data = path.read_bytes()
    size = ENTRY_BYTES.get(path.suffix, 34)
    tail = bytes(chance.randrange(1, 256) for _ in range(chance.randrange(1, size)))
    path.write_bytes(data + tail)
    return f"{len(tail)} bytes behind the end of {path.name}"


def cut(folder: Path, chance: random.Random) -> str:
    """Truncate a file at a random byte. Truncate a sparse index only within an entry, because an
    index with fewer entries is valid."""
    path = chance.choice(of_kind(folder, ".log", ".index", ".timeindex", ".txnindex", ".snapshot"))
    data = path.read_bytes()
    size = ENTRY_BYTES.get(path.suffix, 0)
    lengths = [n for n in range(len(data)) if not size or n % size]
    length = chance.choice(lengths)
    path.write_bytes(data[:length])
    return f"{path.name} cut from {len(data)} to {length} bytes"


def swapped(folder: Path, chance: random.Random) -> str:
    """Exchange the contents of two files of the same kind, or the places of two batches in a
    log."""
    suffix = chance.choice((".log", ".index", ".timeindex", ".txnindex", ".snapshot", "batches"))
    if suffix == "batches":
        path = chance.choice(of_kind(folder, ".log")[:-1])
        batches = [bytes(data) for _, data in iterate_batches(path.read_bytes())]
        one, other = sorted(chance.sample(range(len(batches)), 2))
        batches[one], batches[other] = batches[other], batches[one]
        path.write_bytes(b"".join(batches))
        return f"batches {one} and {other} of {path.name} swapped"
    one_path, other_path = chance.sample(of_kind(folder, suffix), 2)
    one_data, other_data = one_path.read_bytes(), other_path.read_bytes()
    one_path.write_bytes(other_data)
    other_path.write_bytes(one_data)
    return f"{one_path.name} and {other_path.name} swapped"


KINDS: tuple[Callable[[Path, random.Random], str], ...] = (flipped, torn, cut, swapped)


def damage(whole: Path, folder: Path, count: int) -> None:
    chance = seeded("dump damage")
    for number in range(count):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole.parent, folder)
        said = KINDS[number % len(KINDS)](folder / whole.name, chance)
        assert check_folder(folder / whole.name).findings, said


def test_an_entry_that_names_the_second_batch_of_a_time_is_found(
    whole: Path, tmp_path: Path
) -> None:
    """A marker has the timestamp of the batch before it. If the time index named the marker, a
    search for that timestamp would miss the batch."""
    tried = 0
    for path in of_kind(whole, ".timeindex"):
        base = int(path.stem)
        log = path.with_suffix(".log").read_bytes()
        times = {one.last_offset - base: one.max_timestamp for one, _ in iterate_batches(log)}
        data = path.read_bytes()
        for place, (timestamp, relative) in enumerate(time_entries(data)):
            for other in (given for given, time in times.items() if time == timestamp):
                if other == relative:
                    continue
                tried += 1
                folder = tmp_path / f"{path.stem}-{place}-{other}"
                shutil.copytree(whole.parent, folder)
                changed = bytearray(data)
                TIME_ENTRY.pack_into(changed, place * TIME_ENTRY.size, timestamp, other)
                (folder / whole.name / path.name).write_bytes(changed)
                [finding] = check_folder(folder / whole.name).findings
                assert f"the log has this time from offset {base + relative} on" in str(finding)
    assert tried


def test_damage_is_found(whole: Path, tmp_path: Path) -> None:
    damage(whole, tmp_path / "copy", FAST)


@pytest.mark.slow
def test_every_one_of_many_damages_is_found(whole: Path, tmp_path: Path) -> None:
    damage(whole, tmp_path / "copy", LONG)
