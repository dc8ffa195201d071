"""Take a backup: rounds of copying while the mill works, and the last round while it is paused.

While all parts are paused, the disk has the same content as after a `kill -9` of all parts, and a
mill can continue from that (decision 0082). Only MySQL keeps running. Its snapshot is opened during
the pause and written to the backup later.

The copy is consistent because the writers are paused (`supervisor/pausing`). So the last round
copies every file again, unless the file's time stamp proves that no process can have changed it
since (`plan.SETTLED_NS`).
"""

import hashlib
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.backup import manifest as manifests
from appliance.backup import plan, tables
from appliance.backup.copying import Copier, TooSlow
from appliance.backup.database import database_server
from appliance.backup.manifest import Manifest, StoredFile, StoredFolder
from appliance.backup.pause import Pause, PauseFailed, paused
from appliance.errors import Failure
from appliance.machine.files import PRIVATE, sync_folder, write_atomically
from appliance.mill.home import Home
from appliance.mill.init import read_secret
from appliance.mill.moved_folder import refuse_absent
from appliance.mill.parts import (
    BROKER_PREFIX,
    broker_names,
    bundles_mysql,
    bundles_redis,
    has_other_parts,
    main_broker,
)
from appliance.mill.settings import Mill, sinks_settings
from appliance.mill.sinks import SINK_USER
from appliance.operate import lifecycle
from appliance.supervisor import children
from appliance.supervisor.driver import MillAlreadyRunning, take_lock
from protocol.status import VERSION
from sinks.config import MySqlSettings

DATA = "data"
SQL = "mysql.sql"
CONFIG = "millrace.yaml"

LIVE_ROUNDS = 2
"""The number of rounds before the pause.

The first round copies all data, the second the data that was written during the first.
"""

PAUSES_MAX = 5
COPY_S_MAX = 2.0
"""The longest time in seconds for copying in one pause. If it is too short, the backup pauses the
mill again later."""

HASH_BYTES = 1 << 20

Report = Callable[[str, int, int], None]
"""A function that is called with the present step, the bytes done, and the total number of
bytes."""


class BackupFailed(Failure):
    """Raised when no backup was made. The text says why. No files are left behind."""


@dataclass(frozen=True, slots=True)
class TakenBackup:
    """The manifest of a backup, and the data of the mill that the backup does not contain."""

    manifest: Manifest
    left_out: tuple[str, ...] = ()


def take(mill: Mill, target: Path, report: Report) -> TakenBackup:
    """Write a backup of a running or stopped mill to `target`, which must not exist or must be
    empty.

    Raises Failure and removes what it has written. Raises NoSupervisor if the mill ends during the
    backup.
    """
    refuse_unfit(mill, target)
    with _draft(target) as draft:
        taken = _BackupRun(mill, draft, report).run()
        write_atomically(
            draft / manifests.FILE_NAME, manifests.encode(taken.manifest), mode=PRIVATE
        )
    return taken


