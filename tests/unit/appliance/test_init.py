"""Ids and secrets: they are created once, complete and private, and never change."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.machine.files import create_once, write_atomically
from appliance.mill.home import Home, find_home
from appliance.mill.init import (
    InitError,
    give,
    initialise,
    read_meta_properties,
    read_secret,
    share_entry,
)
from protocol.types import uuid_from_base64


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return find_home({"MILLRACE_HOME": str(tmp_path / "mill")})


def contents(home: Home) -> dict[str, str]:
    return {
        str(path.relative_to(home.secrets)): path.read_text()
        for path in sorted(home.secrets.rglob("*"))
        if path.is_file()
    }


def test_everything_is_made_and_private(home: Home) -> None:
    made = initialise(home, (1,))
    found = contents(home)
    assert sorted(made.names) == sorted(found)
    assert set(found) == {
        "broker-1/cluster_id",
        "broker-1/login_secret",
        "mysql/mill",
        "mysql/reader",
        "mysql/root",
        "redis/monitor",
        "redis/password",
        "stream/mysql",
        "stream/redis",
        "monitor/admin",
        "monitor/mysql",
        "monitor/redis",
    }
    for name in found:
        assert stat.S_IMODE((home.secrets / name).stat().st_mode) == 0o600
        assert stat.S_IMODE((home.secrets / name).parent.stat().st_mode) == 0o700
    assert uuid_from_base64(found["broker-1/cluster_id"])


def test_each_part_gets_the_secret_that_its_server_has(home: Home) -> None:
    initialise(home, (1,))
    found = contents(home)
    assert found["stream/mysql"] == found["mysql/mill"]
    assert found["stream/redis"] == found["redis/password"]
    assert found["monitor/mysql"] == found["mysql/reader"]
    passwords = [found[name] for name in ("mysql/mill", "mysql/reader", "mysql/root")]
    assert len({*passwords, found["redis/password"]}) == 4
    assert all(len(password) >= 32 for password in passwords)


def test_a_second_time_changes_nothing(home: Home) -> None:
    initialise(home, (1,))
    before = contents(home)
    assert initialise(home, (1,)).names == ()
    assert contents(home) == before


def test_only_what_is_missing_is_made(home: Home) -> None:
    initialise(home, (1,))
    before = contents(home)
    (home.secrets / "stream/mysql").unlink()
    assert initialise(home, (1,)).names == ("stream/mysql",)
    assert contents(home) == before


def test_the_brokers_of_one_cluster_share_its_id(home: Home) -> None:
    initialise(home, (1,))
    cluster_id = read_secret(home, "broker-1/cluster_id")
    initialise(home, (1, 2, 3))
    assert {read_secret(home, f"broker-{n}/cluster_id") for n in (1, 2, 3)} == {cluster_id}


def test_a_data_folder_lends_its_cluster_id_to_lost_secrets(home: Home) -> None:
    folder = home.part_data("broker-1")
    folder.mkdir(parents=True)
    (folder / "meta.properties").write_text(
        "#written by the broker\nversion=1\ncluster.id=AAAAAAAAQACAAAAAAAAAAA\n"
        "directory.id=AAAAAAAAQACAAAAAAAAAAQ\nnode.id=1\n"
    )
    initialise(home, (1,))
    assert read_secret(home, "broker-1/cluster_id") == "AAAAAAAAQACAAAAAAAAAAA"
    # Only the data folder has its directory id. If the secrets had it too, a wiped folder would get
    # its old id back.
    assert not (home.part_secrets("broker-1") / "directory_id").exists()


def test_a_missing_or_empty_secret_says_what_helps(home: Home) -> None:
    with pytest.raises(InitError, match="no mill was ever started in"):
        read_secret(home, "redis/password")
    home.part_secrets("redis").mkdir(parents=True)
    with pytest.raises(InitError, match=r"data/secrets/redis/password.*millrace init"):
        read_secret(home, "redis/password")
    (home.part_secrets("redis") / "password").write_text("\n")
    with pytest.raises(InitError, match="empty"):
        read_secret(home, "redis/password")


def test_a_file_in_place_of_the_folder_is_named(home: Home) -> None:
    home.folder.mkdir()
    home.data.write_text("in the way")
    with pytest.raises(InitError, match="data"):
        initialise(home, (1,))


def test_secrets_are_given_to_their_parts(home: Home) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    initialise(home, (1,))
    give(home, {"mysql": (999, 998)})
    owner = (home.secrets / "mysql/mill").stat()
    assert (owner.st_uid, owner.st_gid) == (999, 998)
    assert home.part_secrets("mysql").stat().st_uid == 999
    assert (home.secrets / "stream/mysql").stat().st_uid == 0


def test_a_file_that_another_container_renames_is_left_to_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    initialise(home, (1,))
    listed = Path.iterdir
    monkeypatch.setattr(
        Path, "iterdir", lambda self: iter([*listed(self), self / ".tls.key.x.partial"])
    )
    give(home, {"mysql": (os.getuid(), os.getgid())})
    folder = home.part_secrets("mill")
    folder.mkdir()
    share_entry(replace(home, in_containers=True))
    assert folder.stat().st_mode & 0o777 == 0o750


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    assert create_once(path, b"first")
    assert not create_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]


def test_a_replaced_file_has_its_rights_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old", mode=0o644)
    write_atomically(path, b"new", mode=0o600)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(OSError):
        write_atomically(path, b"new")
    assert path.is_dir()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_properties_are_read_as_brokers_write_them(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    assert read_meta_properties(path) == {}
    path.write_text("# comment = no\nnode.id=1\n\ncluster.id = abc=\nnonsense\n")
    assert read_meta_properties(path) == {"node.id": "1", "cluster.id": "abc="}
