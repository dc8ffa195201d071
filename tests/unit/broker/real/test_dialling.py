"""Connections that this side opens, on real sockets: how they open, and each way in which they end.

The addresses belong to this machine, the test defines the names, and both event loops are tested.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from broker.config import Listener
from broker.real import dialling, names
from broker.real.dialling import DialledLink, is_own_end
from broker.real.names import Names
from broker.real.world import LoopWorld
from broker.world import Address, End
from tests.sim.sides import Side

FRAME_BYTES_MAX = 1 << 10
PATIENCE_S = 10
LOOPBACK = "127.0.0.1"


class Heard(Side):
    """A receiver that records its events."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[bytes] = []
        self.reason = ""

    def take(self, frames: Iterator[memoryview]) -> None:
        self.frames.extend(bytes(frame) for frame in frames)

    def ended(self, end: End, reason: str = "") -> None:
        super().ended(end)
        self.reason = reason


class Dialler:
    """A world in which the test defines host names."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.meanings: dict[str, list[str] | Exception] = {}
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.names = Names(loop, self._resolve)
        self.world = LoopWorld(loop, _die, FRAME_BYTES_MAX, 1 << 20)
        self.world._names = self.names

    def _resolve(self, host: str, port: None, **options: Any) -> Sequence[tuple[Any, ...]]:
        self.asked.append(host)
        assert self.may_answer.wait(PATIENCE_S)
        meaning = self.meanings.get(host, socket.gaierror(socket.EAI_NONAME, "not known"))
        if isinstance(meaning, Exception):
            raise meaning
        return [one for literal in meaning for one in socket.getaddrinfo(literal, port, **options)]

    def dial(self, host: str, port: int, *, asks_resolver: bool = True) -> Heard:
        heard = Heard()
        self.world.dial(Address(host, port), heard, asks_resolver=asks_resolver)
        assert heard.link is None
        assert not heard.ends
        return heard


def _die(reason: str) -> Any:
    raise AssertionError(reason)


@pytest.fixture
def served() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as served:
        served.settimeout(PATIENCE_S)
        yield served


@pytest.fixture
def free_port() -> Iterator[int]:
    """Yield a port that has no listener and that no other process gets."""
    with socket.socket() as bound:
        bound.bind((LOOPBACK, 0))
        yield bound.getsockname()[1]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


def port_of(served: socket.socket) -> int:
    port: int = served.getsockname()[1]
    return port


def test_frames_go_both_ways(runner: asyncio.Runner, served: socket.socket) -> None:
    async def run() -> None:
        heard = Dialler(asyncio.get_running_loop()).dial(LOOPBACK, port_of(served))
        await until(lambda: heard.link)
        with served.accept()[0] as client:
            client.settimeout(PATIENCE_S)
            assert heard.link.peer == f"{LOOPBACK}:{port_of(served)}"
            heard.link.send([struct.pack(">i", 3) + b"ask"])
            assert client.recv(100) == b"\0\0\0\x03ask"
            client.sendall(struct.pack(">i", 4) + b"told")
            await until(lambda: heard.frames)
            assert heard.frames == [b"told"]
        await until(lambda: heard.ends)
        heard.link.close()
        assert heard.ends == [End.EOF]

    runner.run(run())


def test_a_peer_that_throws_the_link_away(runner: asyncio.Runner, served: socket.socket) -> None:
    async def run() -> None:
        heard = Dialler(asyncio.get_running_loop()).dial(LOOPBACK, port_of(served))
        await until(lambda: heard.link)
        client = served.accept()[0]
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await until(lambda: heard.ends)
        assert heard.ends == [End.RESET]

    runner.run(run())


def test_nobody_listens(runner: asyncio.Runner, free_port: int) -> None:
    async def run() -> None:
        heard = Dialler(asyncio.get_running_loop()).dial(LOOPBACK, free_port)
        await until(lambda: heard.ends)
        assert (heard.ends, heard.link) == ([End.REFUSED], None)

    runner.run(run())


def test_there_is_no_way(runner: asyncio.Runner) -> None:
    """The kernel opens no connection to a multicast address."""

    async def run() -> None:
        heard = Dialler(asyncio.get_running_loop()).dial("224.0.0.1", 9092)
        await until(lambda: heard.ends)
        assert heard.ends == [End.UNREACHABLE]

    runner.run(run())


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Yield a listener whose queue is full, so the kernel drops new connections."""
    with socket.create_server((LOOPBACK, 0), backlog=0) as served:
        callers = []
        while True:
            caller = socket.socket()
            callers.append(caller)
            caller.settimeout(0.05)
            try:
                caller.connect(served.getsockname())
            except TimeoutError:
                break
        yield served
        for caller in callers:
            caller.close()


def test_nothing_is_heard(
    runner: asyncio.Runner, silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "CONNECT_S_MAX", 0.05)

    async def run() -> None:
        heard = Dialler(asyncio.get_running_loop()).dial(LOOPBACK, port_of(silent))
        await until(lambda: heard.ends)
        assert heard.ends == [End.TIMED_OUT]

    runner.run(run())


def test_one_that_is_closed_while_it_dials_hears_nothing(
    runner: asyncio.Runner, silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "CONNECT_S_MAX", 0.05)

    async def run() -> None:
        world = Dialler(asyncio.get_running_loop()).world
        heard = Heard()
        link = world.dial(Address(LOOPBACK, port_of(silent)), heard)
        await asyncio.sleep(0)
        link.close()
        await until(lambda: link._task is not None and link._task.done())
        assert (heard.ends, heard.link) == ([], None)

    runner.run(run())


@pytest.mark.parametrize("turns", range(6))
def test_one_may_be_closed_in_any_turn(
    runner: asyncio.Runner, served: socket.socket, turns: int
) -> None:
    async def run() -> None:
        world = Dialler(asyncio.get_running_loop()).world
        heard = Heard()
        link = world.dial(Address(LOOPBACK, port_of(served)), heard)
        for _ in range(turns):
            await asyncio.sleep(0)
        was_linked = heard.link is not None
        link.close()
        await until(lambda: link._task is not None and link._task.done())
        await asyncio.sleep(0)
        assert (heard.ends, heard.link is not None) == ([], was_linked)

    runner.run(run())


def test_a_name_nobody_knows(runner: asyncio.Runner) -> None:
    async def run() -> None:
        heard = Dialler(asyncio.get_running_loop()).dial("broker-2", 9092)
        await until(lambda: heard.ends)
        assert (heard.ends, heard.reason) == ([End.UNRESOLVED], "host name broker-2 is not known")

    runner.run(run())


def test_the_status_names_the_host_that_cannot_be_resolved(runner: asyncio.Runner) -> None:
    async def run() -> None:
        dialler = Dialler(asyncio.get_running_loop())
        heard = Heard()
        dialler.world.dial(Address("mill-2", 29093), heard, node_id=2)
        await until(lambda: heard.ends)
        (problem,) = dialler.world.connection_problems()
        assert problem.code == "link_unresolved"
        assert problem.text.startswith("the host name mill-2 of broker 2 cannot be resolved")
        dialler.meanings["mill-2"] = ["127.0.0.9"]
        found = Heard()
        dialler.world.dial(Address("mill-2", 29093), found, node_id=2)
        await until(lambda: found.ends)
        assert dialler.world.connection_problems() == []
        # A probe uses known addresses only, so it says nothing about the resolver.
        probe = Dialler(asyncio.get_running_loop())
        await until(lambda: probe.dial("mill-3", 29093, asks_resolver=False).ends or True)
        assert probe.world.connection_problems() == []

    runner.run(run())


def test_a_name_that_cannot_be_asked_for(runner: asyncio.Runner) -> None:
    """Python raises UnicodeError for such names, which is not a bug of the broker."""

    async def run() -> None:
        dialler = Dialler(asyncio.get_running_loop())
        dialler.names = dialler.world._names = Names(dialler.loop)
        heard = dialler.dial("b" * 64 + ".example", 9092)
        await until(lambda: heard.ends)
        assert heard.ends == [End.UNRESOLVED]

    runner.run(run())


def test_a_name_keeps_its_meaning_when_it_goes(
    runner: asyncio.Runner, served: socket.socket
) -> None:
    async def run() -> None:
        dialler = Dialler(asyncio.get_running_loop())
        dialler.meanings["broker-2"] = [LOOPBACK]
        first = dialler.dial("broker-2", port_of(served))
        await until(lambda: first.link)
        del dialler.meanings["broker-2"]
        second = dialler.dial("broker-2", port_of(served))
        await until(lambda: second.link)
        assert dialler.asked == ["broker-2", "broker-2"]

    runner.run(run())


