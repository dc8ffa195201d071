"""Restore a data folder from a backup: verify the backup first, then make the folder visible.

The folder gets its final name at the end, so a mill cannot be started from an interrupted restore.
The next restore removes the files that a killed restore left behind.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from appliance.backup import manifest as manifests
from appliance.backup import tables
from appliance.backup.copying import copy_file
from appliance.backup.database import database_server
from appliance.backup.manifest import BadBackup, Manifest
from appliance.backup.take import DATA, SQL, Report, checksum
from appliance.checks.stream_check import MEMORY
from appliance.errors import Failure
from appliance.machine.files import restoring, sync_folder, write_atomically
from appliance.machine.processes import boot_id
from appliance.mill.parts import BROKER_PREFIX, broker_names, bundles_mysql
from appliance.mill.settings import Mill
from appliance.operate import lifecycle
from appliance.output import counted
from broker.storage.checkpoint import RUNNING, decode_running, encode_running


class RestoreFailed(Failure):
    """Raised when nothing was restored. The text says why. No files are left behind."""


class MainHost(Protocol):
    """What a restore of the main host does beside that of the files. `main_host_restore` has it."""

    def check(self, found: Manifest, backup: Path) -> None: ...

    def complete_files(self, staged: Mill) -> None: ...

    def complete_counts(self, connection: Any) -> None: ...

    def write_config(self) -> None: ...


def restore(
    mill: Mill, backup: Path, target: Path, report: Report, main_host: MainHost | None = None
) -> Manifest:
    """Restore the backup into `target`, which must not exist or must be empty.

    `main_host` is needed for a backup of the main host of a mill on several hosts, and only for
    that. Raises BadBackup, RestoreFailed and other Failures. After an error nothing has changed.
    """
    found = read_manifest(backup)
    assert (found.main_broker is None) == (main_host is None), "the caller knows the backup"
    refuse_target(mill, target)
    if main_host is None:
        refuse_unfit(mill, found)
    refuse_other_sinks(mill, found)
    verify(backup, found, report)
    if main_host is not None:
        main_host.check(found, backup)
    with _staging(target) as (staging, lock):
        _copy(backup, found, staging, report)
        for path in (staging / DATA).glob(f"broker-*/{RUNNING}"):
            renew_boot_id(path)
        at_staging = replace(mill, home=replace(mill.home, folder=staging))
        if main_host is not None:
            main_host.complete_files(at_staging)
        if _has_tables(found):
            report("database", 0, 0)
            with (
                database_server(at_staging, holds=lock) as server,
                (backup / SQL).open(encoding="utf-8", newline="\n") as lines,
            ):
                tables.run(server, lines)
                if main_host is not None:
                    main_host.complete_counts(server)
        if main_host is not None:
            main_host.write_config()
    return found


def read_manifest(backup: Path) -> Manifest:
    """Read the manifest of a backup. Raises BadBackup if there is none or it cannot be used."""
    path = backup / manifests.FILE_NAME
    try:
        return manifests.decode(path.read_bytes())
    except OSError as error:
        raise BadBackup(
            f"{path} cannot be read: {error.strerror}; {backup} is not a backup, or the backup is"
            " incomplete"
        ) from error


def refuse_target(mill: Mill, target: Path) -> None:
    """Raise RestoreFailed if the target is in use."""
    if target == mill.home.data and lifecycle.is_running(mill.home):
        raise RestoreFailed(f"the mill in {mill.home.folder} runs; `./millrace down` stops it")
    if target.exists() and (not target.is_dir() or _holds_anything(target)):
        raise RestoreFailed(
            f"{target} is not empty; move it away first, because restore never overwrites"
        )


def refuse_unfit(mill: Mill, found: Manifest) -> None:
    """Raise RestoreFailed if the configuration is that of a mill with other brokers."""
    if mill.config.cluster.hosts is not None:
        raise RestoreFailed(
            "the backup is of a mill whose brokers are on one machine, and cluster.hosts in"
            f" {mill.home.config_file} names a host for each broker: remove cluster.hosts, or use a"
            " backup of the main host"
        )
    configured = len(broker_names(mill.config))
    if configured != found.brokers:
        raise RestoreFailed(
            f"the backup has the data of {counted(found.brokers, 'broker')}, but cluster.brokers "
            f"in {mill.home.config_file} has {configured}: write the brokers of the backup there"
        )
    kept = {one.path.partition("/")[0] for one in found.folders}
    if absent := [one for one in broker_names(mill.config) if one not in kept]:
        names = ", ".join(sorted(one for one in kept if one.startswith(BROKER_PREFIX)))
        raise RestoreFailed(
            f"the backup has the data of {names}, but cluster.brokers in {mill.home.config_file} "
            f"has {absent[0]}: write the brokers of the backup there"
        )


def refuse_other_sinks(mill: Mill, found: Manifest) -> None:
    """Raise RestoreFailed if only one of the configuration and the backup has MySQL."""
    if bundles_mysql(mill.config) != _has_tables(found):
        backed, file = "has tables of the bundled MySQL", "has no bundled MySQL"
        if not _has_tables(found):
            backed, file = "has no tables of a bundled MySQL", "has one"
        raise RestoreFailed(
            f"the backup {backed}, but sinks.mysql in {mill.home.config_file} {file}: write "
            "sinks.mysql as it was in the mill that was backed up"
        )


def _holds_anything(target: Path) -> bool:
    """Return whether the folder contains anything except the cache of checked expressions."""
    return any(path.name != MEMORY for path in target.iterdir())


def _has_tables(found: Manifest) -> bool:
    return any(file.path == SQL for file in found.files)


def verify(backup: Path, found: Manifest, report: Report) -> None:
    """Raise BadBackup with the file's name if a file has changed since the backup was made."""
    done = 0
    for file in found.files:
        path = backup / file.path
        try:
            with path.open("rb") as reading:
                size_bytes = os.fstat(reading.fileno()).st_size
                if size_bytes != file.size_bytes:
                    raise BadBackup(
                        f"{path} is damaged: it has {size_bytes:,} bytes, expected "
                        f"{file.size_bytes:,}"
                    )
                sha256, _ = checksum(reading)
        except OSError as error:
            raise BadBackup(
                f"{path}, a file of the backup, cannot be read: {error.strerror}"
            ) from error
        if sha256 != file.sha256:
            raise BadBackup(f"{path} is damaged: its checksum does not match")
        done += size_bytes
        report("checked", done, found.size_bytes)


