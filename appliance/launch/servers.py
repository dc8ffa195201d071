"""Runs the two other servers of a mill, Redis and MySQL (or MariaDB), with their data in `data/`.

Each function prepares what its server needs and returns the command to run. Passwords go into files
of mode 0600, never into arguments. Both servers listen on the loopback only, unless `network.open`
names them (`opening`). If the mill runs as root, both servers run as root like every other part, so
that all of `data/` belongs to one account.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from appliance.errors import Failure
from appliance.launch.opening import (
    REDIS_OF_IMAGE,
    ServerOpening,
    mysql_options,
    mysql_options_in_container,
    opening_in_container,
    opening_of,
    readers_terms,
    redis_lines,
    version_of,
)
from appliance.machine.files import PRIVATE, write_atomically
from appliance.mill import parts
from appliance.mill.home import Home
from appliance.mill.init import read_secret
from appliance.mill.settings import Mill
from appliance.mill.sinks import (
    DATABASE,
    MONITOR_USER,
    READER,
    SINK_USER,
    SOCKETS,
    SOCKETS_IN_CONTAINERS,
)

SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/libexec")
BUFFER_POOL = "96M"
INITIALISE_TIMEOUT_S = 300

READING = (
    "~mill:* &mill:* -@all +@read +@connection"
    " +subscribe +psubscribe +unsubscribe +punsubscribe -@dangerous"
)
READERS_RULES = f"on nopass {READING}"
# A command that blocks could keep its connection for ever in spite of the limit for idle ones.
OPEN_READERS_RULES = f"on {READING} -@blocking"
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
    port, is_only_sink = mill.config.ports.redis, mill.config.sinks.mysql is None
    if "redis" in mill.config.network.open:
        text = _open_redis(mill, program, password, is_only_sink=is_only_sink)
    else:
        text = redis_configuration(str(folder), port, password, is_only_sink=is_only_sink)
    write_atomically(configuration, text.encode(), mode=PRIVATE)
    return [program, str(configuration)]


def _open_redis(mill: Mill, program: str, password: str, *, is_only_sink: bool) -> str:
    """Return Redis's configuration file if other machines reach Redis."""
    home = mill.home
    opening = opening_of(home, "redis", mill.config.network.listen)
    version = version_of(version_text(program))
    listeners = redis_lines(opening, mill.config.ports.redis, SOCKETS["redis"], version)
    users = _open_redis_users(home, opening, password, is_only_sink=is_only_sink)
    folder = str(home.part_data("redis"))
    return _redis_text(folder, [*listeners, *_durability(is_only_sink)], users)


def _open_redis_users(
    home: Home, opening: ServerOpening, password: str, *, is_only_sink: bool
) -> list[str]:
    """Return the lines with the users of an open Redis. Each of them has a password."""
    home_password = read_secret(home, "redis/monitor")
    return [
        f"user default {LOADERS_RULES if is_only_sink else 'off -@all'}",
        f"user {READER} {OPEN_READERS_RULES} {_digest(opening.password)}",
        f"user {MONITOR_USER} on {READING} {_digest(home_password)}",
        f"user {SINK_USER} {SINK_RULES} {_digest(password)}",
    ]


def redis_configuration(
    folder: str, port: int, password: str, *, is_only_sink: bool, host: str = parts.LOOPBACK
) -> str:
    """Return Redis's configuration file.

    If Redis is the only sink, each write is fsynced, so that a power cut loses none. The user
    `reader` needs no password. If the mill has MySQL, clients can also read without a user name.
    """
    listeners = [
        f"bind {host}",
        f"port {port}",
        # Outside of the loopback, turn protected mode off, because it rejects users without a
        # password. The mill's user without a password may only read.
        f"protected-mode {'yes' if host == parts.LOOPBACK else 'no'}",
    ]
    users = [
        f"user default {LOADERS_RULES if is_only_sink else READERS_RULES}",
        f"user {READER} {READERS_RULES}",
        f"user {SINK_USER} {SINK_RULES} {_digest(password)}",
    ]
    return _redis_text(folder, [*listeners, *_durability(is_only_sink)], users)


def _durability(is_only_sink: bool) -> list[str]:
    return ["appendonly yes", "appendfsync always"] if is_only_sink else ["appendonly no"]


def _digest(password: str) -> str:
    """Return the hash of a password as Redis's configuration has it."""
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def _redis_text(folder: str, varying: list[str], users: list[str]) -> str:
    lines = [
        f'dir "{folder}"',
        *varying,
        "daemonize no",
        'logfile ""',
        "databases 1",
        'save ""',
        "maxmemory-policy noeviction",
        # Redis disconnects a slow subscriber before the subscriber's unread messages fill the
        # memory.
        "client-output-buffer-limit pubsub 16mb 4mb 30",
        *users,
    ]
    return "\n".join(lines) + "\n"


