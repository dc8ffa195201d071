"""Runs the two other servers of a mill, Redis and MySQL (or MariaDB), with their data in `data/`.

Each function prepares what its server needs and returns the command to run. Passwords go into files
of mode 0600, never into arguments. Both servers listen on the loopback only. If the mill runs as
root, both servers run as root like every other part, so that all of `data/` belongs to one account.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from appliance.errors import Failure
from appliance.machine.files import PRIVATE, write_atomically
from appliance.mill import parts
from appliance.mill.home import Home
from appliance.mill.init import read_secret
from appliance.mill.settings import Mill
from appliance.mill.sinks import DATABASE, READER, SINK_USER

SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/libexec")
BUFFER_POOL = "96M"
INITIALISE_TIMEOUT_S = 300

READERS_RULES = (
    "on nopass ~mill:* &mill:* -@all +@read +@connection"
    " +subscribe +psubscribe +unsubscribe +punsubscribe -@dangerous"
)
# The rules of Redis's default user, which cannot log in. It needs all rights, because Redis loads
# its append-only file with the rights of this user, and silently drops each write that this user
# may not make (docs/decisions/0004).
LOADERS_RULES = "off ~* &* +@all"
SINK_RULES = "on ~mill:* &mill:* +@all -@admin -@dangerous +info"


class ServerError(Failure):
    """Raised when a server cannot be started. The text says why and what to do."""


def find_program(*names: str) -> str | None:
    """Find the first of these programs on PATH or in the folders of system programs."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *SBIN])
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def redis_command(mill: Mill) -> list[str]:
    """Write Redis's configuration and return the command that runs it."""
    program = find_program("redis-server")
    if program is None:
        raise ServerError("redis-server is not installed; `make setup` installs it")
    folder = mill.home.part_data("redis")
    folder.mkdir(parents=True, exist_ok=True)
    password = read_secret(mill.home, "redis/password")
    configuration = folder / "redis.conf"
    text = redis_configuration(
        str(folder), mill.config.ports.redis, password, is_only_sink=mill.config.sinks.mysql is None
    )
    write_atomically(configuration, text.encode(), mode=PRIVATE)
    return [program, str(configuration)]


def redis_configuration(
    folder: str, port: int, password: str, *, is_only_sink: bool, host: str = parts.LOOPBACK
) -> str:
    """Return Redis's configuration file.

    If Redis is the only sink, each write is fsynced, so that a power cut loses none. The user
    `reader` needs no password. If the mill has MySQL, clients can also read without a user name.
    """
    digest = hashlib.sha256(password.encode()).hexdigest()
    durability = ["appendonly yes", "appendfsync always"] if is_only_sink else ["appendonly no"]
    lines = [
        f"bind {host}",
        f"port {port}",
        # Outside of the loopback, turn protected mode off, because it rejects users without a
        # password. The mill's user without a password may only read.
        f"protected-mode {'yes' if host == parts.LOOPBACK else 'no'}",
        f'dir "{folder}"',
        "daemonize no",
        'logfile ""',
        "databases 1",
        'save ""',
        *durability,
        "maxmemory-policy noeviction",
        # Redis disconnects a slow subscriber before the subscriber's unread messages fill the
        # memory.
        "client-output-buffer-limit pubsub 16mb 4mb 30",
        f"user default {LOADERS_RULES if is_only_sink else READERS_RULES}",
        f"user {READER} {READERS_RULES}",
        f"user {SINK_USER} {SINK_RULES} #{digest}",
    ]
    return "\n".join(lines) + "\n"


def write_container_files(mill: Mill) -> None:
    """Write the files that the official Redis and MySQL images read, in addition to their secrets.

    They are written at every start.
    """
    home = mill.home
    text = redis_configuration(
        "/data",
        parts.REDIS_IN_CONTAINER,
        read_secret(home, "redis/password"),
        is_only_sink=mill.config.sinks.mysql is None,
        host=parts.ANYWHERE,
    )
    write_atomically(home.part_secrets("redis") / "redis.conf", text.encode(), mode=PRIVATE)
    users = users_sql(home, with_root=False)
    write_atomically(home.part_secrets("mysql") / "users.sql", users.encode(), mode=PRIVATE)


