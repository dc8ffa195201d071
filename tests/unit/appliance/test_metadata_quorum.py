"""`kafka-metadata-quorum add-controller` and `remove-controller`: checks before the request is
sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.kafka_tools import metadata_quorum
from appliance.kafka_tools.controller_properties import ControllerEndpoint, controller_of
from appliance.output import CommandError
from protocol.types import uuid_from_base64

FOLDER_ID = "AAAAAAAAAAAAAAAAAAAABQ"
SERVER = ("--bootstrap-server", "localhost:1")


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "meta.properties").write_text(f"version=1\nnode.id=5\ndirectory.id={FOLDER_ID}\n")
    return {
        "node.id": "5",
        "process.roles": "broker,controller",
        "log.dirs": f"{tmp_path}, /elsewhere",
        "listeners": "HOST://:9092,BROKER://:9192",
        "advertised.listeners": "BROKER://five.example:9192",
        "controller.listener.names": "broker",
    }


def write(folder: Path, properties: dict[str, str]) -> str:
    path = folder / "controller.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


def test_a_controller_is_its_id_its_folder_and_its_addresses(properties: dict[str, str]) -> None:
    node = controller_of(properties)
    assert (node.node_id, node.directory_id) == (5, uuid_from_base64(FOLDER_ID))
    assert node.endpoints == (ControllerEndpoint("BROKER", "five.example", 9192),)


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ("BROKER://:9192", "BROKER://localhost:9192"),
        ("broker://[::1]:9192", "BROKER://[::1]:9192"),
        ("BROKER://10.0.0.5:1", "BROKER://10.0.0.5:1"),
    ],
)
def test_addresses_are_read_as_kafka_reads_them(
    properties: dict[str, str], listener: str, expected: str
) -> None:
    node = controller_of(properties | {"advertised.listeners": listener})
    assert [str(one) for one in node.endpoints] == [expected]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"node.id": None}, "node.id not found in configuration file"),
        ({"node.id": "five"}, "expected a number"),
        ({"node.id": "-1"}, "node.id was negative"),
        ({"process.roles": "broker"}, "did not contain 'controller'"),
        ({"log.dirs": None}, "Neither metadata.log.dir nor log.dirs were found"),
        ({"metadata.log.dir": "/nowhere"}, "Unable to read meta.properties from /nowhere"),
        ({"controller.listener.names": None}, "controller.listener.names was not found"),
        ({"controller.listener.names": "OTHER"}, "controller listener name: OTHER"),
        ({"listeners": "BROKER:9192"}, "expected NAME://HOST:PORT"),
        ({"listeners": "BROKER://h:70000"}, "expected NAME://HOST:PORT"),
    ],
)
def test_a_file_that_describes_no_controller(
    properties: dict[str, str], changes: dict[str, str | None], says: str
) -> None:
    given = {key: value for key, value in (properties | changes).items() if value is not None}
    with pytest.raises(CommandError, match=says):
        controller_of(given)


def test_a_folder_without_an_id(properties: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(CommandError, match="No directory id found"):
        controller_of(properties)


def test_a_dry_run_says_what_would_be_added(
    properties: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, properties)
    assert (
        metadata_quorum.main((*SERVER, "--command-config", path, "add-controller", "--dry-run"))
        == 0
    )
    told = capsys.readouterr()
    assert told.out == (
        f"DRY RUN of adding controller 5 with directory id {FOLDER_ID}"
        " and endpoints: BROKER://five.example:9192\n"
    )
    assert told.err == ""


def test_a_dry_run_says_what_would_be_removed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("remove-controller", "-i", "5", "-d", FOLDER_ID, "--dry-run")
    assert metadata_quorum.main((*SERVER, *arguments)) == 0
    said = f"DRY RUN of removing  KRaft controller 5 with directory id {FOLDER_ID}\n"
    assert capsys.readouterr().out == said
