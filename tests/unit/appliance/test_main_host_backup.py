"""The backup of a main host: what is in it, where it can be made, and when it can be restored."""

from pathlib import Path
from typing import Any

import pytest

from appliance.backup import main_host_restore
from appliance.backup.main_host import (
    RemainingCluster,
    continuation,
    refusals_of_cluster,
    refusals_of_file,
)
from appliance.backup.main_host_restore import MainHostRestore, mill_of_main_host
from appliance.backup.manifest import decode
from appliance.backup.remaining_brokers import entry_to_others
from appliance.backup.restore import RestoreFailed, read_manifest, restore
from appliance.backup.take import BackupFailed, take
from appliance.config.load import load_text
from appliance.mill.home import CODE
from appliance.mill.host_secrets import initialise_mill
from appliance.mill.hosts import own_broker
from appliance.mill.settings import Mill, settings_for
from tests.unit.appliance.hosted import HOSTS, TEXT, has_authority, home_of, joined, mill
from tests.unit.appliance.test_backup_restore import files, ignored
from tests.unit.appliance.test_commands import run

OWN_SERVERS = "sinks: {mysql: {host: db.example.org}, redis: {host: cache.example.org}}\n"
FILE = TEXT + OWN_SERVERS
"""The counts are on servers elsewhere, so the tests need no MySQL."""
BEGIN = {("logs", 0): 0, ("logs", 1): 0}
END = {("logs", 0): 90, ("logs", 1): 70}


def cluster_with(**changed: Any) -> RemainingCluster:
    """Return what brokers 2 and 3 report when the vote of broker 1 was removed."""
    told: dict[str, Any] = {
        "cluster_id": "ours",
        "in_service": frozenset({2, 3}),
        "voters": frozenset({2, 3}),
        "starts": BEGIN,
        "ends": END,
    }
    return RemainingCluster(**{**told, **changed})


@pytest.mark.parametrize(
    ("ledger", "rows"),
    [
        ({("logs", 0): 90, ("logs", 1): 70}, {}),
        ({("logs", 0): 0, ("logs", 1): 35, ("other", 0): 500}, {}),
        ({("logs", 0): 40}, {("logs", 1): 0}),
        ({}, BEGIN),
    ],
)
def test_the_stream_counts_on_from_the_ledger_and_new_partitions_from_0(
    ledger: dict[tuple[str, int], int], rows: dict[tuple[str, int], int]
) -> None:
    found = continuation(ledger, cluster_with(), ("logs",))
    assert (found.rows, found.lost) == (rows, ())


@pytest.mark.parametrize(
    ("ledger", "starts", "said", "after"),
    [
        ({("logs", 0): 9, ("logs", 1): 9}, 10, "logs-0 is counted up to offset 9 in the", 10),
        # The partition is newer than the backup, and retention has deleted its beginning.
        ({("logs", 1): 9}, 1, "logs-0 is counted up to offset 0 in the", 1),
        ({("logs", 0): 91, ("logs", 1): 9}, 3, "have it only up to 90", 3),
    ],
)
def test_lines_that_no_broker_has_are_found(
    ledger: dict[tuple[str, int], int], starts: int, said: str, after: int
) -> None:
    found = continuation(
        ledger, cluster_with(starts={("logs", 0): starts, ("logs", 1): 0}), ("logs",)
    )
    assert said in found.lost_text
    assert found.after_loss == {("logs", 0): after}


def test_a_topic_that_was_deleted_is_lost() -> None:
    found = continuation({("logs", 0): 9, ("other", 0): 9}, cluster_with(ends={}), ("logs",))
    assert found.after_loss == {("logs", 0): 0}
    unread = continuation({("logs", 0): 0}, cluster_with(ends={}), ("logs",))
    assert unread.lost == ()


