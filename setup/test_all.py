"""Run the long form of the tests: every part, slow tests included, and record when each ran.

`make test-all` runs all parts, and `make test-all PARTS="crash e2e"` runs two of them. A part is a
folder under `tests/`. A test is skipped, with a reason, if its server, client or privilege is
missing. A part has passed only if a test ran and the reason of each skipped test begins with one of
the `ALLOWED_SKIPS`. The results are in `.cache/test-all.json`, which is updated after each part, so
an interrupted run loses nothing.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / ".cache" / "test-all.json"

ALLOWED_SKIPS = (
    # Some of these tests need root and others need a plain user, so no run includes all of them.
    "root reads everything",
    "only root can give files away",
    # Spark's older jar defines fewer Kafka requests. The tests of the newer jar cover the others.
    "kafka-clients-3.9.2.jar have no ",
    # kafka-python has no snappy codec here. The tests with Kafka's own clients cover snappy.
    "kafka-python has no snappy library here",
)
"""The beginnings of the reasons for which a test may be skipped even if everything is installed."""

# pytest's exit codes: everything passed, and no test was collected.
PASSED_CODES = {0: "passed", 5: "no tests"}


@dataclass(frozen=True)
class Run:
    """The result of the last run of one part."""

    ended_at: str
    outcome: str
    seconds: float
    commit: str
    passed: int = 0
    skipped: int = 0


def parts() -> list[str]:
    """Return the folders under `tests/` with tests, the quick ones first."""
    found = {path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/**/test_*.py")}
    names = {folder.parts[0] for folder in found if folder.parts}
    order = {name: rank for rank, name in enumerate(["house", "unit", "interop", "e2e", "crash"])}
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


def read_record(path: Path = RECORD) -> dict[str, Run]:
    """Read the last run of every part. Return nothing if the record is missing or unreadable."""
    try:
        return {name: Run(**run) for name, run in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError):
        return {}


def write_record(record: dict[str, Run], path: Path = RECORD) -> None:
    """Write the results of all parts, and replace the earlier file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({name: asdict(run) for name, run in record.items()}, indent=1))
    partial.replace(path)


def table(record: dict[str, Run], names: list[str]) -> str:
    """Return a table with the time and the result of the last run of each part."""
    lines = [
        f"{'part':<12}{'last run':<22}{'outcome':<12}"
        f"{'passed':>8}{'skipped':>9}{'seconds':>9}  commit"
    ]
    for name in names:
        run = record.get(name)
        if run is None:
            lines.append(f"{name:<12}{'never':<22}{'-':<12}{'-':>8}{'-':>9}{'-':>9}  -")
        else:
            lines.append(
                f"{name:<12}{run.ended_at:<22}{run.outcome:<12}{run.passed:>8}{run.skipped:>9}"
                f"{run.seconds:>9.0f}  {run.commit}"
            )
    return "\n".join(lines)


def run_part(name: str) -> Run:
    """Run all tests of one folder. Their output goes directly to the terminal."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", f"tests/{name}", "--timeout", "7200", "-rs",
                   f"--junit-xml={report}"]  # fmt: skip
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        passed, skipped = _counts(report)
        missing = _missing(report)
    outcome = PASSED_CODES.get(code, "failed")
    if outcome == "passed" and (missing or not passed):
        outcome = "incomplete" if passed else "skipped"
    for reason in missing:
        sys.stdout.write(f"not run in {name}: {reason}\n")
    return Run(
        ended_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        outcome=outcome,
        seconds=round(time.monotonic() - started, 1),
        commit=_commit(),
        passed=passed,
        skipped=skipped,
    )


def _counts(report: Path) -> tuple[int, int]:
    """Return how many tests passed and were skipped; 0 and 0 if pytest was interrupted."""
    try:
        suite = ElementTree.parse(report).getroot().find("testsuite")
    except (OSError, ElementTree.ParseError):
        return 0, 0
    if suite is None:
        return 0, 0
    tests, skipped, failures, errors = (
        int(suite.get(name, "0")) for name in ("tests", "skipped", "failures", "errors")
    )
    return tests - skipped - failures - errors, skipped


def _missing(report: Path) -> list[str]:
    """Return the reasons of all skipped tests, except the reasons in `ALLOWED_SKIPS`."""
    try:
        found = ElementTree.parse(report).iter("skipped")
    except (OSError, ElementTree.ParseError):
        return []
    # Tests that are expected to fail are listed here too, with another type.
    skips = [one for one in found if one.get("type") == "pytest.skip"]
    texts = [(one.get("message", ""), one.text or "") for one in skips]
    # If a module skips itself, the text holds the reason as the end of a tuple.
    reasons = {text.rpartition("Skipped: ")[2].rstrip("')") if "Skipped: " in text
               else message for message, text in texts}  # fmt: skip
    return sorted(one for one in reasons if not one.startswith(ALLOWED_SKIPS))


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout.strip() or "-"


def main(chosen: list[str]) -> int:
    """Run the chosen parts, or all parts if none is named. Return 1 unless all have passed."""
    known = parts()
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        sys.stderr.write(
            f"no such part: {', '.join(unknown)}; expected some of: {', '.join(known)}\n"
        )
        return 2
    not_passed: list[str] = []
    for name in chosen or known:
        sys.stdout.write(f"== {name}\n")
        sys.stdout.flush()
        run = run_part(name)
        if run.outcome != "passed":
            not_passed.append(f"{name} ({run.outcome})")
        # Read the record again, because another terminal can have changed it in the meantime.
        write_record(read_record() | {name: run})
    sys.stdout.write(table(read_record(), known) + "\n")
    if not_passed:
        sys.stdout.write(f"not passed: {', '.join(not_passed)}\n")
    return 1 if not_passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
