"""Restores the main host of a mill on several hosts on a new machine (decision 0253).

The brokers on the other hosts run, and are asked before anything is written. Broker 1 starts with
an empty disk and copies from them. MySQL gets the counts and the ledger of the backup. The stream
counts everything after that again from the brokers' logs.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pymysql

from appliance.backup.main_host import (
    Continuation,
    RemainingCluster,
    continuation,
    refusals_of_cluster,
    refusals_of_file,
)
from appliance.backup.manifest import Manifest
from appliance.backup.remaining_brokers import ask, entry_to_others
from appliance.backup.restore import RestoreFailed
from appliance.backup.tables import DatabaseFailed
from appliance.backup.take import CONFIG
from appliance.config.load import load
from appliance.machine.files import PRIVATE, write_atomically
from appliance.mill.home import Home
from appliance.mill.init import is_config_untouched
from appliance.mill.parts import Placement, main_broker
from appliance.mill.settings import Mill
from appliance.mill.voter_folders import mark_newcomer
from sinks.mysql.link import error_code
from sinks.mysql.sink import NO_SUCH_TABLE

SKIP_OPTION = "--skip-lost"


class MainHostRestore:
    """The steps of a restore that only the main host needs. `restore` calls them in this order."""

    def __init__(self, mill: Mill, config: bytes | None, *, skip_lost: bool) -> None:
        """`mill` and `config` are the result of `mill_of_main_host`. With `skip_lost`, lines that
        no broker has any more are left out of the counts."""
        self._mill = mill
        self._broker = main_broker(mill.config)
        self._config = config
        self._skip_lost = skip_lost
        self._cluster: RemainingCluster | None = None
        self.lost_text = ""
        """The lines that are left out of the counts, in words; empty if there are none."""

    @property
    def writes_config(self) -> bool:
        """True if the configuration of the backup is written."""
        return self._config is not None

    def check(self, found: Manifest, backup: Path) -> None:
        """Ask the brokers on the other hosts. Raises RestoreFailed if the main host cannot join
        them, and CommandError if none answers."""
        mill = self._mill
        hosts = mill.config.cluster.hosts or {}
        tls = mill.config.network.tls
        for path in filter(None, (tls.certificate, tls.key, tls.ca)):
            if not (mill.home.folder / path).is_file():
                raise RestoreFailed(
                    f"{mill.home.folder / path} is missing, a file of yours that network.tls names:"
                    " copy it to this machine, and type this command again"
                )
        self._cluster = ask(entry_to_others(mill, backup), self._broker, mill.config.stream.topics)
        name = hosts[self._broker]
        _refuse(
            refusals_of_cluster(self._broker, found.cluster_id, tuple(hosts), name, self._cluster)
        )

    def complete_files(self, staged: Mill) -> None:
        """Let the broker of this host join the others with an empty disk."""
        mark_newcomer(staged.home, self._broker)

    def complete_counts(self, connection: Any) -> None:
        """Write into the restored ledger from where the stream counts partitions that it lacks.
        Raises RestoreFailed if lines are lost, and DatabaseFailed."""
        assert self._cluster is not None, "check comes first"
        try:
            ledger = _read_ledger(connection)
            found = continuation(ledger or {}, self._cluster, self._mill.config.stream.topics)
            if found.lost and not self._skip_lost:
                raise RestoreFailed(
                    f"lines are lost that the backup has not counted: {found.lost_text}. Use a"
                    f" newer backup. If there is none, add {SKIP_OPTION} to count without these"
                    " lines"
                )
            if ledger is not None:
                _write_ledger(connection, found)
        except pymysql.err.Error as error:
            raise DatabaseFailed(f"the restored ledger cannot be completed: {error}") from error
        self.lost_text = found.lost_text

    def write_config(self) -> None:
        """Write the configuration of the backup, unless this host has its own file."""
        if self._config is not None:
            path = self._mill.home.config_file
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, self._config, mode=PRIVATE)


def mill_of_main_host(home: Home, broker: int, backup: Path) -> tuple[Mill, bytes | None]:
    """Return the mill of a main host with this broker, and the configuration file to write; None if
    this machine has a file of its own.

    Raises ConfigFaults, and RestoreFailed if the file does not fit the backup.
    """
    stored = is_config_untouched(home)
    path = backup / CONFIG if stored else home.config_file
    loaded = load(path, home.folder)
    _refuse(refusals_of_file(broker, loaded.config, str(path)))
    # The key of the CA, which makes this machine the main host, is still in the backup.
    mill = Mill(home, loaded.config, Placement(broker=broker))
    return mill, loaded.data if stored else None


def _refuse(reasons: Iterator[str]) -> None:
    if found := list(reasons):
        raise RestoreFailed("; ".join(found))


def _read_ledger(connection: Any) -> dict[tuple[str, int], int] | None:
    """Return the offsets that the backup has counted; None if the stream has never counted."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT topic, part, end_offset FROM ledger")
            rows: Iterable[Any] = cursor.fetchall()
    except pymysql.err.Error as error:
        if error_code(error) == NO_SUCH_TABLE:
            return None
        raise
    return {(str(topic), int(part)): int(end) for topic, part, end in rows}


def _write_ledger(connection: Any, found: Continuation) -> None:
    rows = {**found.rows, **found.after_loss}
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO ledger (topic, part, end_offset) VALUES (%s,%s,%s)"
            " ON DUPLICATE KEY UPDATE end_offset = VALUES(end_offset)",
            [(topic, part, offset) for (topic, part), offset in sorted(rows.items())],
        )
    connection.commit()