def test_a_host_that_changes_its_address_is_found_again(
    runner: asyncio.Runner, served: socket.socket
) -> None:
    """The name is resolved for each connection, so no restart is needed."""

    async def run() -> None:
        dialler = Dialler(asyncio.get_running_loop())
        dialler.meanings["mill-2"] = [LOOPBACK]
        first = dialler.dial("mill-2", port_of(served))
        await until(lambda: first.link)
        with socket.create_server(("127.0.0.2", 0)) as moved:
            dialler.meanings["mill-2"] = ["127.0.0.2"]
            second = dialler.dial("mill-2", port_of(moved))
            await until(lambda: second.link)
            assert second.link.peer_host == "127.0.0.2"
        assert dialler.asked == ["mill-2", "mill-2"]

    runner.run(run())


def test_a_resolver_that_hangs_is_waited_for_a_little_only(
    runner: asyncio.Runner, served: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "WAIT_S_MAX", 0.01)
    monkeypatch.setattr(names, "FIRST_WAIT_S_MAX", 0.01)

    async def run() -> None:
        dialler = Dialler(asyncio.get_running_loop())
        dialler.meanings["broker-2"] = [LOOPBACK]
        await dialler.names.look_up("broker-2")
        dialler.may_answer.clear()
        known, unknown = (dialler.dial(name, port_of(served)) for name in ("broker-2", "broker-3"))
        await until(lambda: known.link and unknown.ends)
        assert unknown.ends == [End.UNRESOLVED]
        dialler.may_answer.set()
        await until(lambda: not dialler.names._lookups)

    runner.run(run())


def test_who_does_not_ask_the_resolver_takes_what_is_known(
    runner: asyncio.Runner, served: socket.socket
) -> None:
    async def run() -> None:
        dialler = Dialler(asyncio.get_running_loop())
        dialler.meanings["broker-2"] = [LOOPBACK]
        port = port_of(served)
        early = dialler.dial("broker-2", port, asks_resolver=False)
        await until(lambda: early.ends)
        assert (early.ends, dialler.asked) == ([End.UNRESOLVED], [])
        dialler.world.look_up("broker-2")
        await until(lambda: dialler.asked and not dialler.names._lookups)
        dialler.meanings["broker-2"] = ["224.0.0.1"]
        late = dialler.dial("broker-2", port, asks_resolver=False)
        await until(lambda: late.link)
        assert dialler.asked == ["broker-2"]
        # A dial to an IP address needs no resolver.
        plain = dialler.dial(LOOPBACK, port, asks_resolver=False)
        await until(lambda: plain.link)

    runner.run(run())


def test_the_same_name_is_looked_up_once_at_a_time(runner: asyncio.Runner) -> None:
    async def run() -> None:
        dialler = Dialler(asyncio.get_running_loop())
        dialler.may_answer.clear()
        lookups = [dialler.names.look_up("broker-2") for _ in range(5)]
        dialler.may_answer.set()
        await asyncio.wait(lookups)
        assert dialler.asked == ["broker-2"]

    runner.run(run())


def test_so_many_names_are_remembered(
    runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "NAMES_MAX", 2)

    async def run() -> None:
        dialler = Dialler(asyncio.get_running_loop())
        for name in ("a", "b", "c"):
            dialler.meanings[name] = [LOOPBACK]
            await dialler.names.look_up(name)
        assert list(dialler.names._known) == ["b", "c"]

    runner.run(run())


def test_the_addresses_of_a_name_are_tried_in_turn(
    runner: asyncio.Runner, served: socket.socket
) -> None:
    async def run() -> None:
        dialler = Dialler(asyncio.get_running_loop())
        # No socket listens at the first address, because the listener is bound to the second alone.
        dialler.meanings["broker-2"] = ["127.0.0.9", LOOPBACK]
        heard = dialler.dial("broker-2", port_of(served))
        await until(lambda: heard.link)
        assert heard.link.peer_host == LOOPBACK

    runner.run(run())


