"""Opens connections to MySQL and Redis. No other module calls their libraries for that."""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import redis
from pymysql.constants import CR
from redis.backoff import NoBackoff
from redis.retry import Retry

from sinks.config import MySqlSettings, RedisSettings
from sinks.tls import TlsRefused, client_context, handshake_fault, no_tls

MYSQL_KEY, REDIS_KEY = "sinks.mysql", "sinks.redis"


def connect_mysql(settings: MySqlSettings, **options: Any) -> "pymysql.Connection[Any]":
    """Open a connection. `options` are those of PyMySQL. Raises pymysql.err.Error.

    PyMySQL alone would encrypt without a check of the certificate, or not at all if the server does
    not offer TLS.
    """
    if settings.socket is not None:
        # The server may offer TLS, but data on its socket does not leave the machine.
        with short_path(settings.socket) as path:
            return _mysql(settings, unix_socket=path, ssl_disabled=True, **options)
    if settings.tls is not None:
        try:
            options["ssl"] = client_context(settings.tls.ca, MYSQL_KEY)
        except TlsRefused as error:
            raise pymysql.err.OperationalError(CR.CR_SSL_CONNECTION_ERROR, str(error)) from error
    try:
        return _mysql(settings, **options)
    except pymysql.err.OperationalError as error:
        cause = getattr(error, "original_exception", None)
        if isinstance(cause, ssl.SSLError):
            text = handshake_fault(cause, MYSQL_KEY)
        elif settings.tls is not None and error.args[0] == CR.CR_SSL_CONNECTION_ERROR:
            text = no_tls(MYSQL_KEY)
        else:
            raise
        raise pymysql.err.OperationalError(CR.CR_SSL_CONNECTION_ERROR, text) from error


def _mysql(settings: MySqlSettings, **options: Any) -> "pymysql.Connection[Any]":
    return pymysql.connect(
        host=settings.host,
        port=settings.port,
        user=settings.user,
        password=settings.password,
        **{"database": settings.database, **options},
    )


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """Yield a short name for the path of a Unix socket, which can be longer than the system allows.

    The name is valid inside the `with` block. Raises OSError if the folder is missing.
    """
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def redis_client(settings: RedisSettings, timeout_s: float) -> "redis.Redis":
    """Return a client that never retries, because the callers retry. It connects at the first
    command."""
    client = redis.Redis(
        host=settings.host,
        port=settings.port,
        username=settings.username,
        password=settings.password,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )
    pool = client.connection_pool
    if settings.socket is not None:
        pool.connection_class = SocketConnection
        pool.connection_kwargs["path"] = settings.socket
    elif settings.tls is not None:
        pool.connection_class = TlsConnection
        pool.connection_kwargs["ca"] = settings.tls.ca
    return client


class SocketConnection(redis.Connection):
    """A connection to the Unix socket of Redis."""

    def __init__(self, *, path: str, **options: Any) -> None:
        self._path = path
        super().__init__(**options)  # type: ignore[no-untyped-call]  # redis-py

    def _connect(self) -> Any:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.settimeout(self.socket_connect_timeout)
            with short_path(self._path) as path:
                link.connect(path)
            link.settimeout(self.socket_timeout)
        except OSError:
            link.close()
            raise
        return link

    def _host_error(self) -> str:
        return self._path


class TlsConnection(redis.Connection):
    """A connection to Redis with TLS.

    The library's own class would trust the CAs of the system in addition to those of the file.
    """

    def __init__(self, *, ca: str | None, **options: Any) -> None:
        self._ca = ca
        super().__init__(**options)  # type: ignore[no-untyped-call]  # redis-py

    def _connect(self) -> Any:
        try:
            context = client_context(self._ca, REDIS_KEY)
        except TlsRefused as error:
            raise redis.exceptions.ConnectionError(str(error)) from error
        plain = super()._connect()  # type: ignore[no-untyped-call]  # redis-py
        try:
            return context.wrap_socket(plain, server_hostname=self.host)
        except OSError as error:
            plain.close()
            raise redis.exceptions.ConnectionError(handshake_fault(error, REDIS_KEY)) from error