def test_a_long_list_of_lost_partitions_is_shortened() -> None:
    ledger = {("logs", one): 9 for one in range(8)}
    found = continuation(ledger, cluster_with(ends={}), ("logs",))
    assert found.lost_text.endswith("; and 3 more")
    assert len(found.after_loss) == 8


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"cluster_id": "theirs"}, "the brokers on the other hosts are of cluster theirs"),
        ({"in_service": frozenset({1, 2, 3})}, "broker 1 is in service, so the main host still"),
        ({"voters": frozenset({1, 2, 3})}, "type `./millrace broker replace-disk 1` on another"),
        ({"in_service": frozenset({2, 4})}, "broker 4, which is missing in cluster.hosts"),
    ],
)
def test_a_cluster_that_the_main_host_cannot_join_is_named(
    changed: dict[str, Any], said: str
) -> None:
    found = "; ".join(
        refusals_of_cluster(1, "ours", tuple(HOSTS), HOSTS[1], cluster_with(**changed))
    )
    assert (said in found) if said else not found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT, ""),
        ("cluster: {brokers: 3}\n", "cluster.hosts is missing in mill.yaml"),
        (
            TEXT.replace("brokers: 3", "brokers: [2, 3, 4]").replace("{1: ", "{4: "),
            "of the host of broker 1, and by cluster.brokers in mill.yaml broker 2",
        ),
    ],
)
def test_a_file_of_another_mill_is_refused(tmp_path: Path, text: str, said: str) -> None:
    config = load_text(text, "mill.yaml", tmp_path, {}).config
    found = "; ".join(refusals_of_file(1, config, "mill.yaml"))
    assert (said in found) if said else not found


@pytest.fixture
def main(tmp_path: Path) -> Mill:
    """Return a main host that has run and is stopped."""
    return main_host(tmp_path / "old")


def main_host(folder: Path, text: str = FILE) -> Mill:
    has_authority(folder)
    found = mill(folder, text)
    initialise_mill(found.home, found.config, found.placement)
    found.home.config_file.parent.mkdir()
    found.home.config_file.write_text(text)
    for path in (
        "ca.pem",
        "broker-1/logs-0/00000000000000000000.log",
        "stream/checkpoint/metadata",
        "stream/suspects.json",
        "collector/instance",
        "redis/appendonlydir/appendonly.aof.1.incr.aof",
    ):
        file = found.home.data / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    return found


def test_a_backup_has_what_only_the_main_host_has(main: Mill, tmp_path: Path) -> None:
    take(main, tmp_path / "backup", ignored)
    found = decode((tmp_path / "backup" / "manifest.json").read_bytes())
    assert (found.main_broker, found.brokers) == (1, 3)
    names = files(tmp_path / "backup" / "data")
    assert {"secrets/ca/ca.key", "secrets/mill/password", "collector/instance"} <= set(names)
    assert not [name for name in names if name.startswith(("broker-1", "redis", "stream/check"))]


def test_a_backup_is_made_on_the_main_host_alone(tmp_path: Path) -> None:
    joined(tmp_path / "second", 2)
    with pytest.raises(BackupFailed, match=r"made on the main host, mill-1\.example\.org"):
        take(mill(tmp_path / "second"), tmp_path / "backup", ignored)


def test_counts_that_are_only_in_the_mill_s_own_redis_are_refused(tmp_path: Path) -> None:
    found = main_host(tmp_path / "old", TEXT + "sinks: {mysql: null}\n")
    with pytest.raises(BackupFailed, match=r"without sinks\.mysql"):
        take(found, tmp_path / "backup", ignored)
    assert not (tmp_path / "backup").exists()


@pytest.fixture
def backup(main: Mill, tmp_path: Path) -> Path:
    take(main, tmp_path / "backup", ignored)
    return tmp_path / "backup"


