"""The pure parts of the login: hashes, files, sessions, limits, and what a proxy says."""

from __future__ import annotations

import hashlib
import itertools

import pytest

from monitor.login.passwords import COST, UNKNOWN, PasswordHash
from monitor.login.people import (
    PageRole,
    Person,
    ScriptToken,
    fingerprint_of,
    people_data,
    people_of,
    token_text,
    tokens_data,
    tokens_of,
)
from monitor.login.proxies import ProxiedPerson, Proxies, person_of, without_forwarded
from monitor.login.sessions import (
    IDLE_MS_MAX,
    LIFE_MS_MAX,
    ORDERS_IDLE_MS_MAX,
    SESSIONS_MAX,
    SESSIONS_OF_ONE_MAX,
    PageSessions,
)
from monitor.login.throttle import KEYS_MAX, RequestAllowance, WrongLogins, network_of

CHEAP = (4, 8, 1)
ADA = Person("ada", PageRole.OPERATOR, PasswordHash.of("correct-horse", b"salt", CHEAP))
BEA = Person("bea", PageRole.VIEWER, PasswordHash.of("battery-staple", b"pepper", CHEAP))
PEOPLE = {"ada": ADA, "bea": BEA}
SECRET = "a-secret-of-the-proxy-and-the-mill"
ROLES = {"ops": PageRole.OPERATOR, "staff": PageRole.VIEWER}


# --- hashes and files -----------------------------------------------------------------------------


def test_a_hash_is_scrypt_with_the_wanted_costs_and_matches_its_password_only() -> None:
    made = PasswordHash.of("correct-horse", b"0123456789abcdef")
    assert COST == (15, 8, 3)
    expected = hashlib.scrypt(
        b"correct-horse", salt=b"0123456789abcdef", n=2**15, r=8, p=3, maxmem=1 << 28, dklen=32
    )
    assert made.key == expected
    assert PasswordHash.parse(str(made)) == made
    assert made.matches("correct-horse")
    assert not made.matches("correct-horsf")
    assert made.key.hex() not in repr(made)
    assert (UNKNOWN.log_n, UNKNOWN.r, UNKNOWN.p) == COST


@pytest.mark.parametrize(
    "text", ["", "scrypt$15$8$3$00", "bcrypt$15$8$3$00$00", "scrypt$40$8$1$00$00", "scrypt$x$8$1$$"]
)
def test_a_hash_with_other_words_or_with_costs_that_take_all_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        PasswordHash.parse(text)


def test_files_are_read_as_they_were_written() -> None:
    assert people_of(people_data([ADA, BEA])) == PEOPLE
    tokens = [
        ScriptToken("a", PageRole.VIEWER, "f" * 64, 17),
        ScriptToken("b", PageRole.VIEWER, "e" * 64),
    ]
    assert tokens_of(tokens_data(tokens)) == {"a": tokens[0], "b": tokens[1]}
    assert tokens[0].has_ended(17) and not tokens[0].has_ended(16)
    assert not tokens[1].has_ended(1 << 60)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b'{"version": 1}',
        b'{"version": 2, "rows": []}',
        b'{"version": 1, "rows": [{"name": "x"}]}',
        b'{"version": 1, "rows": [{"name": 1, "role": "viewer", "password": ""}]}',
        b'{"version": 1, "rows": [{"name": "x", "role": "root", "password": ""}]}',
    ],
)
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        people_of(data)


def test_a_token_has_a_checksum_and_only_its_hash_is_kept() -> None:
    text = token_text(bytes(range(32)))
    assert text.startswith("mill_") and len(text) == 5 + 64 + 8
    assert fingerprint_of(text) == hashlib.sha256(text.encode()).hexdigest()
    for wrong in ("", "mill_", text[:-1], text + "0", text.upper(), text[:-1] + "g", text[5:]):
        assert fingerprint_of(wrong) is None
    other = "0" if text[10] != "0" else "1"
    assert fingerprint_of(text[:10] + other + text[11:]) is None, "the checksum does not fit"


# --- sessions -------------------------------------------------------------------------------------


@pytest.fixture
def sessions() -> PageSessions:
    numbers = itertools.count()
    return PageSessions(lambda: f"secret {next(numbers)}")


def test_a_session_is_found_by_its_key_alone_and_each_login_has_another(
    sessions: PageSessions,
) -> None:
    key, session = sessions.open(ADA, 0)
    assert sessions.find(key, PEOPLE, 1, is_used=True) is session
    for wrong in (session.fingerprint, session.form_secret, "", None):
        assert sessions.find(wrong, PEOPLE, 1, is_used=True) is None
    assert key not in repr(session)
    again, other = sessions.open(ADA, 1)
    assert again != key and other.form_secret != session.form_secret


