"""`millrace broker move` before it asks the cluster."""

from pathlib import Path

import pytest

from appliance.cli import broker_move, context
from appliance.machine.files import locked
from appliance.mill.moved_folder import wanted_move
from appliance.mill.settings import Mill
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit
from tests.unit.appliance.test_commands import run
from tests.unit.appliance.test_three_brokers import mill

THREE = "cluster: {brokers: 3}"


def folder_of(home: Path) -> Path:
    link = home / "data" / "broker-3"
    link.mkdir(parents=True)
    (link / "meta.properties").write_text("node.id=3\n")
    return link


def test_a_mill_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(tmp_path)
    code, _, err = run(monkeypatch, tmp_path, "broker", "move", "3", "--yes")
    assert code == Exit.CONDITION
    assert "the mill does not run: `./millrace up` first" in err[-1]


def test_an_interrupted_move_of_a_folder_is_completed_without_the_mill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise neither `up` nor this command could continue."""
    link = folder_of(tmp_path)
    move = wanted_move(link, tmp_path / "three", 0)
    assert move is not None
    move.carry_out()
    link.unlink()
    planned = run(monkeypatch, tmp_path, "broker", "move", "3", "--dry-run")
    assert planned == (0, [], [f"would move {link} to {tmp_path / 'three'}", "nothing was changed"])
    assert not link.exists()
    code, _, err = run(monkeypatch, tmp_path, "broker", "move", "3", "--yes")
    assert code == 0, err
    assert err == [
        f"the folder is at {tmp_path / 'three'}; run `./millrace up`, and then the same command"
        " again to continue the move"
    ]
    assert (link / "meta.properties").read_text() == "node.id=3\n"
    other = run(monkeypatch, tmp_path, "broker", "move", "3", "--folder", str(tmp_path / "four"))
    assert other[0] == Exit.CONDITION
    assert "was interrupted: run the command with that folder" in other[2][-1]


def test_a_second_move_is_refused_while_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could delete the copy of the first one, or stop a second broker."""
    link = folder_of(tmp_path)
    home = mill(tmp_path, THREE).home
    home.run.mkdir()
    move = wanted_move(link, tmp_path / "three", 0)
    assert move is not None
    move.carry_out()
    link.unlink()
    with locked(home.run / broker_move.LOCK_FILE) as is_alone:
        assert is_alone
        code, _, err = run(monkeypatch, tmp_path, "broker", "move", "2", "--yes")
        assert code == Exit.CONDITION
        assert "another `broker move` of this mill is running" in err[-1]
    assert run(monkeypatch, tmp_path, "broker", "move", "3", "--yes")[0] == Exit.OK


def test_containers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    code, _, err = run(monkeypatch, tmp_path, "broker", "move", "3", "--yes")
    assert code == Exit.CONDITION
    assert "without containers" in err[-1]


def changed(tmp_path: Path, text: str) -> tuple[Mill, Mill]:
    return mill(tmp_path, THREE), mill(tmp_path, text)


def test_other_changes_of_the_file_come_first(tmp_path: Path) -> None:
    started, wanted = changed(tmp_path, f"{THREE}\nports: {{places: {{3: 13}}}}")
    broker_move._refuse_other_changes(3, started, wanted)
    for text, expected in (
        ("ports: {places: {3: 13, 2: 14}}", "other ports for broker 2 too: brokers move one at a"),
        ("ports: {places: {3: 13}, redis: 6999}", "other changes besides `ports.places`"),
        ("ports: {places: {3: 13}}\nmonitor: {retain: 5d}", "other changes besides"),
    ):
        started, wanted = changed(tmp_path, f"{THREE}\n{text}")
        with pytest.raises(CommandError) as refused:
            broker_move._refuse_other_changes(3, started, wanted)
        assert expected in str(refused.value)
        assert refused.value.code is Exit.CONDITION


def test_a_move_of_the_folder_alone_ignores_changes_that_wait(tmp_path: Path) -> None:
    started, wanted = changed(tmp_path, f"{THREE}\nmonitor: {{retain: 5d}}")
    broker_move._refuse_other_changes(3, started, wanted)


def test_other_ports_of_the_file_are_not_the_address_of_a_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the command waited for ever until the voters' record has an address that no broker
    has before `up --apply`."""
    started, wanted = changed(tmp_path, f"{THREE}\nports: {{broker: 39091}}")
    folder_of(tmp_path)
    monkeypatch.setattr(context, "home", lambda: started.home)
    monkeypatch.setattr(context, "mill_as_it_runs", lambda: started)
    monkeypatch.setattr(context, "load_mill", lambda: (wanted, None))
    parts = [{"part": "broker-3", "state": "healthy"}]
    monkeypatch.setattr(lifecycle, "snapshot", lambda home: {"parts": parts})
    here = broker_move._look_here(3, tmp_path / "three", None)
    assert here.place.address == "127.0.0.1:29094"
    assert here.place.runs and not here.place.has_new_ports
    moved = mill(tmp_path, f"{THREE}\nports: {{places: {{3: 13}}}}")
    monkeypatch.setattr(context, "load_mill", lambda: (moved, None))
    assert broker_move._look_here(3, None, None).place.address == "127.0.0.1:29104"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cluster: {brokers: [1, 2, 4]}", "this mill has no broker 3; it has 1, 2, 4"),
        ("cluster: {brokers: 1}", "this mill has no broker 3; it has 1"),
        (
            "cluster: {bootstrap_servers: 'kafka.example.org:9092'}",
            "this mill has no broker 3; it has none, because it uses another cluster",
        ),
    ],
)
def test_a_broker_that_the_mill_does_not_have(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(CommandError) as refused:
        broker_move._refuse_without_others(3, mill(tmp_path, text), tmp_path)
    assert str(refused.value) == expected
    assert refused.value.code is Exit.NOT_FOUND


def test_the_only_broker_moves_while_the_mill_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="this mill has one broker, so no other one works"):
        broker_move._refuse_without_others(1, mill(tmp_path, "cluster: {brokers: 1}"), tmp_path)