@contextmanager
def _staging(target: Path) -> Iterator[tuple[Path, int]]:
    """Yield a folder beside the target. After the block, its subfolder `data` is renamed to the
    target.

    The yielded descriptor locks the folder while any process has it open, even if the command is
    killed.
    """
    staging = restoring(target)
    lock = _locked(staging, target)
    try:
        if (staging / DATA).exists():
            shutil.rmtree(staging / DATA)
        yield staging, lock
        (target / MEMORY).unlink(missing_ok=True)
        (staging / DATA).rename(target)
        sync_folder(target.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        where = error.filename or target
        raise RestoreFailed(f"{where}: {reason}; nothing was restored") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        os.close(lock)


def _locked(staging: Path, target: Path) -> int:
    """Create and lock the folder of a restore, and return a descriptor of it.

    Raises RestoreFailed.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(staging, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise RestoreFailed(f"{error.filename} cannot be created: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if {path.name for path in staging.iterdir()} - {DATA}:
            raise RestoreFailed(
                f"{staging} has files that do not come from a restore; move the folder away, "
                "and restore again"
            )
    except RestoreFailed:
        os.close(lock)
        raise
    except OSError as error:
        os.close(lock)
        raise RestoreFailed(
            f"another restore into {target} is running; wait until it has ended"
        ) from error
    return lock


def _copy(backup: Path, found: Manifest, staging: Path, report: Report) -> None:
    data = staging / DATA
    data.mkdir(mode=0o755)
    for folder in found.folders:
        (data / folder.path).mkdir(parents=True, exist_ok=True)
        (data / folder.path).chmod(folder.mode)
    done = 0
    for file in found.files:
        if not file.path.startswith(f"{DATA}/"):
            continue
        target = staging / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        done += copy_file(backup / file.path, target, 0)
        target.chmod(file.mode)
        with target.open("rb") as written:
            os.fsync(written.fileno())
        report("copied", done, found.size_bytes)
    for folder_path, _, _ in os.walk(data):
        sync_folder(Path(folder_path))


def renew_boot_id(path: Path) -> None:
    """Set the boot id in a broker's record of its last run to the id of the current boot.

    The same boot id means that the broker lost no data that the kernel had accepted. This is true
    after a restore, because the backup has all of that data and the restored files have been
    fsynced. With another boot id, a replica with `flush=interval` could not become leader.
    """
    with suppress(ValueError):
        broker_epoch, _ = decode_running(path.read_bytes())
        write_atomically(path, encode_running(broker_epoch, boot_id()), mode=0o600)
