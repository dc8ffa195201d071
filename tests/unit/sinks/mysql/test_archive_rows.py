"""From which offsets on the archive and the topics must be recounted."""

from sinks.mysql.archive_rows import floors, summary_of

A, B, C = ("t", 0), ("t", 1), ("t", 2)


def test_the_archive_is_asked_only_where_all_of_the_topic_is_wanted() -> None:
    held = {A: 100, B: 100, C: 100}
    by_time = {A: 100, B: 140, C: 100}
    archived = {A: 60, B: 90}
    assert floors(by_time, held, archived) == {A: 60, B: 140, C: 100}


def test_an_archive_that_begins_later_than_the_topic_changes_nothing() -> None:
    assert floors({A: 100}, {A: 100}, {A: 120}) == {A: 100}


def test_what_rows_say_in_short() -> None:
    rows = [(0, 0, 10, 5), (0, 10, 30, 6), (1, 0, 7, -1)]
    assert summary_of(rows) == {0: (2, 30), 1: (1, 7)}
    assert summary_of([]) == {}