def asked(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> list[str]:
    """Let the brokers on the other hosts answer. Return the addresses that were asked."""
    addresses: list[str] = []

    def answer(entry: Any, broker: int, topics: Any) -> RemainingCluster:
        addresses.append(entry.servers)
        assert broker == 1
        return cluster_with(**changed)

    monkeypatch.setattr(main_host_restore, "ask", answer)
    return addresses


def cluster_of(backup: Path) -> str:
    return read_manifest(backup).cluster_id


def test_a_new_machine_becomes_the_main_host(
    main: Mill, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = asked(monkeypatch, cluster_id=cluster_of(backup))
    home = home_of(tmp_path / "new")
    code, _, err = run(monkeypatch, home.folder, "restore", str(backup))
    assert code == 0, err
    assert addresses == ["mill-2.example.org:9193,mill-3.example.org:9194"]
    assert "broker 1 starts with an empty disk" in err[-1]
    assert home.config_file.read_text() == FILE
    assert files(home.secrets) == files(main.home.secrets)
    found = mill(home.folder, FILE)
    assert own_broker(home, found.config) == 1
    assert settings_for(found, "broker-1")["joins"] is True
    again = run(monkeypatch, home.folder, "restore", str(backup))
    assert again[0] != 0
    assert "is not empty" in "\n".join(again[2])


def test_a_file_of_the_operator_is_kept(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(monkeypatch, cluster_id=cluster_of(backup), in_service=frozenset({2, 4}))
    home = home_of(tmp_path / "new")
    home.config_file.parent.mkdir(parents=True)
    own = FILE.replace("brokers: 3", "brokers: [1, 2, 4]").replace("3: mill-3", "4: mill-4")
    home.config_file.write_text(own)
    code, _, err = run(monkeypatch, home.folder, "restore", str(backup), "--json")
    assert code == 0, err
    assert home.config_file.read_text() == own


def test_a_refused_restore_leaves_nothing(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(monkeypatch, cluster_id=cluster_of(backup), in_service=frozenset({1, 2, 3}))
    home = home_of(tmp_path / "new")
    home.config_file.parent.mkdir(parents=True)
    shipped = (CODE / "configs" / "millrace.yaml").read_text()
    home.config_file.write_text(shipped)
    code, _, err = run(monkeypatch, home.folder, "restore", str(backup))
    assert code != 0
    assert "the main host still runs" in "\n".join(err)
    assert not home.data.exists()
    assert home.config_file.read_text() == shipped


def test_the_brokers_are_asked_with_the_password_in_the_backup(backup: Path) -> None:
    found, _ = mill_of_main_host(home_of(backup.parent / "new"), 1, backup)
    security = entry_to_others(found, backup).security
    assert security is not None
    assert security.password_file == str(backup / "data" / "secrets" / "mill" / "password")
    assert security.ca == str(backup / "data" / "ca.pem")


def test_certificates_of_the_operator_must_be_there(backup: Path) -> None:
    own = FILE.replace("login: users}", "login: users, tls: {certificate: a.pem, key: a.key}}")
    found = mill(backup.parent / "new", own)
    with pytest.raises(RestoreFailed, match=r"a\.pem is missing, a file of yours"):
        MainHostRestore(found, None, skip_lost=False).check(read_manifest(backup), backup)


def test_a_backup_of_one_machine_is_no_main_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = tmp_path / "one"
    text = "cluster: {brokers: 1}\nsinks: {mysql: null}\n"
    old = mill(one, text)
    initialise_mill(old.home, old.config, old.placement)
    old.home.part_data("broker-1").mkdir()
    old.home.config_file.parent.mkdir()
    old.home.config_file.write_text(text)
    take(old, tmp_path / "backup", ignored)
    found = mill(tmp_path / "new", FILE)
    with pytest.raises(RestoreFailed, match="a mill whose brokers are on one machine"):
        restore(found, tmp_path / "backup", found.home.data, ignored)
    code, _, err = run(
        monkeypatch, old.home.folder, "restore", str(tmp_path / "backup"), "--skip-lost"
    )
    assert code == 2
    assert "--skip-lost is for a backup of the main host" in "\n".join(err)


class FakeDatabase:
    """A connection that answers the query for the ledger, and keeps what is written."""

    def __init__(self, ledger: list[tuple[str, str, str]]) -> None:
        self.ledger = ledger
        self.written: list[tuple[str, int, int]] = []
        self.committed = False

    def cursor(self) -> "FakeDatabase":
        return self

    def __enter__(self) -> "FakeDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, _: str) -> None:
        pass

    def fetchall(self) -> list[tuple[str, str, str]]:
        return self.ledger

    def executemany(self, _: str, rows: list[tuple[str, int, int]]) -> None:
        self.written += rows

    def commit(self) -> None:
        self.committed = True


COUNTING = f"""{TEXT}
topics: [{{name: logs}}]
stream:
  from: {{lines: {{topic: logs, format: raw}}}}
  metrics: [{{name: lines_counted, from: lines, measure: count, windows: [all]}}]
"""


@pytest.mark.parametrize(("skip_lost", "written"), [(False, None), (True, [("logs", 0, 50)])])
def test_lost_lines_are_refused_unless_they_are_left_out(
    backup: Path, monkeypatch: pytest.MonkeyPatch, skip_lost: bool, written: Any
) -> None:
    starts = {("logs", 0): 50, ("logs", 1): 0}
    asked(monkeypatch, cluster_id=cluster_of(backup), starts=starts)
    found = mill(backup.parent / "new", COUNTING)
    steps = MainHostRestore(found, None, skip_lost=skip_lost)
    steps.check(read_manifest(backup), backup)
    database = FakeDatabase([("logs", "0", "49"), ("logs", "1", "70")])
    if written is None:
        with pytest.raises(RestoreFailed, match=r"lines are lost .* add --skip-lost"):
            steps.complete_counts(database)
        assert (database.written, database.committed) == ([], False)
        return
    steps.complete_counts(database)
    assert (database.written, database.committed) == (written, True)
    assert "logs-0 is counted up to offset 49" in steps.lost_text
