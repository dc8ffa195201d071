"""Keys are compared by their full values, even if two keys look the same when shown."""

import itertools
from hashlib import sha256

import pytest

from sinks.keys import (
    KEY_ID_TEXT_OCTETS_MAX,
    Key,
    cut,
    is_other,
    key_hash,
    key_id,
    other_key,
    redis_field,
    shown_columns,
    text_of_id,
)
from tests.harness.seed import seeded

LOOKALIKES = [
    (),
    ("*",),
    ("",),
    (None,),
    ("(null)",),
    ("(other)",),
    other_key(1),
    other_key(2),
    ("/A",),
    ("/a",),
    ("/a ",),
    ("a", "b"),
    ("a|b",),
    ("a\\", "b"),
    ("a\\|b",),
    ("ab", ""),
    ("", "ab"),
    (None, "ab"),
    ("@start",),
    ("\\@start",),
    ("é",),
    ("e\u0301",),
    ("x" * 600,),
    ("x" * 599 + "y",),
]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ((), ""),
        (("/",), "1:/"),
        (("é",), "2:é"),
        ((None,), "-"),
        (("GET", None, ""), "3:GET-0:"),
        (("(other)",), "7:(other)"),
        (other_key(2), "other"),
        (("x" * 513,), f"512:{cut('x' * 513)}"),
    ],
)
def test_a_hash_is_of_the_columns_as_they_are_shown(key: Key, text: str) -> None:
    assert key_hash(key) == sha256(text.encode()).digest()[:16]


def test_no_two_keys_share_a_hash() -> None:
    # The overflow keys of all metrics have the same hash, no matter how many columns they have.
    keys = [key for key in LOOKALIKES if key != other_key(2)]
    assert len({key_hash(key) for key in keys}) == len(keys)
    assert key_hash(other_key(1)) == key_hash(other_key(2))


def test_no_two_keys_of_one_width_share_a_redis_field() -> None:
    for width, keys in itertools.groupby(sorted(LOOKALIKES, key=len), key=len):
        listed = list(keys)
        assert len({redis_field(key) for key in listed}) == len(listed), width


def test_random_keys_never_meet_in_a_field() -> None:
    rng = seeded("redis fields")
    alphabet = ["|", "\\", "@", "a", "(null)", "(other)", "*"]
    seen: dict[str, tuple[str | None, ...]] = {}
    for _ in range(20_000):
        key = tuple(
            None if rng.random() < 0.1 else "".join(rng.choices(alphabet, k=rng.randrange(4)))
            for _ in range(2)
        )
        assert seen.setdefault(redis_field(key), key) == key


def test_fields_read_as_documented() -> None:
    assert redis_field(("GET", "/a|b")) == "GET|/a\\|b"
    assert redis_field(("@start",)) == "\\@start"
    assert redis_field((None, "x")) == "(null)|x"
    assert redis_field(other_key(2)) == "(other)"
    assert redis_field(()) == "*"
    assert redis_field(("(other)",)) == "\\(other)"


def test_columns_for_people_are_cut_and_stay_apart() -> None:
    long, other = "x" * 600, "x" * 599 + "y"
    assert shown_columns((long,))[0] != shown_columns((other,))[0]
    assert len(cut(long)) == 512
    assert cut("y" * 512) == "y" * 512
    # A text that was cut stays the same when it is cut again, so a rebuilt view has the same
    # fields.
    assert cut(cut(long)) == cut(long)
    assert shown_columns(()) == ("*", None, None)
    assert shown_columns(other_key(3)) == ("(other)", None, None)
    assert is_other(other_key(2))
    assert not is_other(("(other)",))


def test_text_that_no_server_takes_is_shown_without_it_and_stays_apart() -> None:
    torn, other = "\ud800", "\udfff"
    for key in (torn, other):
        (shown, *_) = shown_columns((key,))
        assert shown is not None
        assert shown.encode()
        assert redis_field((key,)).encode()
        assert cut(shown) == shown
    assert shown_columns((torn,)) != shown_columns((other,))


def test_an_identity_is_the_text_itself_or_the_hash() -> None:
    longest = "é" * (KEY_ID_TEXT_OCTETS_MAX // 2)
    for text in ("", "/a", "*", "(other)", "#", "=", "a ", longest):
        assert key_id((text,)) == b"=" + text.encode()
        assert text_of_id(key_id((text,))) == text
    others: list[Key] = [(longest + "e",), (None,), (), other_key(1), ("a", "b"), ("a", None)]
    for key in others:
        assert key_id(key) == b"#" + key_hash(key)
        assert text_of_id(key_id(key)) is None


def test_identities_differ_where_hashes_do_and_fit_their_column() -> None:
    keys = [*LOOKALIKES, *(("x" * length,) for length in range(250, 600)), ("\ud800",), ("\udfff",)]
    for one, two in itertools.combinations(keys, 2):
        assert (key_id(one) == key_id(two)) == (key_hash(one) == key_hash(two)), (one, two)
    assert max(len(key_id(key)) for key in keys) == KEY_ID_TEXT_OCTETS_MAX + 1
