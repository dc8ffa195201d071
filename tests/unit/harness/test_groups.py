"""Tests that share a server run in one worker process of xdist."""

import subprocess
import sys
from pathlib import Path

from tests.harness import ROOT
from tests.harness.groups import AT_WORK, group_of

CONFTEST = """
from tests.conftest import pytest_xdist_make_scheduler
"""
NOTES = """
import os
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range(20))
def test_process(number: int) -> None:
    with Path({path!r}).open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def test_groups_are_modules_and_those_that_share_a_mill_or_a_session_of_spark() -> None:
    module = "tests/unit/test_x.py"
    assert group_of(f"{module}::test_a[a::b]") == group_of(f"{module}::test_c") == module
    assert len({group_of(f"{one}::test_a") for one in AT_WORK}) == 1
    stream = {group_of(f"tests/interop/test_stream_{one}.py::test_a") for one in ("fold", "tasks")}
    assert len(stream) == 1
    assert all((ROOT / path).exists() for path in AT_WORK)
    modules = (ROOT / "tests/e2e").glob("test_*.py")
    uses = {str(one.relative_to(ROOT)) for one in modules if "mill_at_work" in one.read_text()}
    assert uses == AT_WORK


def test_a_module_runs_in_one_process_of_two(tmp_path: Path) -> None:
    """The test runs xdist, because xdist's own grouping has no effect since pytest 9.2."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    notes = [tmp_path / f"{name}.txt" for name in ("a", "b")]
    for path in notes:
        text = NOTES.format(path=str(path))
        (tmp_path / f"test_{path.stem}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workers = [path.read_text().split() for path in notes]
    assert [len(names) for names in workers] == [20, 20]
    assert [len(set(names)) for names in workers] == [1, 1]
    assert workers[0][0] != workers[1][0]
