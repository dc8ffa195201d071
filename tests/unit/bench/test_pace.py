import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench.lines import LineSource, write_lines
from bench.machine import Watch, cpu_s, description, pss_mib, tree, trees_cpu_s
from bench.pace import latencies

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_line_waits_until_the_count_has_reached_it() -> None:
    written = [(10.0, 101), (11.0, 103), (12.0, 104)]
    counts, times = [100, 102, 103, 110], [9.0, 10.5, 11.25, 14.0]
    assert list(latencies(written, 100, counts, times)) == [0.5, 0.25, 0.25, 2.0]


def test_logs_are_complete_lines_and_the_same_for_a_seed(tmp_path: Path) -> None:
    sizes = [write_lines(tmp_path / name, LineSource(3), 1_000, START) for name in ("a", "b")]
    texts = [(tmp_path / name).read_bytes() for name in ("a", "b")]
    assert texts[0] == texts[1]
    assert sizes == [len(text) for text in texts]
    assert texts[0].endswith(b"\n") and texts[0].count(b"\n") == 1_000
    assert b"[01/Jan/2026:00:00:09 +0000]" in texts[0].splitlines()[-1]


def test_the_machine_is_described() -> None:
    told = description()
    assert told["cores"] >= 1
    assert told["python"] == sys.version.split()[0]


def test_our_own_work_is_not_the_load_of_others() -> None:
    program = "import sys; sum(range(3_000_000)); print(1, flush=True); sys.stdin.read()"
    with (
        Watch() as watch,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child,
    ):
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        assert cpu_s(child.pid) > 0
        assert pss_mib(tree(child.pid)) > 1
        assert trees_cpu_s([child.pid]) >= cpu_s(child.pid)
        child.stdin.close()
    assert watch.seconds > 0
    assert 0 <= watch.other_load <= description()["cores"] + 0.5
    assert tree(child.pid) == []
    assert pss_mib([child.pid]) == 0
