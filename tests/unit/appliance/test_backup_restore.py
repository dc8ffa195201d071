"""Backup and restore of a stopped mill, and why each is refused. No server runs here."""

import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.backup.manifest import BadBackup
from appliance.backup.restore import RestoreFailed, renew_boot_id, restore
from appliance.backup.take import BackupFailed, take
from appliance.checks.startup import CheckLevel, before_start, unfinished_restore
from appliance.config.load import load_text
from appliance.machine.processes import boot_id
from appliance.mill.home import find_home
from appliance.mill.init import initialise
from appliance.mill.moved_folder import MoveFault, refuse_absent, unfinished, wanted_move
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill
from appliance.supervisor.control import NoSupervisor
from appliance.supervisor.driver import take_lock
from broker.storage.checkpoint import decode_running, encode_running
from tests.harness.mounts import MIB, Tmpfs

TEXT = """
cluster: {brokers: 1}
stream: {metrics: []}
sinks: {mysql: null}
monitor: {listen: 127.0.0.1:8090}
"""
LOG = "broker-1/t-0/00000000000000000000.log"


def mill_in(folder: Path, text: str = TEXT) -> Mill:
    home = find_home({"MILLRACE_HOME": str(folder)})
    home.config_file.parent.mkdir(parents=True, exist_ok=True)
    home.config_file.write_text(text)
    config = load_text(text, "millrace.yaml", folder, {}).config
    return Mill(home, config, Placement())


def ignored(what: str, done: int, of: int) -> None:
    """A progress callback that does nothing."""


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    """Return a mill that has run and is stopped."""
    found = mill_in(tmp_path / "old")
    initialise(found.home, (1,))
    for path, data in {
        LOG: b"batches",
        "broker-1/.running": encode_running(9, "another boot"),
        "collector/instance": b"a name\n",
        "redis/appendonlydir/appendonly.aof.1.incr.aof": b"*1\r\n",
        "logs/broker-1.log": b"said\n",
    }.items():
        file = found.home.data / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return found


@pytest.fixture
def backup(mill: Mill, tmp_path: Path) -> Path:
    take(mill, tmp_path / "backup", ignored)
    return tmp_path / "backup"


@pytest.fixture
def new(tmp_path: Path) -> Mill:
    return mill_in(tmp_path / "new")


def files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_restored_folder_holds_what_was_backed_up(mill: Mill, backup: Path, new: Mill) -> None:
    restore(new, backup, new.home.data, ignored)
    old = files(mill.home.data)
    del old["logs/broker-1.log"], old["supervisor.lock"]
    old["broker-1/.running"] = encode_running(9, boot_id())
    assert files(new.home.data) == old
    secret = new.home.secrets / "redis" / "password"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o700
    assert sorted(path.name for path in new.home.folder.iterdir()) == ["configs", "data"]


def test_a_backup_of_other_brokers_is_refused_by_their_names(tmp_path: Path) -> None:
    listed = TEXT.replace("brokers: 1", "brokers: [1, 3, 4]")
    old, new = mill_in(tmp_path / "old", listed), mill_in(tmp_path / "new", listed)
    initialise(old.home, (1, 3, 4))
    for number in (1, 3, 4):
        old.home.part_data(f"broker-{number}").mkdir(parents=True)
    take(old, tmp_path / "backup", ignored)
    three = mill_in(tmp_path / "three", TEXT.replace("brokers: 1", "brokers: 3"))
    said = "the backup has the data of broker-1, broker-3, broker-4, but .* has broker-2"
    with pytest.raises(RestoreFailed, match=said):
        restore(three, tmp_path / "backup", three.home.data, ignored)
    restore(new, tmp_path / "backup", new.home.data, ignored)
    assert new.home.part_data("broker-4").is_dir()


def test_no_other_user_may_read_a_backup(backup: Path) -> None:
    assert stat.S_IMODE(backup.stat().st_mode) == 0o700
    for name in ("manifest.json", "millrace.yaml", "data/secrets/redis/password"):
        assert stat.S_IMODE((backup / name).stat().st_mode) == 0o600