def test_a_session_ends_after_seven_days_and_after_twelve_hours_at_rest(
    sessions: PageSessions,
) -> None:
    key, _ = sessions.open(ADA, 0)
    now_ms = 0
    while now_ms <= LIFE_MS_MAX:
        assert sessions.find(key, PEOPLE, now_ms, is_used=True) is not None
        now_ms += IDLE_MS_MAX
    assert sessions.find(key, PEOPLE, now_ms, is_used=True) is None
    key, _ = sessions.open(ADA, 0)
    assert sessions.find(key, PEOPLE, IDLE_MS_MAX, is_used=False) is not None
    assert sessions.find(key, PEOPLE, IDLE_MS_MAX + 1, is_used=True) is None
    assert len(sessions) == 0


def test_an_operator_loses_the_right_to_order_after_half_an_hour_at_rest(
    sessions: PageSessions,
) -> None:
    """The automatic refresh of a page does not show that its reader is still there."""
    key, session = sessions.open(ADA, 0)
    assert session.can_order
    assert not sessions.open(BEA, 0)[1].can_order
    sessions.find(key, PEOPLE, ORDERS_IDLE_MS_MAX, is_used=True)
    assert session.can_order
    for minute in range(31, 61):
        sessions.find(key, PEOPLE, minute * 60_000, is_used=False)
    sessions.find(key, PEOPLE, 2 * ORDERS_IDLE_MS_MAX + 1, is_used=True)
    lost = session.can_order
    sessions.find(key, PEOPLE, 2 * ORDERS_IDLE_MS_MAX + 2, is_used=True)
    assert (lost, session.can_order) == (False, False), "only another login gives it back"


@pytest.mark.parametrize(
    "people",
    [
        {},
        {"ada": Person("ada", PageRole.VIEWER, ADA.password)},
        {"ada": Person("ada", PageRole.OPERATOR, PasswordHash.of("other", b"salt", CHEAP))},
        {"ada": Person("ada", PageRole.OPERATOR, PasswordHash.of("correct-horse", b"tlas", CHEAP))},
    ],
    ids=["removed", "another role", "another password", "the same password again"],
)
def test_a_changed_or_removed_person_has_no_session(
    sessions: PageSessions, people: dict[str, Person]
) -> None:
    key, session = sessions.open(ADA, 0)
    assert sessions.find(key, people, 1, is_used=True) is None
    assert session.has_ended
    assert sessions.find(key, PEOPLE, 1, is_used=True) is None, "it does not come back"


def test_sessions_are_bounded_for_each_person_and_in_all(sessions: PageSessions) -> None:
    first, _ = sessions.open(ADA, 0)
    bea, _ = sessions.open(BEA, 0)
    for number in range(SESSIONS_OF_ONE_MAX):
        sessions.open(ADA, 1 + number)
    assert sessions.find(first, PEOPLE, 100, is_used=True) is None
    assert sessions.find(bea, PEOPLE, 100, is_used=True) is not None
    for number in range(SESSIONS_MAX + 5):
        sessions.open(Person(f"p{number}", PageRole.VIEWER, ADA.password), 200 + number)
    assert len(sessions) == SESSIONS_MAX


# --- limits ---------------------------------------------------------------------------------------


def test_wrong_logins_wait_one_to_sixty_seconds_and_are_forgotten_after_ten_minutes() -> None:
    wrong, keys, now_ms = WrongLogins(), ("192.0.2.7", ("ada", "192.0.2.7")), 0
    for wait_ms in (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000):
        assert wrong.wait_ms(keys, now_ms) == 0
        wrong.begin(keys, now_ms)
        assert wrong.wait_ms(keys, now_ms) == wait_ms
        now_ms += wait_ms
    assert wrong.wait_ms(keys, now_ms + 600_000) == 0
    wrong.begin(keys, now_ms + 600_000)
    assert wrong.wait_ms(keys, now_ms + 600_000) == 1_000


def test_attempts_at_the_same_time_gain_nothing() -> None:
    wrong = WrongLogins()
    wrong.begin(("a",), 0)
    assert wrong.wait_ms(("a",), 0) == 1_000, "also while the first is being checked"
    wrong.succeed(("a",))
    assert wrong.wait_ms(("a",), 0) == 0


