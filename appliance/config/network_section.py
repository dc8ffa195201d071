"""The section `network:` of the configuration: what other machines reach, and by which names."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

KAFKA = "kafka"
"""The name of the brokers in `network.open`."""

PAGE = "page"
"""The name of the monitor's page in `network.open`."""

SERVERS = ("redis", "mysql")
"""The names of the bundled servers in `network.open`."""


class _NetworkModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NetworkTls(_NetworkModel):
    """Files of the user's own, in PEM format; null: those of the mill's own CA."""

    certificate: str | None = Field(
        default=None,
        description="the certificate with its chain, from the mill's folder",
        examples=["certs/mill.pem"],
    )
    key: str | None = Field(
        default=None, description="the key of the certificate", examples=["certs/mill.key"]
    )
    ca: str | None = Field(
        default=None,
        description="the CAs that must have signed `certificate`. Brokers check it with them before"
        " they use it; without this key they do not check who signed it",
        examples=["certs/ca.pem"],
    )


class NetworkSection(_NetworkModel):
    """The section `network:`, for listeners with TLS. Without it there is none."""

    open: tuple[str, ...] = Field(
        default=(),
        description="what other machines reach with TLS: `kafka` (each broker has one more"
        " listener, NET), `redis` and `mysql` (the bundled servers, with a password for readers),"
        " and `page` (over HTTPS, at `monitor.listen`, which may be beyond the loopback then)",
        examples=[["kafka"], ["page", "redis", "mysql"]],
    )
    listen: str = Field(
        default="127.0.0.1",
        description="the address of these listeners: an address of this machine, `0.0.0.0` for all"
        " IPv4 addresses, `::` for all addresses. Beyond the loopback it needs a first name that is"
        " not `localhost`, and `kafka` needs `login: users` and a user in `security.super_users`",
        examples=["127.0.0.1"],
    )
    names: tuple[str, ...] = Field(
        default=(),
        description="the host names and IP addresses that clients dial. The first is advertised,"
        " and certificates have all of them. With `cluster.hosts` each broker advertises its host,"
        " and these are further names",
        examples=[["mill.example.org"]],
    )
    login: Literal["users"] | None = Field(
        default=None,
        description="`users`: clients of the brokers must log in with SCRAM as a user that"
        " `millrace user add` made; null: no login",
        examples=["users"],
    )
    tls: NetworkTls = Field(
        default_factory=NetworkTls,
        description="certificate files of your own; without it the mill's own CA is used. The files"
        " are watched, see [security.md](../security.md)",
        examples=[{"certificate": "certs/mill.pem", "key": "certs/mill.key"}],
    )

    @property
    def opens_kafka(self) -> bool:
        """True if the brokers have a listener with TLS."""
        return KAFKA in self.open

    @property
    def opens_page(self) -> bool:
        """True if the page is served over HTTPS."""
        return PAGE in self.open

    @property
    def listening(self) -> tuple[str, ...]:
        """The names in `open` that listen at `listen`. The page has an address of its own."""
        return tuple(name for name in self.open if name != PAGE)

    @property
    def has_users(self) -> bool:
        """True if the checks must ask for `login` and users of the brokers. This is also so if
        `open` is empty, because most users open `kafka` first."""
        return self.opens_kafka or not self.open
