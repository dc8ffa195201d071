"""`ports.places`: brokers with other ports than those of their ids."""

from pathlib import Path

import pytest

from appliance.checks import startup
from appliance.checks.startup import CheckLevel
from appliance.cli.leaving import moving_brokers, refuse_moving_brokers
from appliance.cli.summary import summary
from appliance.config.faults import ConfigFaults
from appliance.config.load import load_text
from appliance.mill.moved_folder import wanted_move
from appliance.mill.parts import bootstrap_servers, status_ports
from appliance.output import CommandError
from appliance.supervisor.changes import differences
from tests.unit.appliance.hosted import TEXT
from tests.unit.appliance.test_three_brokers import broker_configs, mill

THREE = "cluster: {brokers: 3}"
MOVED = "cluster: {brokers: 3}\nports: {places: {3: 13}}"


def test_a_place_gives_a_broker_all_its_ports(tmp_path: Path) -> None:
    of = mill(tmp_path, MOVED)
    config = broker_configs(of)["broker-3"]
    assert {name: one.advertised_port for name, one in config.listeners.items()} == {
        "HOST": 9104,
        "MILL": 19104,
        "BROKER": 29104,
    }
    assert config.voters[3] == ("127.0.0.1", 29104)
    assert broker_configs(of)["broker-1"].voters[3] == ("127.0.0.1", 29104)
    assert bootstrap_servers(of.config, of.placement) == (
        "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19104"
    )
    assert status_ports(of.config)["broker-3"] == 8105
    part = of.part("broker-3")
    assert part is not None
    assert part.port == 8105
    assert any("127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9104" in line for line in summary(of))


def test_other_ports_restart_the_broker_and_what_connects_to_it(tmp_path: Path) -> None:
    changed = differences(mill(tmp_path, THREE), mill(tmp_path, MOVED))
    assert set(changed.changed) >= {"broker-3", "collector", "monitor"}
    assert not set(changed.changed) & {"broker-1", "broker-2"}
    assert changed.in_turn == ()


def test_applying_the_file_is_refused_because_the_command_looks_first(tmp_path: Path) -> None:
    started, wanted = mill(tmp_path, THREE).config, mill(tmp_path, MOVED).config
    with pytest.raises(CommandError, match=r"Run `\./millrace broker move 3`"):
        refuse_moving_brokers(started, wanted)
    assert moving_brokers(started, wanted) == [3]
    assert moving_brokers(wanted, wanted) == []
    same = mill(tmp_path, "cluster: {brokers: 3}\nports: {places: {3: 3}}").config
    refuse_moving_brokers(started, same)
    alone = mill(tmp_path, "cluster: {brokers: 1}\nports: {places: {1: 13}}").config
    refuse_moving_brokers(mill(tmp_path, "cluster: {brokers: 1}").config, alone)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{4: 13}", "broker 4, which is not in cluster.brokers"),
        ("{3: 2}", "a port of its own"),
        ("{3: 0}", "expected the place of a broker by its id"),
        ("{3: 100}", "expected the place of a broker by its id"),
        ("{three: 13}", "expected the place of a broker by its id"),
        ("[3]", "expected the place of a broker by its id"),
        ("{3: 13}, host: 65530", "ports up to 65535"),
    ],
)
def test_wrong_places_are_named(text: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigFaults) as refused:
        load_text(f"cluster: {{brokers: 3}}\nports: {{places: {text}}}", "f.yaml", tmp_path, {})
    assert fault in str(refused.value)


@pytest.mark.parametrize(
    ("text", "environ", "fault"),
    [
        (TEXT, {}, "no places: brokers on several hosts (cluster.hosts) need no other ports"),
        (
            "cluster: {brokers: 3}",
            {"MILLRACE_PUBLISHED": "loopback"},
            "no places: the compose file names the ports of each container",
        ),
        (
            "cluster: {bootstrap_servers: 'kafka.example.org:9092'}",
            {},
            "only brokers of cluster.brokers, which are none",
        ),
    ],
)
def test_places_are_refused_where_they_have_no_effect(
    text: str, environ: dict[str, str], fault: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigFaults) as refused:
        load_text(f"{text}\nports: {{places: {{3: 13}}}}", "f.yaml", tmp_path, environ)
    [found] = refused.value.faults
    assert fault in str(found)
    assert found.line


def failed(of: object) -> list[str]:
    found = startup.data_ownership(of)  # type: ignore[arg-type]
    return [str(one) for one in found if one.level is CheckLevel.FAILED]


def test_a_link_to_a_disk_that_is_not_mounted_is_refused(tmp_path: Path) -> None:
    of = mill(tmp_path, THREE)
    of.home.data.mkdir(parents=True, exist_ok=True)
    of.home.part_data("broker-3").symlink_to(tmp_path / "disk2" / "broker-3")
    (text,) = failed(of)
    assert "disk2/broker-3, which is not there; mount its disk" in text


def test_a_move_that_was_interrupted_is_refused(tmp_path: Path) -> None:
    of = mill(tmp_path, THREE)
    link = of.home.part_data("broker-3")
    link.mkdir(parents=True)
    (link / "data").write_text("x")
    move = wanted_move(link, tmp_path / "three", 0)
    assert move is not None
    move.carry_out()
    assert failed(of) == [], "the broker can start"
    link.unlink()
    (text,) = failed(of)
    assert "was interrupted; run `./millrace broker move 3`" in text


def test_a_record_of_a_move_that_cannot_be_read_is_one_failed_check(tmp_path: Path) -> None:
    """Otherwise `doctor` showed this fault and no other row."""
    of = mill(tmp_path, THREE)
    of.home.data.mkdir(parents=True, exist_ok=True)
    (of.home.data / "broker-2.moving").write_text("{")
    (text,) = failed(of)
    assert "broker-2.moving cannot be read" in text
    assert "or leads to it, delete this file" in text