def test_a_success_forgives_the_user_and_not_the_address() -> None:
    """Otherwise an attacker who knows one password could guess those of other users without a
    limit."""
    wrong, ada, bea = WrongLogins(), ("here", ("ada", "here")), ("here", ("bea", "here"))
    for now_ms in (0, 100_000, 200_000):
        wrong.begin(bea, now_ms)
    wrong.begin(ada, 300_000)
    wrong.succeed(ada)
    assert wrong.wait_ms(ada[1:], 300_000) == 0
    wrong.begin(bea, 400_000)
    assert wrong.wait_ms(bea, 400_000) == 8_000


def test_the_memory_of_wrong_logins_is_bounded() -> None:
    wrong = WrongLogins()
    for number in range(KEYS_MAX + 10):
        wrong.begin((f"address {number}",), 0)
    assert wrong.wait_ms(("address 0",), 0) == 0
    assert wrong.wait_ms((f"address {KEYS_MAX}",), 0) == 1_000


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::17", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_addresses_are_counted_by_network(address: str, network: str) -> None:
    assert network_of(address) == network


def test_a_bucket_lets_through_its_rate() -> None:
    bucket = RequestAllowance(20, 60, 60, 0)
    assert sum(bucket.take(0) for _ in range(100)) == 60
    assert sum(bucket.take(1_000) for _ in range(100)) == 20
    assert sum(bucket.take(500) for _ in range(100)) == 0, "a clock that goes back gives nothing"


# --- proxies --------------------------------------------------------------------------------------

PROXIED = [
    (b"x-forwarded-user", b"ada@example.org"),
    (b"x-forwarded-groups", b"staff,ops"),
    (b"millrace-proxy-secret", SECRET.encode()),
]


def test_a_proxy_names_a_person_who_gets_the_highest_role_of_the_groups() -> None:
    found = person_of(PROXIED, SECRET, ROLES)
    assert found == ProxiedPerson("ada@example.org", PageRole.OPERATOR)
    viewer = [PROXIED[0], (b"x-forwarded-groups", b" staff , other"), PROXIED[2]]
    assert person_of(viewer, SECRET, ROLES) == ProxiedPerson("ada@example.org", PageRole.VIEWER)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (PROXIED[:2], "does not send the secret"),
        ([*PROXIED[:2], (b"millrace-proxy-secret", b"guess")], "does not send the secret"),
        ([*PROXIED, PROXIED[2]], "does not send the secret"),
        (PROXIED[1:], "exactly one user"),
        ([(b"x-forwarded-user", b"root"), *PROXIED], "exactly one user"),
        ([(b"x-forwarded-user", b" "), *PROXIED[1:]], "exactly one user"),
        ([(b"x-forwarded-user", b"a\tb"), *PROXIED[1:]], "exactly one user"),
        ([(b"x-forwarded-groups", b"ops"), *PROXIED], "more than once"),
        ([PROXIED[0], PROXIED[2]], "no group of the user"),
        ([PROXIED[0], (b"x-forwarded-groups", b"OPS"), PROXIED[2]], "no group of the user"),
    ],
)
def test_pitfall_41_a_missing_forged_or_doubled_header_names_no_person(
    headers: list[tuple[bytes, bytes]], why: str
) -> None:
    found = person_of(headers, SECRET, ROLES)
    assert isinstance(found, str) and why in found


def test_pitfall_41_without_a_map_of_groups_there_is_no_role() -> None:
    assert person_of(PROXIED, SECRET, {}) == "no group of the user is in monitor.proxy_roles"


def test_the_address_of_a_client_is_the_last_one_that_is_no_proxy() -> None:
    proxies = Proxies.of(["127.0.0.1", "10.0.0.0/24"])

    def client(peer: str, *values: bytes) -> str:
        return proxies.client_of(peer, [(b"x-forwarded-for", value) for value in values])

    assert client("127.0.0.1", b"203.0.113.9, 192.0.2.7") == "192.0.2.7"
    assert client("127.0.0.1", b"203.0.113.9, 192.0.2.7, 10.0.0.3") == "192.0.2.7"
    assert client("127.0.0.1", b"203.0.113.9", b"192.0.2.7") == "192.0.2.7"
    assert client("127.0.0.1", b"nonsense") == "127.0.0.1"
    assert client("127.0.0.1") == "127.0.0.1"
    assert client("192.0.2.8", b"203.0.113.9") == "192.0.2.8", "a stranger's header is not believed"


@pytest.mark.parametrize(
    "name",
    [b"x-forwarded-user", b"X_Forwarded_For", b"forwarded", b"millrace-proxy-secret", b"x-real-ip"],
)
def test_pitfall_41_headers_that_only_a_proxy_may_send_are_dropped(name: bytes) -> None:
    kept = (b"host", b"mill")
    assert without_forwarded([(name, b"x"), kept, (name, b"y")]) == [kept]
