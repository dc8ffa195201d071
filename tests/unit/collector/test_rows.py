"""Each row of the decision table is needed (decision 0007).

The test removes a row, so that the collector never gets its verdict. Rows with the same verdict are
told apart by other fields. With the row the scenario passes, as its own test shows. Without the row
it must fail.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from collector.identity.recognition import Recognition
from collector.identity.round import Round
from collector.identity.sightings import Verdict
from tests.unit.collector import test_rotations as rotations
from tests.unit.collector import test_scenarios as files
from tests.unit.collector import test_scenarios_copies as copies
from tests.unit.collector.identity import test_decide as table
from tests.unit.collector.world import World

Judged = dict[str, object]
Row = Callable[[Verdict, Judged], bool]
"""True for the decisions that this row of the table makes."""
Scenario = Callable[[World], None]


def moved(world: World) -> None:
    """Row 16: the file was moved to another inode, for example on another file system."""
    world.write(20, "a")
    world.look()
    world.down()
    copies.copy(world, "a", "b")
    world.path("a").unlink()
    world.write(5, "b")
    world.up()
    world.look()
    world.expect(25, moved=1, lost_possible=0)


def of(verdict: Verdict) -> Row:
    return lambda given, _: given is verdict


ROWS: dict[str, tuple[Row, Scenario]] = {
    "1": (
        of(Verdict.INODE_REUSED),
        lambda _: table.test_another_birth_is_another_file_whatever_it_holds(),
    ),
    "2": (of(Verdict.UNCHANGED), lambda _: table.test_a_known_stamp_needs_no_probe()),
    "3": (of(Verdict.GROWN), files.test_04_an_empty_file_is_read_from_its_first_line),
    "4": (of(Verdict.RENAMED), files.test_07_a_rename_is_followed),
    "5": (of(Verdict.LINKED), files.test_32_links_are_names_of_one_file),
    "6": (of(Verdict.DELETED), files.test_30_a_deleted_file_is_drained),
    "7": (of(Verdict.MOVED_OUT), files.test_09_a_file_moved_away_is_read_to_its_end),
    "8a": (
        lambda given, more: given is Verdict.COPYTRUNCATED and "copy" not in more,
        copies.test_15_the_rest_is_read_from_the_copy,
    ),
    "8b": (
        lambda given, more: given is Verdict.COPYTRUNCATED and "copy" in more,
        copies.test_18_a_copy_older_than_the_position_is_done,
    ),
    "9": (of(Verdict.SHRUNK), copies.test_25_a_tail_lost_in_a_power_cut_is_not_read_again),
    "10": (of(Verdict.TRUNCATED), files.test_21_truncation_begins_a_new_generation),
    "11": (of(Verdict.REWRITTEN), files.test_22_truncated_and_regrown_past_the_position),
    "12": (of(Verdict.NEW), lambda _: table.test_rotation_with_a_new_file_at_the_old_name()),
    "13": (of(Verdict.RENUMBERED), files.test_34_another_device_number_is_the_same_file),
    "14": (
        of(Verdict.REPLACED_SAME_HEAD),
        copies.test_26_a_file_replaced_by_a_longer_copy_of_itself_goes_on,
    ),
    "15": (of(Verdict.REPLACED), files.test_27_a_file_replaced_by_rename_is_another_file),
    "16": (of(Verdict.MOVED), moved),
    "17": (
        of(Verdict.COPY_HELD),
        copies.test_17_a_copy_that_takes_its_time_waits_beside_its_original,
    ),
    "18": (
        of(Verdict.COPY_DONE),
        copies.test_a_file_deleted_after_it_was_copied_is_not_counted_twice,
    ),
    "20": (of(Verdict.NEW), files.test_01_lines_are_sent_once),
    "21": (of(Verdict.GONE_WHILE_DOWN), files.test_10_a_file_moved_away_while_down_is_gone),
}


def test_the_scenario_of_a_moved_file(tmp_path: Path) -> None:
    moved(World(tmp_path))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_that_is_taken_out_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    is_taken_out, scenario = ROWS[row]
    add = Round.add
    missed = 0

    def without(session: Round, verdict: Verdict, *rest: object, **more: object) -> None:
        nonlocal missed
        if is_taken_out(verdict, more):
            missed += 1
        else:
            add(session, verdict, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Round, "add", without)
    with pytest.raises(AssertionError):
        scenario(World(tmp_path))
    assert missed


@pytest.mark.parametrize(
    ("part", "scenario"),
    [
        ("_join", copies.test_35_the_compressed_copy_of_a_rotated_file_is_done),
        ("_join", copies.test_36_compressed_while_down_it_is_read_from_the_position_on),
        (
            "_note_older",
            lambda world: rotations.test_36e_a_compressed_copy_that_is_older_is_done(world, "look"),
        ),
    ],
)
def test_row_19_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, scenario: Scenario
) -> None:
    monkeypatch.setattr(Recognition, part, lambda *_: None)
    with pytest.raises(AssertionError):
        scenario(World(tmp_path))
