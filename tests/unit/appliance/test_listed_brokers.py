"""`cluster.brokers` as a list of ids: the settings of each broker, and which ones join."""

from pathlib import Path

import pytest

from appliance.checks import startup
from appliance.checks.startup import CheckLevel
from appliance.cli.summary import summary
from appliance.config.faults import ConfigFaults
from appliance.config.load import load_text
from appliance.config.replication import replication_settings
from appliance.mill.parts import bootstrap_servers
from appliance.mill.settings import Mill
from appliance.supervisor.changes import differences
from broker.quorum.snapshot import SnapshotId, build_snapshot, file_name
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from protocol.types import Uuid
from tests.unit.appliance.test_three_brokers import broker_configs, mill

FOUR = "cluster: {brokers: [1, 2, 3, 4]}"
OTHERS = "cluster: {brokers: [4, 1, 3]}"


def voted(of: Mill, number: int, *ids: int, end_offset: int = 10) -> None:
    """Write a snapshot with these voters into a broker's folder."""
    voters = VoterSet(Voter(ReplicaKey(one, Uuid(int=one))) for one in ids)
    folder = of.home.part_data(f"broker-{number}") / "__cluster_metadata-0"
    folder.mkdir(parents=True, exist_ok=True)
    snapshot_id = SnapshotId(end_offset, 1)
    (folder / file_name(snapshot_id)).write_bytes(build_snapshot(snapshot_id, voters, []))


def joining(of: Mill) -> list[int]:
    return [config.node_id for config in broker_configs(of).values() if config.joins]


def test_each_id_has_its_ports_whatever_is_between(tmp_path: Path) -> None:
    of = mill(tmp_path, OTHERS)
    assert [part.name for part in of.parts if part.name.startswith("broker-")] == [
        "broker-1",
        "broker-3",
        "broker-4",
    ]
    found = broker_configs(of)
    for number in (1, 3, 4):
        config = found[f"broker-{number}"]
        assert config.node_id == number
        assert config.configured_ids == (1, 3, 4)
        assert {name: one.advertised_port for name, one in config.listeners.items()} == {
            "HOST": 9091 + number,
            "MILL": 19091 + number,
            "BROKER": 29091 + number,
        }
        assert not config.joins
    servers = "127.0.0.1:19092,127.0.0.1:19094,127.0.0.1:19095"
    assert bootstrap_servers(of.config, of.placement) == servers
    assert any("127.0.0.1:9092,127.0.0.1:9094,127.0.0.1:9095" in line for line in summary(of))


def test_racks_are_in_the_order_of_the_ids(tmp_path: Path) -> None:
    of = mill(tmp_path, "cluster: {brokers: [4, 1, 3], racks: [a, b, c]}")
    assert [config.rack for config in broker_configs(of).values()] == ["a", "b", "c"]


def test_a_new_cluster_is_made_by_three_and_the_others_join_it(tmp_path: Path) -> None:
    """A birth waits for every broker in its settings, and an even number of voters is no use."""
    of = mill(tmp_path, FOUR)
    found = broker_configs(of)
    assert joining(of) == [4]
    for number in (1, 2, 3):
        assert found[f"broker-{number}"].configured_ids == (1, 2, 3)
    assert found["broker-4"].configured_ids == (1, 2, 3, 4)


def test_a_broker_joins_where_the_others_vote_without_it(tmp_path: Path) -> None:
    of = mill(tmp_path, FOUR)
    for number in (1, 2, 3):
        voted(of, number, 1, 2, 3)
    assert joining(of) == [4]
    # Broker 4 votes in place of broker 2. Broker 3 was stopped before that.
    for number in (1, 4):
        voted(of, number, 1, 3, 4, end_offset=20)
    assert joining(of) == [2]


def test_a_voter_with_an_emptied_folder_does_not_join(tmp_path: Path) -> None:
    of = mill(tmp_path)
    for number in (1, 3):
        voted(of, number, 1, 2, 3)
    assert joining(of) == []


def test_the_folder_of_a_removed_broker_says_nothing(tmp_path: Path) -> None:
    of = mill(tmp_path, "cluster: {brokers: [1, 2, 4]}")
    voted(of, 3, 1, 2, 3, end_offset=90)
    for number in (1, 4):
        voted(of, number, 1, 4, end_offset=20)
    assert joining(of) == [2]
    assert failed(of) == []


