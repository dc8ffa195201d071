"""The settings of the sinks: the file's `sinks:` section, and what a process receives.

Either sink can be switched off with null. A mill that counts needs one of them. Without an
address, the mill's own server is used; the appliance fills in its address and the generated
secrets.
"""

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class SinkTls(BaseModel):
    """The section `tls` of a server. Chain and name of its certificate are always checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca: str | None = Field(
        default=None,
        min_length=1,
        description="the file of the CAs that may sign the server's certificate, in PEM format,"
        " relative to the mill's folder. null: the CAs of the system",
        examples=["ca.pem"],
    )


class RedisSection(BaseModel):
    """The section `sinks.redis` of configs/millrace.yaml. Every key is optional."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str | None = Field(
        default=None,
        min_length=1,
        description="the machine of your own server. null: the bundled server",
        examples=["redis.example.org"],
    )
    port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="its port. null: 6379 of your own server",
        examples=[6379],
    )
    username: str | None = Field(
        default=None,
        description="the user who may write. null: Redis's default user",
        examples=["millrace"],
    )
    password: SecretStr | None = Field(
        default=None,
        description="the password of this user; keep it out of the file by a reference",
        examples=["${REDIS_PASSWORD}"],
    )
    tls: SinkTls | None = Field(
        default=None,
        description="`{}` or `{ca: FILE}`: connect to your own server with TLS. null: without TLS",
        examples=[{"ca": "ca.pem"}],
    )


class MySqlSection(BaseModel):
    """The section `sinks.mysql` of configs/millrace.yaml. Every key is optional."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str | None = Field(
        default=None,
        min_length=1,
        description="the machine of your own MySQL or MariaDB. null: the bundled server",
        examples=["db.example.org"],
    )
    port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="its port. null: 3306 of your own server",
        examples=[3306],
    )
    user: str | None = Field(
        default=None,
        min_length=1,
        description="a user who may create tables and views, read and write. null: `mill`, and"
        " `reader` for the monitor",
        examples=["millrace"],
    )
    password: SecretStr | None = Field(
        default=None,
        description="the password of this user; keep it out of the file by a reference",
        examples=["${file:data/secrets/my-mysql}"],
    )
    database: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_]{1,64}$",
        description="the database of the tables and views. null: `millrace`",
        examples=["counts"],
    )
    tls: SinkTls | None = Field(
        default=None,
        description="`{}` or `{ca: FILE}`: connect to your own server with TLS. null: with TLS if"
        " the server offers it, but without a check of its certificate",
        examples=[{"ca": "ca.pem"}],
    )


class SinksSection(BaseModel):
    """The section `sinks:` of configs/millrace.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    redis: RedisSection | None = Field(
        default=RedisSection(),
        description="the live view. `{}` is the bundled server, null switches Redis off",
        examples=[{"host": "redis.example.org", "password": "${REDIS_PASSWORD}"}, None],
    )
    mysql: MySqlSection | None = Field(
        default=MySqlSection(),
        description="the truth. `{}` is the bundled server, null switches MySQL off; one of both"
        " must be on, except on a host that only collects",
        examples=[{"host": "db.example.org", "password": "${file:data/secrets/my-mysql}"}],
    )


class RedisSettings(BaseModel):
    """The address of one Redis server, and a user with the right to write.

    With `socket`, the path of the server's Unix socket, host and port are not used.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str
    port: int
    username: str | None = None
    password: str | None = Field(default=None, repr=False)
    tls: SinkTls | None = None
    socket: str | None = None


class MySqlSettings(BaseModel):
    """The address of one MySQL or MariaDB database, and a user with the right to write.

    `reader` is a user who is granted SELECT. With `socket`, the path of the server's Unix socket,
    host and port are not used.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str
    port: int
    user: str
    password: str = Field(repr=False)
    database: str = "millrace"
    reader: str | None = "reader"
    tls: SinkTls | None = None
    socket: str | None = None


class SinksSettings(BaseModel):
    """The sinks that a process writes to or reads from; None if one is switched off."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mysql: MySqlSettings | None = None
    redis: RedisSettings | None = None
