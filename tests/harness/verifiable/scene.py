"""Families of clients that work on three brokers while a test disturbs the brokers.

with clients_at_work(cluster, tmp_path, families.ALL) as clients:
    ...
    wait_for_progress(clients, "all go on")
    faults = finish(cluster, clients, "20 kills")
    assert not faults, faults
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.tally import tell
from tests.harness.verifiable.process import Family, Verifiable
from tests.harness.verifiable.words import PARTITIONS
from tests.harness.wait import wait_until

STEADY = 100
"""Records that every client must have acknowledged, and read, after each disturbance."""

PROGRESS_DEADLINE_S = 60.0
"""Within this time each client must read or write a record, and each partition must have a
leader."""


class Servers(Protocol):
    """Three brokers, either ours or Kafka's. They keep ports and data when they end."""

    @property
    def bootstrap(self) -> str: ...

    def controller_id(self) -> int | None: ...

    def kill9(self, node_id: int) -> None: ...

    def stop(self, node_id: int) -> None: ...

    def start(self) -> object: ...


def create_topics(servers: Servers, wanted: Sequence[Family]) -> None:
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    topics = [NewTopic(topic, PARTITIONS, 3) for family in wanted for topic in family.topics]
    for made in admin.create_topics(topics).values():
        made.result(30)


@contextmanager
def started_clients(
    wanted: Sequence[Family], start: Callable[[Family], Verifiable]
) -> Iterator[list[Verifiable]]:
    """Start a client of each family that is available here. Kill them at the end."""
    with ExitStack() as stack:
        clients = []
        for family in wanted:
            try:
                client = start(family)
            except pytest.skip.Exception as reason:
                tell(f"{family.name}: not run, {reason}")
                continue
            clients.append(stack.enter_context(client))
        yield clients


@contextmanager
def clients_at_work(
    servers: Servers, folder: Path, wanted: Sequence[Family]
) -> Iterator[list[Verifiable]]:
    """Create the topics of these families, and let a client of each write and read them."""
    create_topics(servers, wanted)
    with started_clients(wanted, lambda one: Verifiable(one, servers.bootstrap, folder)) as clients:
        yield clients


def wait_for_progress(clients: Sequence[Verifiable], what: str) -> None:
    """Wait until each client has written and read `STEADY` more records in every topic."""
    goals = [{name: count + STEADY for name, count in one.progress().items()} for one in clients]

    def behind() -> list[str]:
        for one in clients:
            one.check_alive()
        found = [one.progress() for one in clients]
        return [
            f"{name}: {now[name]} of {goal}"
            for now, wanted in zip(found, goals, strict=True)
            for name, goal in wanted.items()
            if now[name] < goal
        ]

    try:
        # A slow machine makes all clients slow. So fail only if no client makes any progress for
        # the whole deadline.
        wait_until(lambda: not behind(), PROGRESS_DEADLINE_S, what, progress=behind)
    except AssertionError as late:
        said = [f"{one.family.name}: {one.errors} {one.shown}" for one in clients]
        raise AssertionError("\n".join([str(late), f"behind: {behind()}", *said])) from None


def allowed_at_kills(family: Family) -> Container[str]:
    """Return the errors that a family may get while brokers are killed."""
    return family.allowed


def finish(
    servers: Servers,
    clients: Sequence[Verifiable],
    what: str,
    allowed: Callable[[Family], Container[str]] = allowed_at_kills,
) -> str:
    """End all clients, and print the result of each. Return a text about the clients that lost
    records or got an error that is not allowed, empty if none did. `what` says what happened to the
    brokers.

    Give the text to `assert` as its message, because pytest shortens the value of an expression.
    """
    for one in clients:
        one.finish()
    faults = []
    for one in clients:
        report = one.judge(servers.bootstrap)
        errors = ", ".join(f"{error} {count}" for error, count in one.errors.items()) or "none"
        tell(
            f"{one.family.name} {one.family.version()}: {what}, "
            f"{report.line()}, given again {one.given_again}; errors: {errors}"
        )
        unforeseen = [error for error in one.errors if error not in allowed(one.family)]
        if unforeseen or not report.is_clean:
            faults.append(f"{one.family.name}: {unforeseen}\n{report.text()}\n{one.shown}")
    return "\n".join(faults)