def mysql_command(mill: Mill) -> list[str]:
    """Create the database folder if it is missing and return the command that runs the server."""
    program = find_program("mariadbd", "mysqld")
    if program is None:
        raise ServerError("no MariaDB or MySQL server is installed; `make setup` installs one")
    folder = mill.home.part_data("mysql")
    database = folder / "db"
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    if not database.exists():
        make_database(program, folder, database)
    start_file = folder / "users.sql"
    write_atomically(start_file, users_sql(mill.home).encode(), mode=PRIVATE)
    return [program, *mysql_arguments(folder, mill.config.ports.mysql, start_file)]


def mysql_arguments(folder: Path, port: int, start_file: Path) -> list[str]:
    """Return the server's options. Those that begin with `loose` are known to only one of MySQL and
    MariaDB."""
    return [
        "--no-defaults",
        *_as_root(),
        f"--datadir={folder / 'db'}",
        f"--tmpdir={folder / 'tmp'}",
        # A path relative to the data folder, because an absolute path can be too long for a socket.
        "--socket=mysqld.sock",
        f"--pid-file={folder / 'mysqld.pid'}",
        f"--bind-address={parts.LOOPBACK}",
        f"--port={port}",
        f"--init-file={start_file}",
        # Without this option, MariaDB's anonymous user at localhost would take precedence over
        # `mill@%`.
        "--skip-name-resolve",
        "--local-infile=0",
        "--innodb-flush-log-at-trx-commit=1",
        f"--innodb-buffer-pool-size={BUFFER_POOL}",
        "--loose-innodb-buffer-pool-chunk-size=32M",
        "--key-buffer-size=1M",
        "--loose-aria-pagecache-buffer-size=8M",
        "--loose-performance-schema=OFF",
        "--loose-mysqlx=OFF",
        "--skip-log-bin",
        "--max-connections=60",
        "--table-open-cache=200",
        "--character-set-server=utf8mb4",
        "--collation-server=utf8mb4_bin",
        "--transaction-isolation=READ-COMMITTED",
        "--default-time-zone=+00:00",
    ]


def make_database(program: str, folder: Path, database: Path) -> None:
    """Create the server's own tables at the first start.

    The folder gets its final name only when it is complete.
    """
    for leftover in folder.glob("db.partial*"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix="db.partial", dir=folder))
    installer = find_program("mariadb-install-db", "mysql_install_db")
    is_mariadb = installer is not None and "mariadb" in _version(program).lower()
    if is_mariadb and installer is not None:
        command = [
            installer,
            "--no-defaults",
            f"--datadir={partial}",
            f"--tmpdir={folder / 'tmp'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            *_as_root(),
        ]
    else:
        command = [
            program,
            "--no-defaults",
            "--initialize-insecure",
            f"--datadir={partial}",
            *_as_root(),
        ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=INITIALISE_TIMEOUT_S,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"the database could not be created: {error}") from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise ServerError(
            f"the database could not be created (exit code {done.returncode}):\n{tail}"
        )
    partial.rename(database)


def users_sql(home: Home, *, with_root: bool = True) -> str:
    """Return statements that the server runs at every start before clients can connect, one a line.

    So the server always has the passwords in `data/secrets`, even if these were replaced. In
    containers the image sets the root password.
    """
    root, mill, reader = (
        read_secret(home, f"mysql/{name}").replace("\\", "\\\\").replace("'", "''")
        for name in ("root", SINK_USER, READER)
    )
    lines = [
        f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;",
    ]
    if with_root:
        lines.append(f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{root}';")
        # MariaDB's installation also makes these two, without a password.
        lines += [f"DROP USER IF EXISTS 'root'@'{host}';" for host in ("127.0.0.1", "::1")]
    grants = {
        SINK_USER: (mill, "ALL PRIVILEGES"),
        READER: (reader, "SELECT, SHOW VIEW"),
    }
    for user, (password, rights) in grants.items():
        lines += [
            f"CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{password}';",
            f"ALTER USER '{user}'@'%' IDENTIFIED BY '{password}';",
            f"GRANT {rights} ON {DATABASE}.* TO '{user}'@'%';",
        ]
    return "\n".join(lines) + "\n"


def _as_root() -> list[str]:
    """Return the option for running as root, without which both servers refuse to run as root.

    Return nothing for other accounts.
    """
    return ["--user=root"] if os.geteuid() == 0 else []


def _version(program: str) -> str:
    done = subprocess.run(
        [program, "--no-defaults", "--version"], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr
