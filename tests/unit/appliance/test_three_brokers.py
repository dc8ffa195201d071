"""`cluster.brokers: 3`: the settings of each broker, and the data folders that are refused."""

from pathlib import Path
from typing import Any

import pytest

from appliance.checks import startup
from appliance.checks.startup import Check, CheckLevel
from appliance.cli.summary import summary
from appliance.config.load import load_text
from appliance.mill.home import find_home
from appliance.mill.init import initialise
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill, settings_for
from appliance.mill.voter_folders import stored_voters
from broker.config import BrokerConfig
from broker.quorum.snapshot import BOOTSTRAP, build_snapshot, file_name
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from protocol.types import Uuid

NAMES = ("broker-1", "broker-2", "broker-3")
THREE = "cluster: {brokers: 3}"


def mill(tmp_path: Path, text: str = THREE, *, in_containers: bool = False) -> Mill:
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    config = load_text(text, "mill.yaml", tmp_path, {}).config
    initialise(home, config.cluster.broker_ids)
    return Mill(home, config, Placement(in_containers))


def broker_configs(of: Mill) -> dict[str, BrokerConfig]:
    return {
        part.name: BrokerConfig.from_json(settings_for(of, part.name))
        for part in of.parts
        if part.name.startswith("broker-")
    }


@pytest.mark.parametrize("in_containers", [False, True])
def test_each_is_told_where_the_others_are(tmp_path: Path, in_containers: bool) -> None:
    found = broker_configs(mill(tmp_path, in_containers=in_containers))
    assert tuple(found) == NAMES
    for number, (name, config) in enumerate(found.items(), 1):
        host = name if in_containers else "127.0.0.1"
        assert config.node_id == number
        assert config.configured_ids == (1, 2, 3)
        assert {
            key: (one.advertised_host, one.advertised_port) for key, one in config.listeners.items()
        } == {
            "HOST": ("127.0.0.1", 9091 + number),
            "MILL": (host, 19091 + number),
            "BROKER": (host, 29091 + number),
        }
        assert config.voters == {
            other: (f"broker-{other}" if in_containers else "127.0.0.1", 29091 + other)
            for other in (1, 2, 3)
        }
        bound = {one.host for one in config.listeners.values()}
        assert bound == {"0.0.0.0" if in_containers else "127.0.0.1"}
        assert config.log_dir == str(tmp_path / "data" / name)
    assert len({config.cluster_id for config in found.values()}) == 1


def test_one_broker_has_no_listener_for_others_and_no_voters(tmp_path: Path) -> None:
    [config] = broker_configs(mill(tmp_path, "cluster: {brokers: 1}")).values()
    assert set(config.listeners) == {"HOST", "MILL"}
    assert config.voters == {}
    assert config.given == {}


def test_three_brokers_keep_three_copies_of_which_two_are_in_sync(tmp_path: Path) -> None:
    for config in broker_configs(mill(tmp_path)).values():
        assert config.default_replication_factor == 3
        assert config.offsets_topic_replication_factor == 3
        assert config.transaction_state_log_replication_factor == 3
        assert config.transaction_state_log_min_isr == 2
        assert config.log_config().min_insync_replicas == 2


def test_what_the_file_states_wins(tmp_path: Path) -> None:
    stated = "{default.replication.factor: 2, min.insync.replicas: 1, num.partitions: 7}"
    of = mill(tmp_path, f"cluster: {{brokers: 3, settings: {stated}}}")
    for config in broker_configs(of).values():
        assert config.default_replication_factor == 2
        assert config.offsets_topic_replication_factor == 3
        assert config.log_config().min_insync_replicas == 1
        assert config.num_partitions == 7


def test_each_has_the_rack_of_its_place_in_the_file(tmp_path: Path) -> None:
    of = mill(tmp_path, "cluster: {brokers: 3, racks: [hall-1, hall-1, hall-2]}")
    racks = [config.rack for config in broker_configs(of).values()]
    assert racks == ["hall-1", "hall-1", "hall-2"]
    assert {config.rack for config in broker_configs(mill(tmp_path)).values()} == {None}


