"""The listeners of one broker. They are bound at the start, and open when their requests can be
served.

The listener BROKER is for other brokers. It gets more handlers while this broker joins the cluster.
All other listeners are for clients and share one table of handlers. A listener that requires a
login has a guard before that table, and before the fast path. It stays shut until a super user can
log in, because without one nothing could be allowed to its clients (decision 0181).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from broker.budget import TurnBudget, UnlimitedBudget, WorkBudget
from broker.config import BROKER_LISTENER, MILL_LISTENER, BrokerConfig, InForce
from broker.interbroker.senders import from_its_sender
from broker.metadata.credential_records import CredentialKey
from broker.metadata.quota_changes import QuotaValues
from broker.metrics.metrics import Metrics
from broker.produce.fast_path import template_of
from broker.quotas.client_quotas import ClientQuotas
from broker.quotas.quota_table import QuotaTable
from broker.sessions.audit import AuditLog
from broker.sessions.charges import Charging
from broker.sessions.dispatch import Dispatcher, Handler
from broker.sessions.login_session import LoginFastPath, LoginGuard, LoginSession
from broker.sessions.metered import MeteredFastPath, MeteredStarts
from broker.sessions.reception import FastPath, NoFastPath, Reception, Starts
from broker.sessions.session import Session
from broker.sessions.sessions import Sessions
from broker.world import Listening, PortTaken, World
from protocol.log import fields
from protocol.messages.api import BETWEEN_BROKERS, SERVED, ApiKey
from protocol.security.quota import IP
from protocol.security.scram import ScramCredential

logger = logging.getLogger(__name__)

NEVER_LIMITED = (MILL_LISTENER, BROKER_LISTENER)
"""The listeners whose clients have no quotas: the mill's own parts, and other brokers."""


def has_super_user(
    credentials: Mapping[CredentialKey, ScramCredential], config: BrokerConfig
) -> bool:
    """Return True if a super user can log in."""
    names = config.super_user_names
    return any(user in names for user, _ in credentials)


class Listeners:
    """All configured listeners of one broker."""

    def __init__(self, settings: InForce, world: World, metrics: Metrics) -> None:
        """Bind the listeners. Raises PortTaken if a port is in use."""
        self.sessions = Sessions(settings)
        self.audit = AuditLog(world.clock, metrics)
        self.receptions: dict[str, Reception] = {}
        self.clients = Dispatcher({}, {}, metrics, template_of)
        """Serves the requests of clients after `open_to_clients`."""
        self._brokers = Dispatcher({}, {}, metrics, template_of)
        self._settings = settings
        self._world = world
        self._metrics = metrics
        self._budget = TurnBudget(world.turn_ns, world.soon)
        self._charging = Charging(ClientQuotas(), world.clock, world.turn_ns)
        self._paths: dict[str, tuple[Starts, FastPath]] = {}
        """The objects that serve the requests of each listener without quotas."""
        self._shut: dict[str, Callable[[], None]] = {}
        """The listeners that wait for a super user, each with the function that opens it."""
        self._listening: dict[str, Listening] = {
            name: world.listen(name, address, partial(self._receive, name))
            for name, address in settings.config.listeners.items()
        }

    def _receive(self, listener: str) -> Session:
        """Create the session of a new connection."""
        kind = LoginSession if self._needs_login(listener) else Session
        return kind(self.receptions[listener])

    def _needs_login(self, listener: str) -> bool:
        return self._settings.config.listeners[listener].needs_login

    def serve_brokers(self, handlers: Mapping[ApiKey, Handler]) -> None:
        """Add handlers for requests of other brokers."""
        checked = {key: from_its_sender(key, handler) for key, handler in handlers.items()}
        self._brokers.serve(checked, {key: BETWEEN_BROKERS[key] for key in handlers})

    def open_to_brokers(self) -> None:
        """Open the listener for other brokers, if one is configured."""
        if BROKER_LISTENER in self._listening:
            self._open(
                BROKER_LISTENER, self._brokers, NoFastPath(), lambda: None, UnlimitedBudget()
            )

    def open_to_clients(
        self, handlers: Mapping[ApiKey, Handler], fast_path: FastPath, settle: Callable[[], None]
    ) -> None:
        """Open the client listeners that require no login. `open_to_users` opens the others.

        `fast_path` and `settle` are as in `Reception`.
        """
        self.clients.serve(handlers, SERVED)
        clock = self._world.clock
        guard, guarded_path = LoginGuard(self.clients, clock), LoginFastPath(fast_path, clock)
        for name in self._listening:
            if name == BROKER_LISTENER:
                continue
            if self._needs_login(name):
                paths = guard, guarded_path, settle, self._budget
                self._shut[name] = partial(self._open, name, *paths)
            else:
                self._open(name, self.clients, fast_path, settle, self._budget)

    @property
    def shut(self) -> list[str]:
        """The names of the listeners that wait for a super user."""
        return sorted(self._shut)

    def open_to_users(self, credentials: Mapping[CredentialKey, ScramCredential]) -> None:
        """Open the listeners that require a login, if a super user has a credential.

        They stay open when this credential is removed later.
        """
        if not self._shut or not has_super_user(credentials, self._settings.config):
            return
        for name in self.shut:
            try:
                self._shut[name]()
            except PortTaken as error:
                # The port was bound, but another process began to listen on it in the meantime.
                self._metrics.warnings.warn(logger, "a listener cannot be opened", reason=error)
                continue
            del self._shut[name]
            logger.info("a listener was opened", extra=fields(listener=name))

    def use_quotas(self, values: QuotaValues) -> None:
        """Put these quotas in force for clients. The mill's own parts have no quotas."""
        self.sessions.rates.use(values)
        of_clients = {entity: one for entity, one in values.items() if entity[0][0] != IP}
        self._charging.quotas.use(QuotaTable(of_clients))
        for name in self._paths:
            self._meter(name)
        self.sessions.end_throttles()

    def _meter(self, name: str) -> None:
        """If there are quotas, give the requests of a listener charges."""
        reception, (dispatcher, fast_path) = self.receptions[name], self._paths[name]
        if self._charging.quotas.table.values:
            dispatcher = MeteredStarts(dispatcher, self._charging)
            fast_path = MeteredFastPath(fast_path, self._charging)
        reception.dispatcher, reception.fast_path = dispatcher, fast_path

    def _open(
        self,
        name: str,
        dispatcher: Starts,
        fast_path: FastPath,
        settle: Callable[[], None],
        budget: WorkBudget,
    ) -> None:
        world, metrics = self._world, self._metrics
        self.receptions[name] = Reception(
            name,
            self._settings,
            world.clock,
            world.turn_ns,
            world.soon,
            world.later,
            budget,
            self.sessions,
            dispatcher,
            fast_path,
            settle,
            metrics.connection_came,
            metrics.warnings,
        )
        if name not in NEVER_LIMITED:
            self._paths[name] = dispatcher, fast_path
            self._meter(name)
        self._listening[name].open()

    def close(self) -> None:
        """Accept no more connections. The open connections stay open."""
        self._shut.clear()
        for listening in self._listening.values():
            listening.close()