def write_container_files(mill: Mill) -> None:
    """Write the files that the official Redis and MySQL images read, in addition to their secrets.

    They are written at every start. The files for an open server exist only while it is opened, so
    a server that compose publishes to other machines cannot start without TLS.
    """
    home, opened = mill.home, mill.config.network.open
    password, is_only_sink = read_secret(home, "redis/password"), mill.config.sinks.mysql is None
    folder, port = "/data", parts.REDIS_IN_CONTAINER
    secrets = home.part_secrets("redis")
    closed = redis_configuration(
        folder, port, password, is_only_sink=is_only_sink, host=parts.ANYWHERE
    )
    write_atomically(secrets / "redis.conf", closed.encode(), mode=PRIVATE)
    redis = opening_in_container(home, "redis") if "redis" in opened else None
    text = None
    if redis is not None:
        lines = redis_lines(redis, port, SOCKETS_IN_CONTAINERS["redis"], REDIS_OF_IMAGE)
        users = _open_redis_users(home, redis, password, is_only_sink=is_only_sink)
        text = _redis_text(folder, [*lines, *_durability(is_only_sink)], users)
    _write_or_remove(secrets / "open.conf", text)

    secrets = home.part_secrets("mysql")
    mysql = opening_in_container(home, "mysql") if "mysql" in opened else None
    statements = users_sql(home, in_image=True, opening=mysql)
    write_atomically(secrets / "users.sql", statements.encode(), mode=PRIVATE)
    options = [] if mysql is None else mysql_options_in_container(mysql)
    _write_or_remove(secrets / "open.options", "".join(f"{one}\n" for one in options) or None)


def _write_or_remove(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink(missing_ok=True)
    else:
        write_atomically(path, text.encode(), mode=PRIVATE)


def mysql_command(mill: Mill, *, is_alone: bool = False) -> list[str]:
    """Create the database folder if it is missing and return the command that runs the server.

    `is_alone`: the server listens on its socket only, and needs no certificate.
    """
    program = find_program("mariadbd", "mysqld")
    if program is None:
        raise ServerError("no MariaDB or MySQL server is installed; `make setup` installs one")
    folder = mill.home.part_data("mysql")
    database = folder / "db"
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    if not database.exists():
        make_database(program, folder, database)
    start_file = folder / "users.sql"
    network = mill.config.network
    opening = None
    if "mysql" in network.open and not is_alone:
        opening = opening_of(mill.home, "mysql", network.listen)
    write_atomically(start_file, users_sql(mill.home, opening=opening).encode(), mode=PRIVATE)
    arguments = mysql_arguments(folder, mill.config.ports.mysql, start_file)
    # The last of two equal options counts.
    more = ["--skip-networking"] if is_alone else mysql_options(opening) if opening else []
    return [program, *arguments, *more]


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
    is_mariadb = installer is not None and "mariadb" in version_text(program).lower()
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


def users_sql(home: Home, *, in_image: bool = False, opening: ServerOpening | None = None) -> str:
    """Return statements that the server runs at every start before clients can connect, one a line.

    So the server always has the passwords in `data/secrets`, even if these were replaced. If the
    server is an image (`in_image`), the image sets the password of root, and makes a root for all
    hosts. If the server is open, the mill's own accounts can
    log in over its socket only, and readers have another account for TLS. The statements of a
    server that is not open take this back.
    """
    root, mill, reader = (
        _quoted(read_secret(home, f"mysql/{name}")) for name in ("root", SINK_USER, READER)
    )
    lines = [
        f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;",
    ]
    if in_image:
        lines.append("DROP USER IF EXISTS 'root'@'%';")
    else:
        lines.append(f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{root}';")
        # MariaDB's installation also makes these two, without a password.
        lines += [f"DROP USER IF EXISTS 'root'@'{host}';" for host in ("127.0.0.1", "::1")]
    host, other = ("%", "localhost") if opening is None else ("localhost", "%")
    reads = "SELECT, SHOW VIEW"
    lines.append(f"DROP USER IF EXISTS '{SINK_USER}'@'{other}';")
    lines += _account(SINK_USER, host, mill, "ALL PRIVILEGES")
    if opening is None:
        lines.append(f"DROP USER IF EXISTS '{READER}'@'localhost';")
        lines += _account(READER, "%", reader, reads, readers_terms(is_open=False))
    else:
        lines += _account(READER, "localhost", reader, reads)
        password, terms = _quoted(opening.password), readers_terms(is_open=True)
        lines += _account(READER, "%", password, reads, terms)
    return "\n".join(lines) + "\n"


def _quoted(password: str) -> str:
    """Return a password with the escapes that it needs between the quotes of a statement."""
    return password.replace("\\", "\\\\").replace("'", "''")


def _account(user: str, host: str, password: str, rights: str, terms: str = "") -> list[str]:
    """Return the statements that make or change one account."""
    who = f"'{user}'@'{host}'"
    return [
        f"CREATE USER IF NOT EXISTS {who} IDENTIFIED BY '{password}';",
        f"ALTER USER {who} IDENTIFIED BY '{password}'{f' {terms}' if terms else ''};",
        f"GRANT {rights} ON {DATABASE}.* TO {who};",
    ]


def _as_root() -> list[str]:
    """Return the option for running as root, without which both servers refuse to run as root.

    Return nothing for other accounts.
    """
    return ["--user=root"] if os.geteuid() == 0 else []


def version_text(program: str) -> str:
    """Return what a server's program says about its version."""
    redis = Path(program).name.startswith("redis")
    options = ["--version"] if redis else ["--no-defaults", "--version"]
    done = subprocess.run([program, *options], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
