"""The settings with which a client enters a cluster that has TLS and logins.

This module is pure, and loads no client, because every part's settings have this class.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ClusterSecurity:
    """The section `cluster.security`, with absolute paths and the password.

    The connections always use TLS. Without a `user` the client does not log in.
    """

    ca: str | None = None
    """The CAs to trust, in PEM format; None means those of the machine."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    """The file whose only line is the password. Each login reads it, so a changed password needs no
    restart. With a `user` either this or `password` is set."""
    mechanism: str = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """The bootstrap servers of a cluster, and its TLS and login; None if it has neither."""

    servers: str
    security: ClusterSecurity | None = None

    def __str__(self) -> str:
        return self.servers
