"""Logins on a listener that requires them: what is served before and after, and when they end."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from broker.handlers.login import FAILURE_DELAY_MS
from broker.sessions.login import (
    API_VERSIONS_MAX,
    LOGIN_FRAME_BYTES_MAX,
    LOGIN_MS_MAX,
    LoginRules,
)
from protocol.errors import ErrorCode
from protocol.messages.api import SERVED, ApiKey, client_versions, request_class
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.headers import encode_request
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.topics import CreateTopicsRequest
from protocol.security.scram import ClientExchange, Mechanism, salted_password
from tests.harness.seed import seeded
from tests.unit.broker.login_rig import LoginClient, LoginRig
from tests.unit.protocol.examples import Examples

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE
HOUR_MS = 3_600_000


@pytest.fixture
def rig() -> LoginRig:
    made = LoginRig()
    made.set_password("shop", "secret")
    return made


def ends(rig: LoginRig, client: LoginClient) -> bool:
    """Return True if the connection ends a little later, so that the client reads the answer."""
    is_open = not client.is_closed
    rig.let_time_pass(150)
    return is_open and client.is_closed


@pytest.mark.parametrize("mechanism", list(Mechanism))
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_logs_in_and_is_served(mechanism: Mechanism, version: int) -> None:
    rig = LoginRig()
    rig.set_password("shop", "secret", mechanism)
    client = rig.connect()
    last = client.log_in(mechanism=mechanism, version=version)
    assert last.error_code == 0
    life_ms = last.session_lifetime_ms
    assert life_ms == 0 if version == 0 else 0.9 * HOUR_MS <= life_ms <= HOUR_MS
    assert client.ask(MetadataRequest(topics=[]), 12).brokers
    assert client.session.login.user == "shop"


def test_a_listener_without_login_serves_as_before_and_says_so(rig: LoginRig) -> None:
    client = rig.connect("HOST")
    assert client.choose().error_code == ILLEGAL
    answer = client.authenticate(b"n,,n=shop,r=x")
    assert (answer.error_code, answer.error_message) == (
        ILLEGAL,
        "this listener requires no login",
    )
    assert client.ask(MetadataRequest(topics=[]), 12).brokers


@pytest.mark.parametrize("key", sorted(SERVED.keys() - {17, 18, 36}))
def test_pitfall_3_nothing_else_is_decoded_before_the_login(rig: LoginRig, key: ApiKey) -> None:
    """The broker refuses a request by its API key alone. This one has no body that could be
    decoded."""
    before = rig.broker.metrics.times_of(key).count
    for begin in (lambda client: None, lambda client: client.choose()):
        client = rig.connect()
        begin(client)
        already = client.link.sent
        client.send_bytes(struct.pack(">ihhih", 10, key, SERVED[key][-1], 1, -1))
        assert client.is_closed
        assert client.link.sent == already
    assert rig.broker.metrics.times_of(key).count == before


def test_before_the_login_requests_are_small_and_then_as_large_as_ever(rig: LoginRig) -> None:
    """Pitfall 2 (CVE-2022-34917): the broker allocates no memory for a declared size."""
    client = rig.connect()
    client.send_bytes(struct.pack(">i", LOGIN_FRAME_BYTES_MAX + 1))
    assert client.is_closed
    client = rig.connect()
    client.log_in()
    client.send_bytes(struct.pack(">i", LOGIN_FRAME_BYTES_MAX + 1) + bytes(1_000))
    assert not client.is_closed
    assert client.link.frames.capacity_bytes < 1 << 20


def test_pitfall_1_counts_before_the_login_take_no_memory(rig: LoginRig) -> None:
    """The broker does not trust a count of tagged fields or of array elements."""
    huge = b"\xff\xff\xff\xff\x07"
    header = struct.pack(">hhih", ApiKey.SASL_AUTHENTICATE, 2, 1, -1)
    for body in (huge, b"\x00" + huge, b"\x00\x01" + huge):
        client = rig.connect()
        client.choose()
        client.send_bytes(struct.pack(">i", len(header + body)) + header + body)
        assert client.is_closed


def test_a_login_has_ten_seconds(rig: LoginRig) -> None:
    """The limit holds no matter how often the client sends something."""
    client, done = rig.connect(), rig.connect()
    done.log_in()
    client.choose()
    rig.let_time_pass(LOGIN_MS_MAX - 1_000)
    assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert [client.is_closed, done.is_closed] == [False, False]
    rig.let_time_pass(2_000)
    assert [client.is_closed, done.is_closed] == [True, False]


def test_unfinished_logins_are_bounded_and_do_not_count_against_other_listeners() -> None:
    rig = LoginRig(max_silent_connections=3)
    rig.set_password("shop", "secret")
    logged_in = [rig.connect() for _ in range(3)]
    assert all(client.log_in().error_code == 0 for client in logged_in)
    unfinished = [rig.connect() for _ in range(3)]
    for client in unfinished:
        client.choose()
    assert not any(client.is_closed for client in unfinished)
    assert rig.connect().is_closed
    assert not rig.connect("HOST").is_closed
    rig.let_time_pass(LOGIN_MS_MAX + 1)
    assert rig.connect().log_in().error_code == 0


def test_api_versions_before_the_login_are_bounded(rig: LoginRig) -> None:
    client = rig.connect()
    for _ in range(API_VERSIONS_MAX):
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    client.send(ApiVersionsRequest(), 0)
    assert client.is_closed


def test_a_new_version_of_api_versions_is_answered_before_the_login(rig: LoginRig) -> None:
    client = rig.connect()
    client.send_bytes(struct.pack(">ihhihx", 11, ApiKey.API_VERSIONS, 99, 1, -1))
    assert client.answer(ApiVersionsRequest, 0).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.log_in().error_code == 0


def test_a_mechanism_that_is_not_offered_is_answered_with_the_list(rig: LoginRig) -> None:
    client = rig.connect()
    answer = client.choose("PLAIN")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert ends(rig, client)


def test_raw_tokens_are_not_served(rig: LoginRig) -> None:
    client = rig.connect()
    assert client.choose(version=0) is None
    assert client.is_closed


@pytest.mark.parametrize("chosen", [True, False])
def test_steps_in_the_wrong_order(rig: LoginRig, chosen: bool) -> None:
    client = rig.connect()
    if chosen:
        client.choose()
        assert client.choose().error_code == ILLEGAL
    else:
        assert client.authenticate(b"n,,n=shop,r=x").error_code == ILLEGAL
    assert ends(rig, client)


def refused(rig: LoginRig, user: str, password: str, mechanism: Mechanism) -> tuple[bytes, int]:
    """Return all bytes of a failed login except its nonces, and the time of its end."""
    client = rig.connect()
    exchange = ClientExchange(user, mechanism.digest, bytes(24))
    client.choose(mechanism.sasl_name)
    told = client.authenticate(exchange.first())
    challenge = exchange.challenged(told.auth_bytes)
    before = len(client.link.sent)
    salted = salted_password(password, challenge.salt, challenge.iterations, mechanism.digest)
    assert client.authenticate(exchange.final(challenge, salted)) is None
    begun_ms = rig.clock.monotonic_ms()
    rig.world.run_for(FAILURE_DELAY_MS - 1)
    assert len(client.link.sent) == before, "a guess takes its time"
    while not client.is_closed:
        rig.world.run_for(1)
    assert rig.clock.monotonic_ms() - begun_ms < 1_000
    shape = f"{len(challenge.nonce)} {len(challenge.salt)}".encode()
    return shape + client.link.sent[before:], rig.clock.monotonic_ms() - begun_ms


def test_pitfall_7_users_cannot_be_told_apart(rig: LoginRig) -> None:
    """A wrong password, an unknown user, and a user of another mechanism get the same bytes at the
    same time."""
    rig.set_password("web", "secret", Mechanism.SHA_256)
    for mechanism, known in ((Mechanism.SHA_512, "shop"), (Mechanism.SHA_256, "web")):
        rig.set_password(known, "secret", mechanism)
        answers = {
            refused(rig, user, "wrong", mechanism) for user in (known, "unknown", "shop", "web")
        }
        assert len(answers) == 1


def challenge_of(
    rig: LoginRig, user: str, mechanism: Mechanism = Mechanism.SHA_512
) -> tuple[bytes, int]:
    client = rig.connect()
    client.choose(mechanism.sasl_name)
    exchange = ClientExchange(user, mechanism.digest, bytes(24))
    challenge = exchange.challenged(client.authenticate(exchange.first()).auth_bytes)
    return challenge.salt, challenge.iterations


def test_pitfall_7_the_salt_of_an_unknown_user_stays() -> None:
    """The salt is the same each time and on each broker of the cluster, and differs between users
    and mechanisms."""
    one, other = LoginRig(), LoginRig()
    found = challenge_of(one, "unknown")
    assert found == challenge_of(one, "unknown") == challenge_of(other, "unknown")
    assert found != challenge_of(one, "other")
    assert found != challenge_of(one, "unknown", Mechanism.SHA_256)
    assert (len(found[0]), found[1]) == (24, 8_192)


def test_a_wrong_password_is_answered_as_kafka_does(rig: LoginRig) -> None:
    for user, password in (("shop", "wrong"), ("unknown", "secret")):
        client = rig.connect()
        answer = client.log_in(user, password)
        assert answer.error_code == FAILED
        assert answer.error_message == (
            "Authentication failed during authentication due to invalid credentials"
            " with SASL mechanism SCRAM-SHA-512"
        )
        assert client.is_closed


def test_pitfall_8_a_user_of_the_other_mechanism_is_refused(rig: LoginRig) -> None:
    """Redpanda #8820, #5036: such a login crashed the broker."""
    assert rig.connect().log_in(mechanism=Mechanism.SHA_256).error_code == FAILED
    rig.set_password("shop", "other", Mechanism.SHA_256)
    assert rig.connect().log_in("shop", "other", Mechanism.SHA_256).error_code == 0
    assert rig.connect().log_in("shop", "secret").error_code == 0