def refuse_unfit(mill: Mill, target: Path) -> None:
    """Raise BackupFailed if no consistent copy of the mill is possible, or the target is in use.
    Raise MoveFault if the data of a broker are not where the mill looks for them."""
    config, data = mill.config, mill.home.data
    if config.cluster.hosts is None:
        _refuse_servers(mill)
    elif not has_other_parts(config, mill.placement):
        main = config.cluster.hosts[main_broker(config)]
        raise BackupFailed(
            f"a backup is made on the main host, {main}, because it alone has the counts and the"
            " key of the CA: type this command there"
        )
    elif config.sinks.mysql is None and bundles_redis(config):
        raise BackupFailed(
            "without sinks.mysql all counts are in the mill's own Redis, and a backup of the main"
            " host needs them in MySQL: add sinks.mysql before the first start of a mill"
        )
    if not data.is_dir():
        raise BackupFailed(f"there is no mill in {mill.home.folder}: {data} is missing")
    for name in broker_names(config) if config.cluster.hosts is None else ():
        refuse_absent(mill.home.part_data(name))
    place, kept = target.resolve(), data.resolve()
    if place.is_relative_to(kept) or kept.is_relative_to(place):
        raise BackupFailed(
            f"the backup cannot be written to {target}, because one of this folder and {data} is "
            "inside the other: choose another folder"
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupFailed(f"{target} already has files: choose a new folder, or an empty one")


def _refuse_servers(mill: Mill) -> None:
    """Raise BackupFailed if a mill on one machine uses servers that the backup cannot copy."""
    config = mill.config
    if config.cluster.bootstrap_servers is not None:
        raise BackupFailed(
            "cluster.bootstrap_servers names a cluster of your own, which cannot be copied at the"
            " same moment as MySQL; back up MySQL first and then the cluster, each with its own"
            " tools"
        )
    if config.sinks.mysql is not None and not bundles_mysql(config):
        raise BackupFailed(
            "sinks.mysql names a server of your own, which cannot be copied at the same moment as"
            " the brokers' logs; stop the mill, and back up the server and data/ with tools of"
            " your own"
        )
    if config.sinks.mysql is None and mill.part("redis") is None:
        raise BackupFailed(
            "sinks.redis names a server of your own and is the only sink, so a backup would have"
            " no counts; stop the mill, and back up the server and data/ with tools of your own"
        )


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """Yield a folder beside the target. At the end it is renamed to the target.

    After an error the folder is removed.
    """
    draft = target.with_name(f"{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir(mode=0o700)
    except FileExistsError as error:
        raise BackupFailed(
            f"{draft} exists: another backup is running, or a backup was killed. If none is "
            "running, remove the folder"
        ) from error
    except OSError as error:
        raise BackupFailed(f"{error.filename} cannot be created: {error.strerror}") from error
    try:
        yield draft
        draft.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackupFailed(f"{error.filename or draft}: {reason}; no backup was made") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class _BackupRun:
    """The state of one backup while it is being made."""

    def __init__(self, mill: Mill, draft: Path, report: Report) -> None:
        self._mill = mill
        self._draft = draft
        self._report = report
        config = mill.config
        self._main_broker = None if config.cluster.hosts is None else main_broker(config)
        self._has_mysql = bundles_mysql(config)
        self._copier = Copier(
            mill.home.data,
            draft / DATA,
            with_redis=config.sinks.mysql is None,
            with_brokers=self._main_broker is None,
        )
        self._made_at_ms = 0
        self._rows = 0

    def run(self) -> TakenBackup:
        home = self._mill.home
        (self._draft / DATA).mkdir(mode=0o755)
        if lifecycle.is_running(home):
            pause = self._of_a_running_mill()
        else:
            self._of_a_stopped_mill()
            pause = Pause()
        self._copier.prune()
        left_out = _copy_history(home, self._draft / DATA)
        shutil.copyfile(home.config_file, self._draft / CONFIG)
        (self._draft / CONFIG).chmod(PRIVATE)
        names = broker_names(self._mill.config)
        own = names[0] if self._main_broker is None else f"{BROKER_PREFIX}{self._main_broker}"
        found = Manifest(
            version=VERSION,
            made_at_ms=self._made_at_ms,
            paused_ms=pause.length_ms,
            cluster_id=read_secret(home, f"{own}/cluster_id"),
            brokers=len(names),
            rows=self._rows,
            folders=tuple(StoredFolder(*one) for one in self._copier.folders.items()),
            files=tuple(self._stored()),
            main_broker=self._main_broker,
        )
        return TakenBackup(found, left_out)

    def _of_a_running_mill(self) -> Pause:
        view = self._open_view() if self._has_mysql else None
        try:
            for _ in range(LIVE_ROUNDS):
                self._copier.round(self._progress("copied"))
            pause = self._cut(view)
            if view is not None:
                self._write_tables(view)
        finally:
            if view is not None:
                view.close()
        return pause

    def _cut(self, view: Any) -> Pause:
        """Copy the last round while all parts are paused, and start MySQL's snapshot.

        Raises BackupFailed after too many attempts.
        """
        home = self._mill.home
        for _ in range(PAUSES_MAX):
            names = [entry["part"] for entry in lifecycle.snapshot(home)["parts"]]
            # If the mill has MySQL, Redis is not in the backup, because it is filled from MySQL.
            # MySQL keeps running and takes its snapshot while the other parts are paused.
            # On several hosts the broker's log is not copied either, so clients need not wait.
            going_on = {"mysql", "redis", f"{BROKER_PREFIX}{self._main_broker}"}
            still = [name for name in names if name not in going_on]
            if self._main_broker is None and not self._has_mysql:
                still.append("redis")
            try:
                with paused(home, still) as pause:
                    deadline = time.monotonic() + COPY_S_MAX
                    self._made_at_ms = round(time.time() * 1000)
                    if view is not None:
                        tables.begin(view)
                    self._copier.round(deadline=deadline)
            except (TooSlow, PauseFailed) as error:
                why = str(error)
                self._copier.round(self._progress("copied"))
            else:
                return pause
        raise BackupFailed(
            f"the mill was paused {PAUSES_MAX} times, and each pause was too short to copy the "
            f"rest: {why}; make the backup again when fewer lines arrive"
        )

    def _of_a_stopped_mill(self) -> None:
        home = self._mill.home
        if running := children.leftovers(home):
            raise BackupFailed(
                f"{', '.join(running)} run without a supervisor: stop them with `./millrace "
                "down`, then make the backup"
            )
        try:
            lock = take_lock(home)
        except MillAlreadyRunning as error:
            raise BackupFailed(
                f"the mill is being started, so it cannot be backed up now: {error}"
            ) from error
        try:
            self._made_at_ms = round(time.time() * 1000)
            self._copier.round(self._progress("copied"))
            if self._has_mysql:
                with database_server(self._mill) as connection:
                    self._write_tables(connection)
        finally:
            os.close(lock)

    def _open_view(self) -> Any:
        settings = sinks_settings(self._mill, SINK_USER, "stream")["mysql"]
        return tables.open_view(MySqlSettings.model_validate(settings))

    def _write_tables(self, connection: Any) -> None:
        self._report("database", 0, 0)
        path = self._draft / SQL
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            self._rows = tables.write(connection, file)

    def _stored(self) -> Iterator[StoredFile]:
        """Yield every file of the draft with its checksum, after an fsync."""
        paths = sorted(path for path in self._draft.rglob("*") if path.is_file())
        of = sum(path.stat().st_size for path in paths)
        done = 0
        for path in paths:
            sha256, size_bytes = synced_checksum(path)
            done += size_bytes
            self._report("checksums", done, of)
            mode = stat.S_IMODE(path.stat().st_mode)
            yield StoredFile(str(path.relative_to(self._draft)), size_bytes, sha256, mode)
        for folder, _, _ in os.walk(self._draft):
            sync_folder(Path(folder))

    def _progress(self, what: str) -> Callable[[int, int], None]:
        return lambda done, of: self._report(what, done, of)


def _copy_history(home: Home, data: Path) -> tuple[str, ...]:
    """Copy the monitor's history with SQLite's backup function.

    Return the reason if the history cannot be read; otherwise return nothing.
    """
    source, target = home.data / plan.HISTORY, data / plan.HISTORY
    if not source.exists():
        return ()
    try:
        with closing(sqlite3.connect(source)) as reading, closing(sqlite3.connect(target)) as made:
            reading.backup(made)
    except sqlite3.Error as error:
        target.unlink(missing_ok=True)
        return (f"the monitor's history ({error})",)
    target.chmod(stat.S_IMODE(source.stat().st_mode))
    return ()


def synced_checksum(path: Path) -> tuple[str, int]:
    """Sync a file and return its SHA-256 in hexadecimal and its size in bytes."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return checksum(file)


def checksum(file: Any) -> tuple[str, int]:
    """Return the SHA-256 in hexadecimal and the size in bytes of a file."""
    digest = hashlib.sha256()
    size_bytes = 0
    while piece := file.read(HASH_BYTES):
        digest.update(piece)
        size_bytes += len(piece)
    return digest.hexdigest(), size_bytes
