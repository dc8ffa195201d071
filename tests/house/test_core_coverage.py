"""The table that `make coverage` prints."""

from tests.house import core_coverage, tree


def summary(taken: int, branches: int) -> dict[str, dict[str, int]]:
    counts = {"covered_branches": taken, "num_branches": branches}
    return {"summary": {**counts, "covered_lines": 3, "num_statements": 4}}


def test_the_core_with_the_fewest_branches_taken_comes_first() -> None:
    files = {
        "broker/a.py": summary(9, 10),
        "broker/b.py": summary(0, 0),
        "broker/c.py": summary(1, 2),
        "broker/d.py": summary(0, 4),
    }
    lines = core_coverage.table(core_coverage.rows({"files": files}))
    assert [line.split()[0] for line in lines] == [
        "pure",
        "broker/d.py",
        "broker/c.py",
        "broker/a.py",
        "all",
    ]
    assert lines[-1].split()[2:] == ["10", "of", "16", "62.5", "%", "12", "of", "16"]


def test_the_cores_are_measured_by_their_files() -> None:
    """A folder in the list of cores stands for all files in it."""
    files = core_coverage.core_files()
    assert "broker/quorum/leader.py" in files
    assert "broker/real/listening.py" not in files
    assert [name for name in files if not (tree.ROOT / name).is_file()] == []
