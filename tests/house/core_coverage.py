"""Measure which branches of the pure cores the unit tests take: `make coverage`.

`python -m tests.house.core_coverage TESTS…` runs the tests under coverage.py and prints one row for
each file with branches that `tests/house/cores.py` lists. The file with the smallest share of taken
branches comes first. Arguments are passed on to pytest. The exit code is pytest's.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.house import tree
from tests.house.cores import is_pure

RUN_CONFIG = """\
[run]
branch = true
parallel = true
data_file = {folder}/coverage
patch = subprocess, _exit
disable_warnings = no-data-collected
include =
{files}
"""
"""The settings for coverage.py. The patches make it measure xdist's workers and processes that
tests start. Then the main process runs no test itself, so the warning that it has no data is
disabled."""

PYTEST = ("-m", "pytest", "-m", "not slow and not live", "-n", "2")


def core_files() -> list[str]:
    """Return the path of every pure core from the root of the tree."""
    return sorted(module.path for module in tree.modules() if is_pure(module))


def rows(report: Mapping[str, Any]) -> list[tuple[str, int, int, int, int]]:
    """Return path, branches taken, branches, lines run and lines of each file of a JSON report.

    The file with the smallest share of taken branches comes first.
    """
    found = []
    for path, file in report["files"].items():
        summary = file["summary"]
        found.append(
            (
                str(path),
                int(summary["covered_branches"]),
                int(summary["num_branches"]),
                int(summary["covered_lines"]),
                int(summary["num_statements"]),
            )
        )
    return sorted(found, key=lambda row: (row[1] / row[2] if row[2] else 1.0, row[0]))


def table(found: Iterable[tuple[str, int, int, int, int]]) -> list[str]:
    """Return the lines of the printed table: files with branches, then the sum of all files."""
    lines = [f"{'pure core':<48}{'branches':>16}{'':>8}{'lines':>16}"]
    sums = [0, 0, 0, 0]
    for path, *counts in found:
        if counts[1]:
            lines.append(_line(path, counts))
        sums = [one + other for one, other in zip(sums, counts, strict=True)]
    return [*lines, _line("all cores", sums)]


def _line(name: str, counts: list[int]) -> str:
    taken, branches, run, statements = counts
    share = f"{100 * taken / branches:.1f} %" if branches else "-"
    return f"{name:<48}{f'{taken} of {branches}':>16}{share:>8}{f'{run} of {statements}':>16}"


def measure(arguments: list[str], folder: Path) -> tuple[int, dict[str, Any]]:
    """Run pytest under coverage. Return its exit code and coverage's report of the cores."""
    files = core_files()
    config = folder / "coveragerc"
    absolute = "\n".join(f"    {tree.ROOT / name}" for name in files)
    config.write_text(RUN_CONFIG.format(folder=folder, files=absolute))
    # A process that a test starts in another folder must find the settings too.
    environ = {**os.environ, "COVERAGE_RCFILE": str(config)}
    coverage = [sys.executable, "-m", "coverage"]
    tested = subprocess.run([*coverage, "run", *PYTEST, *arguments], env=environ, check=False)
    subprocess.run([*coverage, "combine", "--quiet"], env=environ, check=True)
    report = folder / "report.json"
    subprocess.run(
        [*coverage, "json", "--quiet", "-o", str(report), *files], env=environ, check=True
    )
    return tested.returncode, json.loads(report.read_text())


def main() -> int:
    """Measure, print the table and return pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="millrace-coverage-") as folder:
        code, report = measure(sys.argv[1:] or ["tests/unit"], Path(folder))
    print("\n".join(table(rows(report))))
    return code


if __name__ == "__main__":
    sys.exit(main())
