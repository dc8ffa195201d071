"""The settings of an open Redis and MySQL, which readers on other machines reach with TLS.

The limits bound what one reader can use up. Neither server reserves connections for the mill's
parts. So many connections are allowed, and each of them may use little.
"""

import re
from dataclasses import dataclass, replace

from appliance.mill.certificates import CERTIFICATE, KEY, TRUSTED
from appliance.mill.home import Home
from appliance.mill.init import READERS, read_secret
from appliance.mill.parts import ANYWHERE
from appliance.mill.sinks import SOCKETS_IN_CONTAINERS

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
REDIS_CONNECTIONS_MAX = 1_000
REDIS_IDLE_S = 300
REDIS_CLIENTS_MEMORY = "256mb"
MYSQL_CONNECTIONS_MAX = 200
READERS_CONNECTIONS_MAX = 20
"""The connections to MySQL of all readers on other machines together."""
STATEMENT_MAX_S = 60
LOGIN_MAX_S = 5

REDIS_WITH_CLIENT_EVICTION = (7, 0)
"""The first version of Redis that can limit the memory of all clients together."""

REDIS_OF_IMAGE = (7, 4, 0)
"""The least version of Redis in the image that the compose file names."""

SECRETS_IN_SERVER = "/run/millrace"
"""The folder in which a server in a container sees its secrets."""

FIXED = {
    (6, 2): (6, 2, 24),
    (7, 2): (7, 2, 16),
    (7, 4): (7, 4, 11),
    (8, 2): (8, 2, 9),
    (8, 4): (8, 4, 6),
    (8, 6): (8, 6, 6),
    (8, 8): (8, 8, 2),
    (8, 10): (8, 10, 1),
}
"""The first fixed version of each line of Redis for CVE-2026-81934: clients without a login can run
code in a server with TLS. A line that is missing here, and is older than the last one, was never
fixed."""

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ServerOpening:
    """Where an open server listens, its files, and the password of its readers."""

    listen: str
    certificate: str
    key: str
    ca: str
    password: str
    socket_mode: str = "700"
    """The mode of the server's Unix socket. In containers the mill's parts have accounts of their
    own, and only they see the folder of the socket."""


def opening_of(home: Home, server: str, listen: str) -> ServerOpening:
    """Return what an open server needs. Raises InitError if the readers' password is missing."""
    return _opening(home, server, listen, str(home.part_secrets(server)))


def opening_in_container(home: Home, server: str) -> ServerOpening:
    """Return what an open server in a container needs. It listens on all of its own addresses,
    because the container does not have those of its machine. Raises InitError if the readers'
    password is missing."""
    found = _opening(home, server, ANYWHERE, SECRETS_IN_SERVER)
    return replace(found, socket_mode="777")


def _opening(home: Home, server: str, listen: str, folder: str) -> ServerOpening:
    return ServerOpening(
        listen=listen,
        certificate=f"{folder}/{CERTIFICATE}",
        key=f"{folder}/{KEY}",
        ca=f"{folder}/{TRUSTED}",
        password=read_secret(home, f"{READERS}/{server}"),
    )


def redis_lines(
    opening: ServerOpening, port: int, socket: str, version: Version | None
) -> list[str]:
    """Return the lines of Redis's configuration for listeners and limits.

    Redis has one list of addresses for plain connections and those with TLS. So an open Redis has
    no plain port at all, and the mill's own parts use its socket.
    """
    memory = version is not None and version >= REDIS_WITH_CLIENT_EVICTION
    return [
        # Redis binds `::` for IPv6 alone.
        f"bind {'* ::*' if opening.listen == '::' else opening.listen}",
        "port 0",
        f"tls-port {port}",
        f'tls-cert-file "{opening.certificate}"',
        f'tls-key-file "{opening.key}"',
        f'tls-ca-cert-file "{opening.ca}"',
        "tls-auth-clients no",
        f'tls-protocols "{" ".join(TLS_VERSIONS)}"',
        f"unixsocket {socket}",
        f"unixsocketperm {opening.socket_mode}",
        "protected-mode no",
        f"maxclients {REDIS_CONNECTIONS_MAX}",
        f"timeout {REDIS_IDLE_S}",
        "tcp-keepalive 60",
        "client-output-buffer-limit normal 64mb 32mb 10",
        *([f"maxmemory-clients {REDIS_CLIENTS_MEMORY}"] if memory else []),
    ]


def mysql_options(opening: ServerOpening) -> list[str]:
    """Return the options of the server for TLS and limits. Connections over the socket count as
    secure."""
    return [
        f"--bind-address={opening.listen}",
        f"--ssl-cert={opening.certificate}",
        f"--ssl-key={opening.key}",
        f"--tls-version={','.join(TLS_VERSIONS)}",
        "--require-secure-transport=ON",
        f"--max-connections={MYSQL_CONNECTIONS_MAX}",
        f"--connect-timeout={LOGIN_MAX_S}",
    ]


def mysql_options_in_container(opening: ServerOpening) -> list[str]:
    """Return the further options of an open server in a container."""
    return [*mysql_options(opening), f"--socket={SOCKETS_IN_CONTAINERS['mysql']}"]


def readers_terms(*, is_open: bool) -> str:
    """Return the clauses of SQL with the TLS requirement and the limits of the readers' account.

    MySQL cannot limit the time of an account's statements. It skips the comment that begins with
    `/*M!`, which MariaDB reads.
    """
    connections, seconds = (READERS_CONNECTIONS_MAX, STATEMENT_MAX_S) if is_open else (0, 0)
    tls = "SSL" if is_open else "NONE"
    return (
        f"REQUIRE {tls} WITH MAX_USER_CONNECTIONS {connections}"
        f" /*M!100101 MAX_STATEMENT_TIME {seconds} */"
    )


def version_of(text: str) -> Version | None:
    """Return the version in the output of `redis-server --version`; None if there is none."""
    found = re.search(r"\bv=(\S+)", text)
    return None if found is None else parse_version(found[1])


def parse_version(text: str) -> Version | None:
    """Return the version that a text such as `7.4.11` begins with; None if there is none."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def first_fixed(version: Version) -> Version | None:
    """Return the version of Redis to which an open server should be upgraded; None if this version
    is fixed."""
    line = version[:2]
    if line > max(FIXED):
        return None
    fixed = FIXED.get(line) or min(one for known, one in FIXED.items() if known > line)
    return None if version >= fixed else fixed
