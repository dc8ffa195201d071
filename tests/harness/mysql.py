"""A separate MySQL or MariaDB server: a free port, a folder of the test, one database per test."""

import getpass
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pymysql
import pytest

from sinks.config import MySqlSettings
from tests.harness.ports import free_port
from tests.harness.processes import ServerProcess
from tests.harness.wait import wait_until

PASSWORD = "a-test's-own"


def _program(*names: str) -> str:
    for name in names:
        found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
        if found is not None:
            return found
    pytest.skip(f"{names[0]} is not installed")


class MySqlServer(ServerProcess):
    """One server process. `kill9` and `start` keep the data and may alternate."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        super().__init__("database server", folder / "mysql.log")
        self._server = _program("mariadbd", "mysqld")
        self._folder = folder
        self._options = options
        self._databases = 0
        self.port = free_port()

    def settings(self, database: str) -> MySqlSettings:
        """Return the writer's settings for a database."""
        return MySqlSettings(
            host="127.0.0.1",
            port=self.port,
            user="mill",
            password=PASSWORD,
            database=database,
            reader=None,
        )

    def start(self) -> Self:
        """Initialise the data folder if it is new, start the server, and wait until it responds."""
        data = self._folder / "data"
        first = not data.exists()
        if first:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._initialise(data)
        arguments = [
            self._server,
            "--no-defaults",
            f"--datadir={data}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self._socket}",
            f"--pid-file={self._folder / 'mysql.pid'}",
            "--skip-name-resolve",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            # A kill loses nothing that the kernel has, and no test cuts the power of this server.
            "--innodb-flush-log-at-trx-commit=2",
            f"--user={getpass.getuser()}",
            *self._options,
        ]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log)
        wait_until(self._root_answers, 60, "the database server answers")
        if first:
            self.as_root(
                f'CREATE USER mill@"%" IDENTIFIED BY "{PASSWORD}"',
                'GRANT ALL ON *.* TO mill@"%"',
            )
        return self

    def new_database(self, collation: str = "utf8mb4_bin") -> MySqlSettings:
        """Create an empty database for one test."""
        self._databases += 1
        name = f"millrace_{os.getpid()}_{self._databases}"
        self.as_root(f"CREATE DATABASE {name} COLLATE {collation}")
        return self.settings(name)

    def connect(self, settings: MySqlSettings) -> "pymysql.Connection[pymysql.cursors.DictCursor]":
        """Return a read connection whose rows are dicts."""
        return pymysql.connect(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=settings.password,
            database=settings.database,
            autocommit=True,
            cursorclass=pymysql.cursors.DictCursor,
        )

    @property
    def _socket(self) -> Path:
        return self._folder / "s.sock"

    def _initialise(self, data: Path) -> None:
        if "mariadbd" in Path(self._server).name:
            program = _program("mariadb-install-db", "mysql_install_db")
            arguments = [program, "--no-defaults", "--auth-root-authentication-method=normal"]
            arguments += [f"--user={getpass.getuser()}", f"--datadir={data}"]
        else:
            arguments = [self._server, "--no-defaults", "--initialize-insecure"]
            arguments += [f"--user={getpass.getuser()}", f"--datadir={data}"]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _root_answers(self) -> bool:
        self._check_alive()
        self.as_root("SELECT 1")
        return True

    def as_root(self, *statements: str) -> None:
        """Run statements as the user root, over the server's socket."""
        connection = pymysql.connect(unix_socket=str(self._socket), user="root", autocommit=True)
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