def test_a_broker_more_restarts_no_other(tmp_path: Path) -> None:
    three, four = mill(tmp_path), mill(tmp_path, FOUR)
    for number in (1, 2, 3):
        voted(three, number, 1, 2, 3)
    found = differences(three, four)
    assert found.added == ("broker-4",)
    assert not any(name.startswith("broker-") for name in found.changed)
    assert "monitor" in found.changed
    # The broker has joined and votes by now.
    voted(four, 4, 1, 2, 3, 4, end_offset=20)
    assert not differences(four, mill(tmp_path, FOUR))
    fewer = differences(four, mill(tmp_path, OTHERS))
    assert fewer.removed == ("broker-2",)
    assert not any(name.startswith("broker-") for name in fewer.changed)


def test_more_brokers_keep_three_replicas() -> None:
    assert replication_settings(5) == replication_settings(4) == replication_settings(3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2]", "brokers: found 2 ids, expected the ids of at least 3 brokers"),
        ("[1]", "brokers: found 1 id, expected"),
        ("[]", "brokers: found no id, expected"),
        ("[1, 2, 2, 3]", "brokers: found broker 2 twice, expected each id once"),
        ("[0, 1, 2]", "brokers: found 0 in the list of broker ids, expected ids from 1 to 9"),
        ("[1, 2, 10]", "brokers: found 10 in the list of broker ids, expected"),
        ("[1, 2, x]", "brokers: found 'x' in the list of broker ids, expected"),
        ("[2, 3, true]", "brokers: found true in the list of broker ids, expected"),
        ("true", "brokers: found true, expected 1 or 3, or a list of broker ids"),
        ("three", "brokers: found 'three', expected"),
        ("4", "found 4, expected 1 or 3, or a list of ids for more"),
        ("2", "found 2, expected 1 or 3: of two, neither can go on alone"),
        ("1000000000", "found 1000000000, expected 1 or 3"),
        ("0", "found 0, expected 1 or 3"),
        ("-1", "found -1, expected 1 or 3"),
        ("{a: 1}", "brokers: found a mapping"),
    ],
)
def test_what_brokers_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigFaults) as found:
        load_text(f"cluster: {{brokers: {text}}}", "mill.yaml", tmp_path, {})
    assert said in str(found.value)


def test_racks_and_ports_are_those_of_the_listed_brokers(tmp_path: Path) -> None:
    for text, said in (
        ("cluster: {brokers: [1, 2, 3, 4], racks: [a, b, c]}", "a rack for each broker: 4"),
        ("cluster: {brokers: [1, 2, 8]}\nports: {mill: 9098}", "ports.host has it"),
        ("cluster: {brokers: [1, 2, 3, 4], settings: {min.insync.replicas: 4}}", "at most"),
    ):
        with pytest.raises(ConfigFaults, match=said):
            load_text(text, "mill.yaml", tmp_path, {})
    load_text("cluster: {brokers: [1, 2, 8]}\nports: {mill: 9100}", "mill.yaml", tmp_path, {})


# ------------------------------------------------------------------ data folders


def failed(of: Mill) -> list[str]:
    return [str(check) for check in startup.data_ownership(of) if check.level is CheckLevel.FAILED]


def test_a_voter_that_the_file_does_not_list_is_named(tmp_path: Path) -> None:
    of = mill(tmp_path, "cluster: {brokers: [1, 2, 4]}")
    for number in (1, 2):
        voted(of, number, 1, 2, 3)
    found = failed(of)
    assert len(found) == 2
    assert "belongs to a cluster of brokers 1, 2, 3" in found[0]
    assert "only `./millrace broker remove 3` takes it out" in found[0]
    assert "set cluster.brokers: 3" in found[0]
    for number in (1, 2):
        voted(of, number, 1, 2, 5, end_offset=20)
    assert "set cluster.brokers: [1, 2, 5]" in failed(of)[0]


def test_a_cluster_whose_voters_are_all_gone_is_not_made_again(tmp_path: Path) -> None:
    of = mill(tmp_path, FOUR)
    voted(of, 4, 1, 2, 3)
    (found,) = failed(of)
    assert "the folders of the voters are empty (brokers 1, 2, 3)" in found
    assert "put the folders back, restore a backup" in found
    voted(of, 2, 1, 2, 3)
    assert failed(of) == []