def test_a_request_behind_a_failed_login_is_not_served(rig: LoginRig) -> None:
    client = rig.connect()
    client.choose()
    last = client.encoded(SaslAuthenticateRequest(auth_bytes=b"nonsense"), 2)
    topics = CreateTopicsRequest(topics=[])
    client.send_bytes(last + client.encoded(topics, 7))
    rig.let_time_pass(200)
    assert client.is_closed


def test_a_login_may_be_sent_at_once(rig: LoginRig) -> None:
    """ApiVersions, the mechanism and the first message come in one segment. Then come the last
    message and a request."""
    client = rig.connect()
    exchange = ClientExchange("shop", "sha512", bytes(24))
    client.send_bytes(
        client.encoded(ApiVersionsRequest(), 0)
        + client.encoded(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
        + client.encoded(SaslAuthenticateRequest(auth_bytes=exchange.first()), 2)
    )
    assert client.answer(ApiVersionsRequest, 0).error_code == 0
    assert client.answer(SaslHandshakeRequest, 1).error_code == 0
    told = client.answer(SaslAuthenticateRequest, 2)
    challenge = exchange.challenged(told.auth_bytes)
    salted = salted_password("secret", challenge.salt, challenge.iterations, "sha512")
    final = SaslAuthenticateRequest(auth_bytes=exchange.final(challenge, salted))
    client.send_bytes(client.encoded(final, 2) + client.encoded(MetadataRequest(topics=[]), 12))
    assert client.answer(SaslAuthenticateRequest, 2).error_code == 0
    assert client.answer(MetadataRequest, 12).brokers


# Sessions that end.


def test_a_session_ends_unless_the_client_logs_in_again() -> None:
    rig = LoginRig(connections_max_reauth_ms=60_000, connections_max_idle_ms=LOGIN_MS_MAX * 100)
    rig.set_password("shop", "secret")
    silent, renewed = rig.connect(), rig.connect()
    for client in (silent, renewed):
        assert 54_000 <= client.log_in().session_lifetime_ms <= 60_000
    rig.let_time_pass(50_000)
    again = renewed.log_in(begins=False)
    assert again.error_code == 0 and again.session_lifetime_ms >= 54_000
    rig.let_time_pass(11_000)
    assert silent.is_closed and not renewed.is_closed
    assert renewed.ask(MetadataRequest(topics=[]), 12).brokers
    rig.let_time_pass(60_000)
    assert renewed.is_closed


def test_a_request_after_the_end_is_not_served_even_before_the_sweep() -> None:
    rig = LoginRig(connections_max_reauth_ms=60_000)
    rig.set_password("shop", "secret")
    client = rig.connect()
    client.log_in()
    rig.clock.advance(60_001)
    client.send(MetadataRequest(topics=[]), 12)
    assert client.is_closed


def test_sessions_without_an_end(rig: LoginRig) -> None:
    rig = LoginRig(connections_max_reauth_ms=0)
    rig.set_password("shop", "secret")
    client = rig.connect()
    assert client.log_in().session_lifetime_ms == 0
    rig.clock.advance(100 * HOUR_MS)
    assert client.ask(MetadataRequest(topics=[]), 12).brokers
    assert client.choose().error_code == ILLEGAL
    assert not client.is_closed


def test_pitfall_12_another_user_or_mechanism_ends_the_connection(rig: LoginRig) -> None:
    rig.set_password("web", "secret")
    rig.set_password("shop", "secret", Mechanism.SHA_256)
    client = rig.connect()
    client.log_in()
    assert client.choose().error_code == ILLEGAL, "within a second of the last login"
    rig.clock.advance(2_000)
    assert client.log_in("web", begins=False).error_code == FAILED
    assert client.is_closed
    client = rig.connect()
    client.log_in()
    rig.clock.advance(2_000)
    assert client.choose("SCRAM-SHA-256").error_code == ILLEGAL
    assert ends(rig, client)


def test_pitfall_12_a_wrong_password_while_logged_in_ends_the_connection(rig: LoginRig) -> None:
    client = rig.connect()
    client.log_in()
    rig.clock.advance(2_000)
    assert client.log_in(password="wrong", begins=False).error_code == FAILED
    assert client.is_closed


def test_pitfall_12_logging_in_again_among_64_requests_keeps_their_order(rig: LoginRig) -> None:
    client = rig.connect()
    client.log_in()
    rig.clock.advance(2_000)
    metadata = MetadataRequest(topics=[])
    frames = [client.encoded(metadata, 12) for _ in range(32)]
    frames.append(client.encoded(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1))
    frames += [client.encoded(metadata, 12) for _ in range(31)]
    client.send_bytes(b"".join(frames))
    for _ in range(32):
        assert client.answer(MetadataRequest, 12).brokers
    assert client.answer(SaslHandshakeRequest, 1).error_code == 0
    for _ in range(31):
        assert client.answer(MetadataRequest, 12).brokers


@pytest.mark.parametrize(
    "change",
    [
        lambda rig: rig.set_password("shop", "other"),
        lambda rig: rig.remove("shop"),
    ],
)
def test_a_changed_or_removed_user_is_logged_out_at_once(
    rig: LoginRig, change: Callable[[LoginRig], None]
) -> None:
    rig.set_password("web", "secret")
    rig.set_password("shop", "secret", Mechanism.SHA_256)
    kept, ended, other = rig.connect(), rig.connect(), rig.connect()
    kept.log_in("web")
    ended.log_in()
    other.log_in(mechanism=Mechanism.SHA_256)
    half = rig.connect()
    half.choose()
    exchange = ClientExchange("shop", "sha512", bytes(24))
    challenge = exchange.challenged(half.authenticate(exchange.first()).auth_bytes)
    change(rig)
    assert ended.is_closed
    assert not kept.is_closed and not other.is_closed
    assert rig.connect().log_in().error_code == FAILED
    salted = salted_password("secret", challenge.salt, challenge.iterations, "sha512")
    assert half.authenticate(exchange.final(challenge, salted)) is None
    rig.let_time_pass(200)
    assert half.answer(SaslAuthenticateRequest, 2).error_code == FAILED


def test_the_log_names_the_user_and_the_reason_but_no_secret(
    rig: LoginRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.connect().log_in("shop", "canary of a password")
    found = [record for record in caplog.records if record.message == "login failed"]
    shown = str([vars(record) for record in found])
    assert "the proof is wrong" in shown and "shop" in shown
    assert "canary" not in shown


def test_no_secret_is_printed(rig: LoginRig) -> None:
    """Secrets must not appear in a log, a stack trace or a failed assertion."""
    config = rig.broker.parts.settings.config
    rules = LoginRules({}, config.login_secret, 0, 0)
    assert config.login_secret == b"secret of the cluster"
    for one in (config, rules):
        assert "secret of the cluster" not in repr(one)


# Frames before the login.


def wild_frame(chance: random.Random, client: LoginClient, examples: Examples) -> bytes:
    """Return a request of any kind, or a malformed one."""
    key = chance.choice([*SERVED, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE] * 2)
    if chance.random() < 0.6:
        key = chance.choice([ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS])
    version = chance.choice(client_versions(key))
    message = examples.message(request_class(key), version)
    if isinstance(message, SaslHandshakeRequest) and chance.random() < 0.7:
        message.mechanism = chance.choice(["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "\x00"])
    if isinstance(message, SaslAuthenticateRequest) and chance.random() < 0.7:
        message.auth_bytes = chance.choice(
            [b"n,,n=shop,r=abc", b"n,,n=unknown,r=abc", b"c=biws,r=abc,p=AAAA", b"", b"\xff" * 100]
        )
    frame = bytearray(encode_request(message, version, 1, "wild"))
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        frame[chance.randrange(len(frame))] = chance.randrange(256)
    return bytes(frame[: chance.choice([len(frame)] * 4 + [chance.randrange(len(frame))])])


@pytest.mark.parametrize("rounds", [150, pytest.param(20_000, marks=pytest.mark.slow)])
def test_wild_frames_before_the_login_do_no_harm(rig: LoginRig, rounds: int) -> None:
    """A frame raises only exceptions that close its connection. It creates no topic, completes no
    login, and makes the broker allocate no large buffer."""
    chance = seeded("frames before the login")
    examples = Examples(chance.randrange(1 << 30))
    before = rig.broker.metadata.image
    for _ in range(rounds):
        client = rig.connect()
        for _ in range(chance.randrange(1, 8)):
            client.send_bytes(wild_frame(chance, client, examples))
        assert not client.session.login.is_complete
        assert client.link.frames.capacity_bytes <= 2 * LOGIN_FRAME_BYTES_MAX
        if not client.is_closed:
            rig.let_time_pass(LOGIN_MS_MAX + 1)
            assert client.is_closed
    assert rig.broker.metadata.image.topics == before.topics
    assert rig.broker.metadata.image.credentials == before.credentials
    assert not rig.broker.listeners.sessions.open
    assert rig.connect().log_in().error_code == 0
