"""Spark's checkpoint on disk: which offsets a batch has, and every way in which it can be
incomplete."""

import json
from pathlib import Path

import pytest

from sinks.rows import OffsetRange
from stream.source.checkpoint import (
    EARLIEST,
    CheckpointFault,
    CheckpointFolder,
    forgotten_by,
    starting_offsets,
)

QUERY = "11111111-2222-3333-4444-555555555555"
TOPICS = ["logs.a"]


def write_batch(folder: Path, batch_id: int, ends: dict[str, dict[str, int]]) -> None:
    text = f"v1\n{json.dumps({'batchWatermarkMs': 0, 'conf': {}})}\n{json.dumps(ends)}"
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / str(batch_id)).write_text(text)
    (folder / "offsets" / f".{batch_id}.crc").write_text("crc")


def commit(folder: Path, batch_id: int) -> None:
    (folder / "commits").mkdir(exist_ok=True)
    (folder / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def made(tmp_path: Path, planned: range, done: range) -> CheckpointFolder:
    """Write a checkpoint. Batch N ends at offset 10 * (N + 1) in partition 0 and at 5 in partition
    1."""
    checkpoint = CheckpointFolder(tmp_path / "checkpoint")
    checkpoint.begin(QUERY)
    initial = checkpoint.folder / "sources" / "0"
    initial.mkdir(parents=True)
    (initial / "0").write_text('\0v1\n{"logs.a":{"0":3,"1":5}}')
    for batch_id in planned:
        write_batch(checkpoint.folder, batch_id, {"logs.a": {"0": 10 * (batch_id + 1), "1": 5}})
    for batch_id in done:
        commit(checkpoint.folder, batch_id)
    return checkpoint


def test_there_may_be_none_yet(tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "checkpoint").resumption(TOPICS) is None


def test_a_new_one_holds_the_query_and_nothing_else(tmp_path: Path) -> None:
    checkpoint = made(tmp_path, range(0), range(0))
    begun = checkpoint.resumption(TOPICS)
    assert begun is not None
    assert (begun.query_id, begun.last_batch, begun.committed) == (QUERY, None, {})


@pytest.mark.parametrize(
    ("planned", "done", "committed"),
    [
        (range(1), range(0), {}),
        (range(1), range(1), {("logs.a", 0): 10, ("logs.a", 1): 5}),
        (range(5), range(4), {("logs.a", 0): 40, ("logs.a", 1): 5}),
        (range(7, 12), range(7, 12), {("logs.a", 0): 120, ("logs.a", 1): 5}),
    ],
)
def test_what_it_goes_on_from(
    tmp_path: Path, planned: range, done: range, committed: dict[tuple[str, int], int]
) -> None:
    begun = made(tmp_path, planned, done).resumption(TOPICS)
    assert begun is not None
    assert (begun.last_batch, begun.committed) == (planned[-1], committed)


def test_ranges_follow_one_another(tmp_path: Path) -> None:
    checkpoint = made(tmp_path, range(3), range(2))
    assert list(checkpoint.ranges(0).values()) == [
        OffsetRange("logs.a", 0, 3, 10),
        OffsetRange("logs.a", 1, 5, 5),
    ]
    assert list(checkpoint.ranges(2).values()) == [
        OffsetRange("logs.a", 0, 20, 30),
        OffsetRange("logs.a", 1, 5, 5),
    ]


def test_a_partition_that_appears_has_no_known_start(tmp_path: Path) -> None:
    checkpoint = made(tmp_path, range(1), range(1))
    write_batch(checkpoint.folder, 1, {"logs.a": {"0": 20, "1": 5, "2": 4}})
    assert checkpoint.ranges(1)["logs.a", 2] == OffsetRange("logs.a", 2, EARLIEST, 4)


def fault_of(checkpoint: CheckpointFolder, topics: list[str] = TOPICS) -> str:
    with pytest.raises(CheckpointFault) as caught:
        checkpoint.resumption(topics)
    return str(caught.value)


def test_holes_are_found(tmp_path: Path) -> None:
    checkpoint = made(tmp_path, range(5), range(5))
    (checkpoint.folder / "offsets" / "2").unlink()
    assert "offsets have no batch between 1 and 3" in fault_of(checkpoint)
    checkpoint = made(tmp_path, range(5), range(5))
    (checkpoint.folder / "commits" / "3").unlink()
    assert "commits have no batch between 2 and 4" in fault_of(checkpoint)


def test_logs_that_do_not_belong_together(tmp_path: Path) -> None:
    assert "batch 4 is planned, but batch 2 was" in fault_of(made(tmp_path, range(5), range(3)))
    assert "batch 1 is planned, but batch 3 was" in fault_of(made(tmp_path, range(2), range(4)))
    assert "commits but no offsets" in fault_of(made(tmp_path, range(0), range(2)))


def test_lost_and_torn_files(tmp_path: Path) -> None:
    checkpoint = made(tmp_path, range(3), range(2))
    (checkpoint.folder / "offsets" / "2").write_text("")
    assert "offsets/2 is incomplete" in fault_of(checkpoint)
    (checkpoint.folder / "offsets" / "2").write_text('v1\n{}\n{"logs.a":{"0"')
    assert "offsets/2 cannot be read" in fault_of(checkpoint)
    (checkpoint.folder / "metadata").write_text("{}")
    assert "metadata cannot be read" in fault_of(checkpoint)
    (checkpoint.folder / "metadata").unlink()
    assert "offsets but no metadata" in fault_of(checkpoint)


def test_the_beginning_must_be_known_for_the_first_batch(tmp_path: Path) -> None:
    checkpoint = made(tmp_path, range(1), range(0))
    (checkpoint.folder / "sources" / "0" / "0").unlink()
    assert "sources/0/0 cannot be read" in fault_of(checkpoint)


def test_another_set_of_topics(tmp_path: Path) -> None:
    checkpoint = made(tmp_path, range(3), range(3))
    assert "other topics" in fault_of(checkpoint, ["logs.a", "logs.b"])
    assert "other topics" in fault_of(checkpoint, ["logs.b"])


def test_a_fresh_start_leaves_no_file_behind(tmp_path: Path) -> None:
    checkpoint = made(tmp_path, range(3), range(3))
    checkpoint.begin("22222222-2222-3333-4444-555555555555")
    begun = checkpoint.resumption(TOPICS)
    assert begun is not None
    assert (begun.query_id[:8], begun.last_batch) == ("22222222", None)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_new_query_starts_at_the_ledger() -> None:
    ledger = {("logs.a", 0): 7, ("logs.gone", 0): 3}
    assert starting_offsets({"logs.b": 1, "logs.a": 2}, ledger) == {
        "logs.a": {"0": 7, "1": EARLIEST},
        "logs.b": {"0": EARLIEST},
    }


def test_a_wiped_ledger_is_noticed() -> None:
    committed = {("logs.a", 0): 10, ("logs.a", 1): 5}
    assert forgotten_by(committed, {("logs.a", 0): 10, ("logs.a", 1): 9}) is None
    assert "the ledger has nothing" in str(forgotten_by(committed, {("logs.a", 0): 10}))
    assert "up to 4" in str(forgotten_by(committed, {("logs.a", 0): 4, ("logs.a", 1): 5}))
