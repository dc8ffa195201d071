"""Hostile frames before the login and behind it, on a whole broker without sockets. No frame may
cause an unhandled exception, and memory stays bounded."""

from __future__ import annotations

import gc
import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import psutil
import pytest

from broker.world import End
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from protocol.security.acl import (
    ANY_USER,
    USER_PREFIX,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from protocol.security.scram import salted_password
from tests.harness.fuzz import IDS, TOPICS, Fuzz
from tests.harness.login_fuzz import LoginFuzz
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.wire import batch_of, produce_request
from tests.unit.broker import login_rig
from tests.unit.broker.acl_rig import AclRig
from tests.unit.broker.login_rig import LoginClient, LoginRig

PINNED = 20261201
"""The seed of the short forms, so that they send the same frames in every run."""

FRAMES, FRAMES_LONG = 8_000, 10_000_000
FRAMES_BEHIND, FRAMES_BEHIND_LONG = 2_000, 1_000_000
LIFE_FRAMES = 3_000
"""The frames behind the login that one broker gets. Its disk is in memory, so after these frames
the test starts another broker."""

CHECK_EVERY = 500
"""The connections after which all of them must have ended."""

GROWTH_MAX_MIB = 64
PEAK_MAX_MIB = 1_500
"""Behind the login the peak includes the disk of one broker, in memory."""

USERS = ("one", "two", "three", "four")
GUEST = "guest"
"""A user without any right."""

ACL_COUNT_MAX = 40
INTERACTIVE_SHARE = 0.1
"""The share of the clients that read the server's challenge and use its nonce."""


def memory_mib() -> float:
    gc.collect()
    return float(psutil.Process().memory_info().rss) / (1 << 20)


class Faults(logging.Handler):
    """Keeps the log entries of unhandled exceptions, and of everything else that is an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


@contextmanager
def no_faults() -> Iterator[Faults]:
    """Fail if the broker logs an error. Other entries are dropped, because pytest would keep
    millions of them."""
    faults, logger = Faults(), logging.getLogger("broker")
    before = logger.level, logger.propagate
    logger.addHandler(faults)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield faults
    finally:
        logger.removeHandler(faults)
        logger.level, logger.propagate = before
        logger.setLevel(before[0])
    assert not faults.texts, faults.texts[0]


class Memory:
    """The memory of this process, in which the broker runs."""

    def __init__(self) -> None:
        self._first_mib = 0.0
        self.growth_mib = 0.0
        self.peak_mib = 0.0

    def look(self, is_warm: bool) -> None:
        """Measure. The growth counts from the first look of a warm process."""
        now_mib = memory_mib()
        self.peak_mib = max(self.peak_mib, now_mib)
        if not is_warm:
            return
        self._first_mib = self._first_mib or now_mib
        self.growth_mib = max(self.growth_mib, now_mib - self._first_mib)
        assert self.growth_mib < GROWTH_MAX_MIB

    def told(self, what: str, count: int, began_s: float) -> None:
        rate = count / (time.monotonic() - began_s)
        tell(
            f"{what}: {count:,} frames, {rate:,.0f} a second, memory grown by"
            f" {self.growth_mib:.1f} MiB, peak {self.peak_mib:.0f} MiB"
        )


def deliver(client: LoginClient, frames: list[bytes], chance: random.Random) -> int:
    """Send frames until the broker closes the connection. Return how many it has received."""
    if chance.random() < 0.2:
        data, split = b"".join(frames), chance.randrange(1, 200)
        client.send_bytes(data[:split])
        client.send_bytes(data[split:])
        return len(frames)
    for number, frame in enumerate(frames, 1):
        client.send_bytes(frame)
        if client.is_closed:
            return number
    return len(frames)


def hang_up(client: LoginClient, chance: random.Random) -> None:
    """End the connection from the client's side, in a random way."""
    if not client.session.is_closed:
        client.session.ended(chance.choice((End.EOF, End.RESET, End.CLOSED)))


def check_that_all_have_ended(rig: LoginRig) -> None:
    """Let time pass, so that delayed answers are sent. Then no connection may be left, and no
    memory be accounted for one."""
    rig.let_time_pass(30_000)
    sessions = rig.broker.listeners.sessions
    assert not sessions.open
    assert sessions.buffer_bytes == 0
    assert sessions.tally("NET").silent_count == sessions.tally("NET").count == 0


def challenged(client: LoginClient, fuzz: LoginFuzz) -> int:
    """Log in with wrong messages that have the server's nonce. Return the number of frames."""
    client.send_bytes(fuzz.handshake() + fuzz.first())
    sent = client.link.sent
    at = sent.find(b",s=")
    start = sent.rfind(b"r=", 0, at)
    if at < 0 or start < 0:
        return 2
    client.send_bytes(fuzz.final(sent[start + 2 : at].decode()))
    return 3


def run_before_login(frame_count: int, chance: random.Random) -> None:
    fuzz, memory = LoginFuzz(chance), Memory()
    rig = LoginRig()
    rig.set_password("shop", "secret")
    metadata = rig.broker.parts.metadata
    image = metadata.image
    count = connections = 0
    began_s = time.monotonic()
    with no_faults() as faults:
        while count < frame_count:
            client = rig.connect()
            if chance.random() < INTERACTIVE_SHARE:
                count += challenged(client, fuzz)
            else:
                count += deliver(client, fuzz.connection(), chance)
            assert not client.session.login.is_complete
            hang_up(client, chance)
            connections += 1
            if not connections % CHECK_EVERY:
                check_that_all_have_ended(rig)
                assert not faults.texts
                if not connections % (20 * CHECK_EVERY):
                    memory.look(count > frame_count // 10)
        check_that_all_have_ended(rig)
        memory.look(is_warm=True)
        # Nothing was changed by a client without a login, and clients can still log in.
        assert metadata.image is image
        assert rig.connect().log_in().error_code == 0
    memory.told("fuzz before the login", count, began_s)


class Life(LoginRig, AclRig):
    """A broker with users and random ACLs."""

    def __init__(self, chance: random.Random, fuzz: Fuzz, *, has_rights_for_all: bool) -> None:
        """With `has_rights_for_all` some of the ACLs are for all users, and so for the guest
        too."""
        super().__init__(super_users="User:root")
        self.chance = chance
        self.fuzz = fuzz
        self.denials.note = lambda denial: None  # type: ignore[method-assign]  # millions of them
        self.has_rights_for_all = has_rights_for_all
        for user in (*USERS, GUEST):
            self.set_password(user, "secret")
        for name in ("fuzz-0", "fuzz-1", "fuzz-2", "steady"):
            self.create(name, 2)
        self.create("fuzz-compacted", 2, cleanup_policy="compact")
        self.entries = [self.random_entry() for _ in range(chance.randint(1, ACL_COUNT_MAX))]
        self.allow(*self.entries)

    def random_entry(self) -> AclEntry:
        pick = self.chance
        kind = pick.choice((AclResource.TOPIC, AclResource.TOPIC, AclResource.GROUP,
                            AclResource.TRANSACTIONAL_ID, AclResource.CLUSTER))  # fmt: skip
        names = {AclResource.TOPIC: TOPICS, AclResource.CLUSTER: ("kafka-cluster",)}
        name = pick.choice(names.get(kind, tuple(one for one in IDS if one)))
        pattern = PatternType.LITERAL
        if kind is not AclResource.CLUSTER:
            pattern = pick.choice((PatternType.LITERAL, PatternType.PREFIXED))
            name = pick.choice((name, name, "*" if pattern is PatternType.LITERAL else name[:1]))
        operations = {
            AclResource.TOPIC: (AclOperation.ALL, AclOperation.READ, AclOperation.WRITE,
                                AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
                                AclOperation.ALTER_CONFIGS),
            AclResource.GROUP: (AclOperation.ALL, AclOperation.READ, AclOperation.DELETE),
            AclResource.TRANSACTIONAL_ID: (AclOperation.ALL, AclOperation.WRITE),
            AclResource.CLUSTER: (AclOperation.ALL, AclOperation.ALTER, AclOperation.CREATE,
                                  AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
                                  AclOperation.DESCRIBE),
        }[kind]  # fmt: skip
        principal = f"{USER_PREFIX}{pick.choice(USERS)}"
        if self.has_rights_for_all and pick.random() < 0.2:
            principal = ANY_USER
        permission = AclPermission.DENY if pick.random() < 0.15 else AclPermission.ALLOW
        return AclEntry(kind, name, pattern, principal, "*", pick.choice(operations), permission)

    def change_a_right(self) -> None:
        """Withdraw an ACL or create one, while connections are open."""
        if self.entries and self.chance.random() < 0.5:
            self.withdraw(self.entries.pop(self.chance.randrange(len(self.entries))))
        else:
            self.entries.append(self.random_entry())
            self.allow(self.entries[-1])

    def state(self) -> tuple[Any, list[int]]:
        """Return what a user without rights cannot change: the metadata, and the ends of the
        logs."""
        parts = self.broker.parts
        ends = [one.log.log_end_offset for one in parts.replicas]
        return parts.metadata.image, ends

    def settled_state(self) -> tuple[Any, list[int]]:
        """Return the state when the orders of earlier users are complete. A topic that a request
        creates needs several syncs."""
        before, after = None, self.state()
        while after != before:
            self.flusher.sync()
            self.world.settle()
            before, after = after, self.state()
        return after

    def one_connection(self) -> int:
        """Let one user log in and send frames. Return how many the broker has received."""
        chance = self.chance
        user = GUEST if chance.random() < 0.1 else chance.choice(USERS)
        is_guest = user == GUEST and not self.has_rights_for_all
        before = self.settled_state() if is_guest else None
        client = self.connect()
        assert client.log_in(user).error_code == 0
        frames = self.fuzz.connection()
        half = chance.randrange(len(frames) + 1)
        count = deliver(client, frames[:half], chance) if half else 0
        if not is_guest and chance.random() < 0.05:
            self.change_a_right()
        if not client.is_closed and half < len(frames):
            count += deliver(client, frames[half:], chance)
        self.flusher.sync()
        self.world.settle()
        if is_guest:
            assert self.settled_state() == before
        hang_up(client, chance)
        return count

    def check(self) -> None:
        """All connections end, and the broker still serves a user with rights."""
        self.flusher.sync()
        self.world.settle()
        # A request can wait for days, such as a JoinGroup with that time limit. Its session waits
        # for the answer, unless the connection is lost.
        for session in list(self.broker.listeners.sessions.open):
            cast(Any, session).ended(End.CLOSED)
        check_that_all_have_ended(self)
        client = self.connect()
        self.set_password("root", "secret")
        assert client.log_in("root").error_code == 0
        client.send(produce_request("steady", batch_of([b"v"])), 9)
        self.flusher.sync()
        self.world.settle()
        (topic,) = client.answer(ProduceRequest, 9).responses
        assert topic.partition_responses[0].error_code == ErrorCode.NONE
        client.session.ended(End.CLOSED)


def run_behind_login(
    frame_count: int,
    chance: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_bombs: bool = True,
) -> None:
    # All passwords and salts are the same, and computing the key takes longer than the login.
    monkeypatch.setattr(login_rig, "salted_password", cache(salted_password))
    fuzz, memory = Fuzz(chance, has_bombs=has_bombs), Memory()
    count = lives = 0
    began_s = time.monotonic()
    with no_faults() as faults:
        while count < frame_count:
            life = Life(chance, fuzz, has_rights_for_all=lives % 3 == 2)
            end_count = min(frame_count, count + LIFE_FRAMES)
            while count < end_count:
                count += life.one_connection()
                assert not faults.texts
            life.check()
            memory.look(lives > 2)
            lives += 1
    assert memory.peak_mib < PEAK_MAX_MIB
    memory.told(f"fuzz behind the login, {lives} brokers, {len(fuzz.key_counts)} keys",
                count, began_s)  # fmt: skip


def test_frames_before_the_login() -> None:
    run_before_login(FRAMES, random.Random(PINNED))


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_ten_million_frames_before_the_login() -> None:
    run_before_login(FRAMES_LONG, seeded("fuzz before the login"))


def test_frames_behind_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    # To make the bombs takes longer than to serve the frames.
    run_behind_login(FRAMES_BEHIND, random.Random(PINNED), monkeypatch, has_bombs=False)


@pytest.mark.slow
@pytest.mark.timeout(8 * 3600)
def test_a_million_frames_behind_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    run_behind_login(FRAMES_BEHIND_LONG, seeded("fuzz behind the login"), monkeypatch)
