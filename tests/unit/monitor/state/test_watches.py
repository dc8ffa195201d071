"""Findings that need several readings: files without progress, and the share of unparsed lines."""

from monitor.state.watches import SHARE_LINES_MIN, STILL_MS_MIN, FileMemory, ShareMemory

MIB = 1 << 20


def row(path: str, position: int, lag: int, error: str | None = None) -> dict[str, object]:
    return {"path": path, "position": position, "lag_bytes": lag, "error": error}


def test_a_file_stands_still_when_it_holds_more_and_its_position_does_not_move() -> None:
    memory = FileMemory()
    assert memory.still([row("a", 10, 2 * MIB)], 0) == ()
    assert memory.still([row("a", 10, 2 * MIB)], STILL_MS_MIN - 1) == ()
    (found,) = memory.still([row("a", 10, 3 * MIB)], STILL_MS_MIN)
    assert (found.path, found.since_ms, found.is_unended) == ("a", 0, False)
    assert memory.still([row("a", 11, 3 * MIB)], STILL_MS_MIN + 1) == (), "it moves again"


def test_a_little_at_the_end_may_be_a_line_without_an_end() -> None:
    memory = FileMemory()
    memory.still([row("a", 10, 96)], 0)
    (found,) = memory.still([row("a", 10, 96)], STILL_MS_MIN)
    assert found.is_unended
    assert found.text() == "its last 96 bytes have no line end"


def test_bytes_that_the_collector_has_not_looked_at_are_no_open_line() -> None:
    memory = FileMemory()
    for unread_bytes, is_unended in ((0, True), (40, False)):
        rows = [row("a", 10, 96) | {"unread_bytes": unread_bytes}]
        memory.still(rows, 0)
        (found,) = memory.still(rows, STILL_MS_MIN)
        assert found.is_unended is is_unended
    assert found.text() == "96 bytes wait in it and none is read"


def test_a_file_at_its_end_never_stands_still_but_one_with_a_fault_does() -> None:
    memory = FileMemory()
    rows = [row("well", 10, 0), row("ill", 0, 0, "Permission denied")]
    memory.still(rows, 0)
    (found,) = memory.still(rows, STILL_MS_MIN)
    assert (found.path, found.text(), found.is_unended) == ("ill", "Permission denied", False)


def test_a_file_that_was_away_starts_again() -> None:
    memory = FileMemory()
    memory.still([row("a", 10, 2 * MIB)], 0)
    memory.still([], 1_000)
    assert memory.still([row("a", 10, 2 * MIB)], STILL_MS_MIN) == ()


def test_the_share_is_that_of_the_last_ten_minutes() -> None:
    memory = ShareMemory()
    assert memory.share(1_000, 500, 0) is None, "what came before was not seen"
    assert memory.share(2_000, 600, 10_000) == 0.1
    for step in range(2, 62):
        last = memory.share(2_000 + step * 100, 600, step * 10_000)
    assert last == 0.0, "the bad lines are more than ten minutes old"


def test_no_share_is_told_of_few_lines_or_of_numbers_that_are_missing() -> None:
    memory = ShareMemory()
    memory.share(0, 0, 0)
    assert memory.share(SHARE_LINES_MIN - 1, 5, 10_000) is None
    assert memory.share(SHARE_LINES_MIN, 5, 20_000) == 0.05
    assert memory.share(None, 5, 30_000) is None
    assert memory.share(400, None, 40_000) is None


def test_a_part_that_restarts_begins_the_ten_minutes_again() -> None:
    memory = ShareMemory()
    memory.share(50_000, 0, 0)
    assert memory.share(0, 40, 10_000) is None
    assert memory.share(1_000, 40, 20_000) == 0.0


def test_a_share_is_never_above_one() -> None:
    memory = ShareMemory()
    memory.share(0, 0, 0)
    assert memory.share(200, 900, 10_000) == 1.0
