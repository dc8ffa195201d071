"""`status` and `doctor` show the changes of the cluster as the monitor sees them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.checks import changes as checks
from appliance.checks.startup import CheckLevel
from appliance.cli.status_changes import ask_changes, print_changes
from monitor.alerts.kinds import KINDS
from monitor.api.rows import changes_row
from monitor.state.snapshot import Snapshot
from monitor.views.changes import advice_of
from tests.unit.appliance.scripted_monitor import answering
from tests.unit.monitor.scene import CHANGING, FLOWING, THREE, Mill


@pytest.fixture(scope="module")
def changing() -> Snapshot:
    return Mill(CHANGING, None).run()


def row_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return the row as it arrives from the monitor."""
    return dict(json.loads(json.dumps(changes_row(snapshot))))


def test_brokers_moves_operations_and_advice_are_shown(
    changing: Snapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    print_changes(row_of(changing))
    out, err = capsys.readouterr()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:6] == [
        "BROKER STATE RACK QUORUM LEADS REPLICAS LEVEL VERSION NOTE",
        "1 up east leader 3 12 23 of 23 to 24 1.0.0-rc1",
        "2 up west voter, 0 behind 6 12 23 of 23 to 24 1.0.0-rc1",
        "3 up north voter, 0 behind 3 11 23 of 23 to 24 1.0.0-rc1"
        " leaves: 11 of 11 partitions are left on it, 3.0 GiB",
        "4 up north observer, 40 behind 0 3 23 of 23 to 24 1.0.0-rc1"
        " copies 2 replicas; 1 of them in the queue",
        "5 down south - 0 1 - -",
    ]
    assert lines[6:] == [
        "PARTITION REPLICAS TO_COPY RATE TIME_LEFT_OR_REASON",
        "logs.json-0 +5 -3 - - waits for broker 5, away since 21:48:28",
        "logs.access-0 +4 -3 572 MiB 4 MiB/s about 2 min 30 s left",
        "logs.access-1 +4 -3 2.8 GiB - waits in the queue of broker 4",
    ]
    assert "under way: 3 partitions move, 1 waits in a queue, 1 stands" in err
    assert "`./millrace broker remove 3 --abort` takes that back" in err
    assert "broker-2 restarts in its turn; waits for 2 partitions" in err
    assert "the move of logs.json-0 stands" in err
    assert err.count("upgrade finalize") == 1, "once is enough"


def test_a_long_list_of_moves_is_cut(
    changing: Snapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    move = changing.moves[0]
    many = replace(changing, moves=tuple(replace(move, partition=n) for n in range(4_000)))
    print_changes(row_of(many))
    out, err = capsys.readouterr()
    assert out.count("+4 -3") == 10
    assert "3990 more moves are under way; `./millrace reassign list` shows all" in err


def test_one_broker_at_rest_needs_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_changes(row_of(Mill(FLOWING, None).run(2)))
    print_changes(None)
    assert capsys.readouterr() == ("", "")
    print_changes(row_of(Mill(THREE, None).run(2)))
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (4, "")


def test_the_monitor_is_asked_only_if_it_is_well(tmp_path: Path, changing: Snapshot) -> None:
    asked: list[str] = []

    def answer(path: str) -> dict[str, Any]:
        asked.append(path)
        return {"data": [row_of(changing)]}

    with answering(tmp_path, answer):
        text = (tmp_path / "configs" / "millrace.yaml").read_text()
        address = text.split("'")[1]
        part = {"part": "monitor", "state": "healthy", "address": address}
        found = ask_changes([part])
        assert found is not None and found["voters"] == 3
        assert ask_changes([{**part, "state": "starting"}]) is None
        assert ask_changes([]) is None
    assert asked == ["/api/v1/changes"]
    assert ask_changes([part]) is None, "it has ended"


def test_a_monitor_of_an_earlier_version_is_no_fault(tmp_path: Path) -> None:
    with answering(tmp_path, lambda path: {"detail": "Not Found"}):
        text = (tmp_path / "configs" / "millrace.yaml").read_text()
        part = {"part": "monitor", "state": "healthy", "address": text.split("'")[1]}
        assert ask_changes([part]) is None


def test_doctor_has_each_advice_with_its_remedy(changing: Snapshot) -> None:
    found = {one.what: one for one in checks.advice([row_of(changing)])}
    assert found["moves of replicas"].level is CheckLevel.WARNING
    assert found["moves of replicas"].remedy.endswith("./millrace reassign cancel")
    assert found["brokers"].remedy == "start it, or ./millrace broker remove 5"
    assert found["upgrade"].level is CheckLevel.OK, "the way back stays open as long as you like"
    assert "./millrace upgrade finalize" in found["upgrade"].remedy
    assert all(one.code in checks.NAMES for one in advice_of(changing))
    assert {str(kind) for kind in KINDS if "stands" in kind or "voters" in kind} <= set(
        checks.NAMES
    )
