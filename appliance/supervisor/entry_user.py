"""Keeps the user as which the mill's own parts enter brokers on several hosts.

The main host's supervisor writes the user's password into the cluster, through a listener of its
own broker that needs no login. In containers a container of its own does this. It writes only if
the cluster has no password of the user, or refuses the one in the file: each write ends the user's
connections. The check is repeated, so it does not matter when a supervisor is killed, and a user
that was removed returns.
"""

import asyncio
import logging
import os
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from appliance.config.containers import PUBLISHED_VARIABLE
from appliance.config.faults import ConfigFaults
from appliance.config.load import load
from appliance.errors import Failure
from appliance.mill.home import Home
from appliance.mill.init import ENTRY_PASSWORD, read_secret
from appliance.mill.parts import (
    ENTRY_MECHANISM,
    ENTRY_USER,
    Placement,
    local_entry,
    main_broker,
)
from appliance.mill.settings import Mill
from appliance.mill.tls_paths import client_trust
from protocol.client.cluster import Cluster
from protocol.client.connection import Connection
from protocol.client.errors import ClientError
from protocol.client.login import ClientLogin, LoginRefused, LoginSettings
from protocol.client.tls import TlsFileError, TlsSettings, client_context
from protocol.client.user_admin import describe_users, set_password
from protocol.errors import ApiError, WireError
from protocol.log import fields
from protocol.security.scram import MECHANISMS

CHECK_EVERY_S = 30.0
RETRY_S = 1.0
TIMEOUT_MS = 10_000
CLIENT_ID = "millrace-supervisor"

MECHANISM = MECHANISMS[ENTRY_MECHANISM]

logger = logging.getLogger(__name__)


def keeper_of(mill: Mill) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """Return what keeps the user for ever; None if the parts do not log in, or if
    another host keeps their user."""
    hosts = mill.config.cluster.hosts
    if hosts is None or mill.placement.broker != main_broker(mill.config):
        return None
    return EntryUser(mill.home).keep


@dataclass(frozen=True, slots=True)
class _Entry:
    """The two listeners of this host's broker, and how to enter that with logins."""

    local: str
    net: tuple[str, int]
    ca: str | None
    password: str = field(repr=False)

    async def is_open(self) -> bool:
        """Return True if the broker accepts the password. Raises an error of the client if that
        cannot be found out."""
        login = ClientLogin(LoginSettings(ENTRY_USER, self.password, MECHANISM), random.Random())
        tls = client_context(TlsSettings(ca=self.ca))
        host, port = self.net
        try:
            connection = await Connection.open(
                host, port, client_id=CLIENT_ID, timeout_ms=TIMEOUT_MS, tls=tls, login=login
            )
        except LoginRefused:
            return False
        connection.close()
        return True


class EntryUser:
    """The user of the mill's own parts, as this host's broker has it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._said = ""

    async def keep(self) -> None:
        """Check the user for ever, and write it where needed."""
        while True:
            try:
                is_good = await self.check()
            except (
                ApiError,
                ClientError,
                WireError,
                TlsFileError,
                ConfigFaults,
                Failure,
                OSError,
            ) as error:
                is_good = False
                self._say(str(error))
            await asyncio.sleep(CHECK_EVERY_S if is_good else RETRY_S)

    async def check(self) -> bool:
        """Return True if the brokers accept the password; write it if they do not have it.

        Raises an error of the client if that cannot be found out, and Failure if this host does
        not have the password.
        """
        entry = await asyncio.to_thread(self._read)
        cluster = Cluster(entry.local, client_id=CLIENT_ID, request_timeout_ms=TIMEOUT_MS)
        try:
            await cluster.start(TIMEOUT_MS)
            known = (await describe_users(cluster, [ENTRY_USER])).get(ENTRY_USER, {})
            if MECHANISM in known and await entry.is_open():
                self._said = ""
                return True
            await set_password(cluster, ENTRY_USER, entry.password, MECHANISM)
        finally:
            await cluster.close()
        logger.info("wrote the password of the mill's parts", extra=fields(user=ENTRY_USER))
        return False

    def _read(self) -> "_Entry":
        """Read the file each time, because `up --apply` can change ports while this runs. In
        containers the parts compare the file with what compose publishes, so this does not."""
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(PUBLISHED_VARIABLE)
        }
        config = load(self._home.config_file, self._home.folder, environ).config
        hosts = config.cluster.hosts
        if hosts is None:
            raise Failure(
                f"{self._home.config_file} has no cluster.hosts, so the mill's parts do not log in:"
                " write the hosts back, or stop this part"
            )
        number, ports = main_broker(config), config.ports
        return _Entry(
            local=local_entry(config, Placement(self._home.in_containers), number),
            net=(hosts[number], ports.of_broker("net", number)),
            ca=client_trust(self._home, config.network),
            password=read_secret(self._home, ENTRY_PASSWORD),
        )

    def _say(self, reason: str) -> None:
        """Log why the user cannot be checked, once for each reason."""
        if reason != self._said:
            self._said = reason
            logger.info(
                "the user of the mill's parts is checked as soon as the cluster answers",
                extra=fields(user=ENTRY_USER, why=reason),
            )