def test_a_restored_replica_is_trusted_under_the_running_kernel(tmp_path: Path) -> None:
    note = tmp_path / ".running"
    note.write_bytes(encode_running(9, "another boot"))
    renew_boot_id(note)
    assert decode_running(note.read_bytes()) == (9, boot_id())
    note.write_bytes(b"\0\0\0")
    renew_boot_id(note)
    assert note.read_bytes() == b"\0\0\0", "a torn note stays as it is"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
@pytest.mark.parametrize("name", [f"data/{LOG}", "millrace.yaml", "manifest.json"])
def test_a_damaged_backup_is_refused_with_the_file_s_name(
    backup: Path, new: Mill, name: str, damage: Callable[[Path], None]
) -> None:
    damage(backup / name)
    with pytest.raises(BadBackup, match=Path(name).name):
        restore(new, backup, new.home.data, ignored)
    assert not new.home.data.exists()


def test_nothing_is_overwritten(mill: Mill, backup: Path, new: Mill) -> None:
    before = files(mill.home.data)
    with pytest.raises(RestoreFailed, match="is not empty; move it away first"):
        restore(mill, backup, mill.home.data, ignored)
    assert files(mill.home.data) == before
    new.home.data.mkdir()
    restore(new, backup, new.home.data, ignored)
    assert (new.home.data / LOG).exists(), "an empty folder is as good as none"


def test_what_a_check_of_the_file_left_is_no_mill(backup: Path, new: Mill) -> None:
    """`config check` and a refused `up` store the expressions that Spark has accepted. Such a file
    alone is not a mill, so it must not block a restore."""
    new.home.data.mkdir()
    (new.home.data / "checked-expressions").write_text("a hash")
    restore(new, backup, new.home.data, ignored)
    assert (new.home.data / LOG).exists()


def test_a_mill_that_runs_is_left_alone(backup: Path, new: Mill) -> None:
    lock = take_lock(new.home)
    try:
        with pytest.raises(RestoreFailed, match="millrace down` stops it"):
            restore(new, backup, new.home.data, ignored)
    finally:
        os.close(lock)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("brokers: 1", "brokers: 3"), "of 1 broker, but .* has 3"),
        (TEXT.replace("sinks: {mysql: null}\n", ""), "has one: write sinks.mysql as it was"),
    ],
)
def test_a_configuration_of_another_mill_is_refused(
    backup: Path, tmp_path: Path, text: str, why: str
) -> None:
    other = mill_in(tmp_path / "other", text)
    with pytest.raises(RestoreFailed, match=why):
        restore(other, backup, other.home.data, ignored)
    assert not other.home.data.exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cluster: {bootstrap_servers: 'a:9092'}", "cluster.bootstrap_servers names a cluster"),
        ("sinks: {mysql: {host: db}}", "sinks.mysql names a server of your own"),
        ("sinks: {mysql: null, redis: {host: cache}}", "sinks.redis names a server of your own"),
    ],
)
def test_external_servers_have_no_moment_in_common(
    mill: Mill, tmp_path: Path, text: str, why: str
) -> None:
    config = load_text(text, "millrace.yaml", tmp_path, {}).config
    with pytest.raises(BackupFailed, match=why):
        take(replace(mill, config=config), tmp_path / "backup", ignored)
    assert not (tmp_path / "backup").exists()


def test_a_place_that_is_taken_is_refused(mill: Mill, backup: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match="already has files"):
        take(mill, backup, ignored)
    with pytest.raises(BackupFailed, match="is inside the other"):
        take(mill, mill.home.data / "backups" / "today", ignored)
    (tmp_path / "second.partial").mkdir()
    with pytest.raises(BackupFailed, match="another backup is running, or a backup was killed"):
        take(mill, tmp_path / "second", ignored)
    with pytest.raises(BackupFailed, match="there is no mill"):
        take(mill_in(tmp_path / "nowhere"), tmp_path / "third", ignored)