def test_what_three_brokers_can_hold_is_no_fault(tmp_path: Path) -> None:
    mill(
        tmp_path,
        "cluster: {brokers: 3, settings: {default.replication.factor: 1}}\n"
        "topics: [{name: a, replication: 3, settings: {min.insync.replicas: 3}}]\n",
    )


def test_the_mills_parts_know_all_of_them(tmp_path: Path) -> None:
    of = mill(tmp_path)
    servers = "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"
    for part in ("collector", "monitor"):
        assert settings_for(of, part)["bootstrap_servers"] == servers
    monitored: Any = settings_for(of, "monitor")["parts"]
    assert [monitored[name] for name in NAMES] == [
        f"http://127.0.0.1:{port}" for port in (8093, 8094, 8095)
    ]
    assert any("127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094" in line for line in summary(of))


def test_ports_of_all_are_looked_at(tmp_path: Path) -> None:
    settings = {what.what for what in startup.ports(mill(tmp_path))}
    assert {
        f"port {port} (ports.{name}, for broker-3)"
        for name, port in (
            ("host", 9094), ("mill", 19094), ("broker", 29094), ("broker_status", 8095)
        )
    } <= settings  # fmt: skip
    alone = {what.what for what in startup.ports(mill(tmp_path, "cluster: {brokers: 1}"))}
    assert not any("ports.broker," in what for what in alone)


# ------------------------------------------------------------------ data folders


def born(of: Mill, *ids: int) -> None:
    """Write the files that the brokers' disks have after the creation of the cluster."""
    voters = VoterSet(Voter(ReplicaKey(one, Uuid(int=one))) for one in ids)
    for one in ids:
        folder = of.home.part_data(f"broker-{one}") / "__cluster_metadata-0"
        folder.mkdir(parents=True)
        (folder / file_name(BOOTSTRAP)).write_bytes(build_snapshot(BOOTSTRAP, voters, []))


def refusals(of: Mill) -> list[Check]:
    return [check for check in startup.before_start(of) if "cluster.brokers" in check.what]


def test_a_folder_of_one_broker_starts_with_three(tmp_path: Path) -> None:
    """The others join its cluster, and `./millrace cluster grow` gives them votes and replicas."""
    of = mill(tmp_path)
    born(of, 1)
    assert refusals(of) == []
    assert refusals(mill(tmp_path, "cluster: {brokers: 1}")) == []
    joining = {name: config.joins for name, config in broker_configs(of).items()}
    assert joining == {"broker-1": False, "broker-2": True, "broker-3": True}


def test_a_voter_that_the_file_does_not_list_is_refused(tmp_path: Path) -> None:
    of = mill(tmp_path, "cluster: {brokers: [2, 3, 4]}")
    born(of, 1)
    [check] = refusals(of)
    assert check.level is CheckLevel.FAILED
    assert "belongs to a cluster of broker 1 alone; broker 1 is a voter" in str(check)


def test_folders_of_three_brokers_are_refused_for_one(tmp_path: Path) -> None:
    of = mill(tmp_path)
    born(of, 1, 2, 3)
    assert refusals(of) == []
    found = refusals(mill(tmp_path, "cluster: {brokers: 1}"))
    # The message names the folder of each broker. If the user emptied only the folder of broker 1,
    # that broker would create a cluster of its own.
    assert [f"broker-{number}" in check.found for number, check in enumerate(found, 1)] == [
        True
    ] * 3
    assert "brokers 1, 2, 3" in found[0].found
    assert "set cluster.brokers: 3" in found[0].remedy


def test_an_existing_cluster_is_asked_for_no_folders(tmp_path: Path) -> None:
    of = mill(tmp_path)
    born(of, 1)
    assert refusals(mill(tmp_path, "cluster: {bootstrap_servers: 'k:9092'}")) == []


def test_a_folder_before_the_birth_names_no_voter(tmp_path: Path) -> None:
    metadata = tmp_path / "__cluster_metadata-0"
    assert stored_voters(tmp_path) is None
    metadata.mkdir()
    assert stored_voters(tmp_path) is None
    # A log file that has only preallocated space has no records.
    (metadata / f"{0:020}.log").write_bytes(bytes(4096))
    assert stored_voters(tmp_path) is None
