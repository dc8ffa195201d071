"""Faults of the configuration that only the stream or Spark can find. All are reported, and no
part starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mill import SHIPPED, TempMill, temp_mill

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[TempMill]:
    with temp_mill(tmp_path / "mill") as made:
        yield made


def with_metrics(*metrics: str) -> tuple[str, int]:
    """Return the shipped file with these metrics added, and the line number of the first one."""
    head, mark, tail = SHIPPED.read_text().partition("    - {name: visitors,")
    added = "".join(f"    - {metric}\n" for metric in metrics)
    return f"{head}{added}{mark}{tail}", head.count("\n") + 1


def refused(mill: TempMill, text: str) -> list[str]:
    """Return the faults that `up` prints. Check that it exits with code 2 and starts nothing."""
    mill.write_config(text)
    result = mill.run("up")
    assert result.code == 2, result.err
    assert mill.run("status").code == 3
    assert not mill.home.pid_file.exists()
    assert not mill.home.secrets.exists()
    assert not list(mill.home.logs.glob("*.log"))
    return [line for line in result.err.splitlines() if "millrace.yaml:" in line]


def test_every_wrong_name_is_found_at_once(mill: TempMill) -> None:
    text, line = with_metrics(
        "{name: one, from: access, key: nosuch, measure: count}",
        "{name: two, from: nowhere, measure: count}",
        "{name: three, from: access, measure: median, value: bytes}",
        "{name: four, from: access, where: 'statuss = 200', measure: count}",
        "{name: five, from: access, measure: sum}",
        "{name: six, from: access, measure: count, windows: [7s], colour: red}",
    )
    faults = refused(mill, text)
    for offset, words in enumerate(("nosuch", "nowhere", "median", "statuss", "value", "7s")):
        found = [fault for fault in faults if f"millrace.yaml:{line + offset}:" in fault]
        assert any(words in fault for fault in found), (words, faults)
        assert all("found" in fault and "expected" in fault for fault in found)
    assert any("colour" in fault for fault in faults)


def test_bad_sql_is_found_where_it_stands(mill: TempMill) -> None:
    text, line = with_metrics(
        "{name: one, from: access, where: 'status >', measure: count}",
        "{name: two, from: access, measure: sum, value: 'substring(path)'}",
        "{name: three, from: access, where: 'status = 200', measure: count}",
    )
    faults = refused(mill, text)
    assert len(faults) == 2, faults
    column = len("    - {name: one, from: access, where: ") + 1
    assert f"millrace.yaml:{line}:{column}: " in faults[0]
    assert "where" in faults[0]
    assert f"millrace.yaml:{line + 1}:" in faults[1]
    assert "substring" in faults[1]