def test_a_restore_ignores_a_move_that_was_not_finished(mill: Mill, tmp_path: Path) -> None:
    """With the record of the move the restored data would be exchanged for those of before."""
    link = mill.home.part_data("broker-1")
    move = wanted_move(link, tmp_path / "disk", 0)
    assert move is not None
    move.carry_out()
    take(mill, tmp_path / "moved", ignored)
    assert not [one for one in (tmp_path / "moved" / "data").iterdir() if "." in one.name]
    other = mill_in(tmp_path / "other")
    restore(other, tmp_path / "moved", other.home.data, ignored)
    assert unfinished(other.home.part_data("broker-1")) is None
    refuse_absent(other.home.part_data("broker-1"))


def test_a_mill_whose_broker_is_on_an_absent_disk_is_not_copied(mill: Mill, tmp_path: Path) -> None:
    """Otherwise the backup would lack the data of the broker, and only the restore would say so."""
    link = mill.home.part_data("broker-1")
    move = wanted_move(link, tmp_path / "disk", 0)
    assert move is not None
    move.carry_out()
    move.finish()
    (tmp_path / "disk").rename(tmp_path / "elsewhere")
    with pytest.raises(MoveFault, match="which is not there: mount its disk"):
        take(mill, tmp_path / "moved", ignored)
    assert not (tmp_path / "moved").exists()


def restore_until_copied(new: Mill, backup: Path) -> int:
    """Fork a process that restores a mill and stops after its first file. Return its id once it has
    stopped."""
    reader, writer = os.pipe()

    def stop_here(what: str, done: int, of: int) -> None:
        if what == "copied":
            os.write(writer, b"!")
            signal.pause()

    if not (pid := os.fork()):
        with suppress(BaseException):
            restore(new, backup, new.home.data, stop_here)
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        assert told.read(1) == b"!", "the restore has begun to copy"
    return pid


def test_a_killed_restore_starts_again(backup: Path, new: Mill) -> None:
    """The half-restored folder has another name than `data`, so it is not taken for a mill. `up`
    must refuse until the restore is repeated, because it would create an empty mill."""
    data, staging = new.home.data, new.home.data.with_name("data.restoring")
    pid = restore_until_copied(new, backup)
    try:
        with pytest.raises(RestoreFailed, match=f"another restore into {data} is running"):
            restore(new, backup, data, ignored)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert staging.is_dir() and not data.exists()
    (told,) = unfinished_restore(new.home)
    assert told.level is CheckLevel.FAILED
    assert str(staging) in told.found
    assert told in before_start(new)
    (staging / "mine").touch()
    with pytest.raises(RestoreFailed, match="has files that do not come from a restore"):
        restore(new, backup, data, ignored)
    (staging / "mine").unlink()
    (staging / "data" / "of-the-first").touch()
    restore(new, backup, data, ignored)
    assert (data / LOG).read_bytes() == b"batches"
    assert not staging.exists() and not (data / "of-the-first").exists()
    staging.mkdir()
    assert list(unfinished_restore(new.home)) == [], "there is a mill, which goes on"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Tmpfs]:
    with Tmpfs(tmp_path / "small", 4) as mounted:
        yield mounted


def test_on_a_full_disk_nothing_is_left(
    mill: Mill, backup: Path, new: Mill, small_disk: Tmpfs, tmp_path: Path
) -> None:
    (mill.home.data / LOG).write_bytes(bytes(8 * MIB))
    with pytest.raises(BackupFailed, match="No space left on device; no backup was made"):
        take(mill, small_disk.folder / "backup", ignored)
    assert list(small_disk.folder.iterdir()) == []
    take(mill, tmp_path / "large", ignored)
    with pytest.raises(RestoreFailed, match="No space left on device; nothing was restored"):
        restore(new, tmp_path / "large", small_disk.folder / "data", ignored)
    assert list(small_disk.folder.iterdir()) == []


def test_what_is_being_made_or_stopped_is_not_backed_up(mill: Mill, tmp_path: Path) -> None:
    """A supervisor that is starting or stopping holds the lock but does not answer. A backup must
    refuse."""
    lock = take_lock(mill.home)
    try:
        with pytest.raises(NoSupervisor):
            take(mill, tmp_path / "backup", ignored)
    finally:
        os.close(lock)
    assert not (tmp_path / "backup").exists() and not (tmp_path / "backup.partial").exists()
