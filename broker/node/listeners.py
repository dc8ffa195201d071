"""The listeners of one broker: bound at once, and each opened when there is somebody to serve it.

Floor: node. Clients come in by all but one, and are served by one table; other brokers come in by
BROKER, whose table grows while this broker finds its way into the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from broker.budget import Budget, NoBudget, TurnBudget
from broker.config import BROKER_LISTENER, InForce
from broker.metrics.metrics import Metrics
from broker.produce.short import lane_of
from broker.sessions.dispatch import Dispatcher, Handler
from broker.sessions.reception import NoShortWay, Reception, ShortWay
from broker.sessions.session import Session
from broker.sessions.sessions import Sessions
from broker.world import Listening, World
from protocol.messages.api import BETWEEN_BROKERS, SERVED, ApiKey


class Listeners:
    """All that the configuration names."""

    def __init__(self, settings: InForce, world: World, metrics: Metrics) -> None:
        """Binds them. Raises PortTaken."""
        self.sessions = Sessions(settings)
        self.receptions: dict[str, Reception] = {}
        self.clients = Dispatcher({}, {}, metrics, lane_of)
        """What clients are served, from `open_to_clients` on."""
        self._brokers = Dispatcher({}, {}, metrics, lane_of)
        self._settings = settings
        self._world = world
        self._metrics = metrics
        self._budget = TurnBudget(world.turn_ns, world.soon)
        self._listening: dict[str, Listening] = {
            name: world.listen(name, address, partial(self._receive, name))
            for name, address in settings.config.listeners.items()
        }

    def _receive(self, listener: str) -> Session:
        """A new connection has come in."""
        return Session(self.receptions[listener])

    def serve_brokers(self, handlers: Mapping[ApiKey, Handler]) -> None:
        """Answer other brokers this as well, from here on."""
        self._brokers.serve(handlers, {key: BETWEEN_BROKERS[key] for key in handlers})

    def open_to_brokers(self) -> None:
        """Let other brokers in, where there is a listener for them."""
        if BROKER_LISTENER in self._listening:
            self._open(BROKER_LISTENER, self._brokers, NoShortWay(), lambda: None, NoBudget())

    def open_to_clients(
        self, handlers: Mapping[ApiKey, Handler], short: ShortWay, settle: Callable[[], None]
    ) -> None:
        """Let clients in; `short` and `settle` are as in `Reception`."""
        self.clients.serve(handlers, SERVED)
        for name in self._listening:
            if name != BROKER_LISTENER:
                self._open(name, self.clients, short, settle, self._budget)

    def _open(
        self,
        name: str,
        dispatcher: Dispatcher,
        short: ShortWay,
        settle: Callable[[], None],
        budget: Budget,
    ) -> None:
        world, metrics = self._world, self._metrics
        self.receptions[name] = Reception(
            name,
            self._settings,
            world.clock,
            world.turn_ns,
            world.soon,
            budget,
            self.sessions,
            dispatcher,
            short,
            settle,
            metrics.connection_came,
            metrics.warnings,
        )
        self._listening[name].open()

    def close(self) -> None:
        """Let nobody in any more; who is in stays."""
        for listening in self._listening.values():
            listening.close()
