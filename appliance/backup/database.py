"""Runs the database server of a stopped mill, so that a backup can be read from it or restored into
it.

The server listens on its Unix socket only, so it needs no free port.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pymysql

from appliance.backup.tables import AS_WRITTEN, DatabaseFailed
from appliance.errors import Failure
from appliance.launch.servers import mysql_command
from appliance.machine.processes import die_with_parent
from appliance.mill.init import read_secret
from appliance.mill.settings import Mill
from appliance.mill.sinks import DATABASE
from protocol.control import short_path

START_S = 180.0
STOP_S = 60.0
POLL_S = 0.1


@contextmanager
def database_server(mill: Mill, *, holds: int | None = None) -> Iterator[Any]:
    """Yield a root connection to the mill's own database, which is created if it does not exist.

    The server inherits the descriptor `holds`, which has a lock. If the command is killed, the lock
    is kept until the server has ended too. After the block, the server has stopped and all data is
    on the disk. Raises DatabaseFailed and ServerError.
    """
    folder = mill.home.part_data("mysql")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "backup.log"
    command = mysql_command(mill, is_alone=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=() if holds is None else (holds,),
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
    try:
        connection = _connect(mill, process)
        try:
            yield connection
        finally:
            with suppress(pymysql.err.Error):
                connection.close()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise DatabaseFailed(
                f"the database server of the backup did not stop within {STOP_S:.0f} s"
            ) from None
        if code != 0:
            raise DatabaseFailed(
                f"the database server ended with exit code {code}; {log} shows why"
            )
        log.unlink()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _connect(mill: Mill, process: "subprocess.Popen[bytes]") -> Any:
    """Wait until the server answers, and return a connection. By then its users have the passwords
    in `data/secrets`."""
    folder = mill.home.part_data("mysql")
    deadline = time.monotonic() + START_S
    while True:
        try:
            with short_path(folder / "db" / "mysqld.sock") as name:
                return pymysql.connect(
                    unix_socket=name,
                    user="root",
                    password=read_secret(mill.home, "mysql/root"),
                    database=DATABASE,
                    charset="utf8mb4",
                    conv=AS_WRITTEN,
                )
        except (pymysql.err.Error, OSError) as error:
            if process.poll() is not None or time.monotonic() >= deadline:
                raise _did_not_start(mill, error) from error
        time.sleep(POLL_S)


def _did_not_start(mill: Mill, error: Exception) -> Failure:
    log = mill.home.part_data("mysql") / "backup.log"
    lines = "\n".join(f"  {line[:400]}" for line in log.read_text().splitlines()[-8:])
    return DatabaseFailed(f"the database does not start ({error}); it said\n{lines}")