@pytest.mark.parametrize(
    ("meaning", "end"),
    [
        (["127.0.0.9", "224.0.0.1"], End.REFUSED),
        (["224.0.0.1", "127.0.0.9"], End.REFUSED),
        ([LOOPBACK, "127.0.0.9"], End.TIMED_OUT),
        (["127.0.0.9", LOOPBACK], End.TIMED_OUT),
    ],
)
def test_one_address_speaks_for_all(
    runner: asyncio.Runner,
    silent: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    meaning: list[str],
    end: End,
) -> None:
    if end is End.TIMED_OUT:
        # A refusal comes almost at once. The 0.1 s leave time for a busy machine.
        monkeypatch.setattr(dialling, "CONNECT_S_MAX", 0.1)

    async def run() -> None:
        dialler = Dialler(asyncio.get_running_loop())
        dialler.meanings["broker-2"] = meaning
        heard = dialler.dial("broker-2", port_of(silent))
        await until(lambda: heard.ends)
        assert heard.ends == [end]

    runner.run(run())


@pytest.mark.parametrize(
    ("code", "end"),
    [
        (errno.ECONNREFUSED, End.REFUSED),
        (errno.ECONNRESET, End.RESET),
        (errno.ETIMEDOUT, End.TIMED_OUT),
        (errno.EHOSTUNREACH, End.UNREACHABLE),
        (errno.ENETUNREACH, End.UNREACHABLE),
        (errno.EPERM, End.UNREACHABLE),
        # These are errors of our own side, so they say nothing about the peer.
        (errno.EADDRNOTAVAIL, End.CLOSED),
        (errno.EAFNOSUPPORT, End.CLOSED),
        (errno.ENOBUFS, End.CLOSED),
        (errno.EMFILE, End.CLOSED),
    ],
)
def test_what_the_kernel_says_of_a_dial(
    monkeypatch: pytest.MonkeyPatch, code: int, end: End
) -> None:
    class Refusing(asyncio.SelectorEventLoop):
        async def sock_connect(self, *_: object) -> None:
            raise OSError(code, "as told")

    async def run() -> None:
        heard = Dialler(asyncio.get_running_loop()).dial(LOOPBACK, 9092)
        await until(lambda: heard.ends)
        assert heard.ends == [end]
        assert bool(heard.reason) == (end is End.CLOSED)

    with asyncio.Runner(loop_factory=Refusing) as runner:
        runner.run(run())


def test_a_socket_that_has_called_itself_is_known() -> None:
    with socket.socket() as alone, socket.create_server((LOOPBACK, 0)) as served:
        alone.bind((LOOPBACK, 0))
        alone.connect(alone.getsockname())
        assert is_own_end(alone)
        with socket.create_connection(served.getsockname()) as other:
            assert not is_own_end(other)


def test_links_of_brokers_do_not_wait_long_for_an_acknowledgement(runner: asyncio.Runner) -> None:
    """Both sides of a connection between brokers have a TCP user timeout and keepalive probes. A
    connection that a client opened has neither."""

    def patience(link: DialledLink) -> tuple[int, int]:
        ours: socket.socket = link.transport.get_extra_info("socket")  # type: ignore[union-attr]  # linked
        asks = ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        every_s = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) if asks else 0
        return ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT), every_s

    async def run() -> None:
        world = Dialler(asyncio.get_running_loop()).world
        found = {}
        for name in ("BROKER", "HOST"):
            accepted, dialled = Heard(), Heard()
            at = Listener(host=LOOPBACK, port=0, advertised_host=LOOPBACK, advertised_port=0)
            listening = world.listen(name, at, lambda heard=accepted: heard)  # type: ignore[misc]  # bound
            listening.open()
            world.dial(Address(LOOPBACK, port_of(listening._bound)), dialled)
            await until(lambda one=accepted, two=dialled: one.link and two.link)  # type: ignore[misc]
            found[name] = (patience(accepted.link), patience(dialled.link))
            dialled.link.close()
            await until(lambda one=accepted: one.ends)  # type: ignore[misc]
            accepted.link.close()
            listening.close()
        assert found == {"BROKER": ((2_000, 1), (2_000, 1)), "HOST": ((0, 0), (2_000, 1))}

    runner.run(run())
