"""Converts keys to identities, hashes, displayed columns and fields of Redis.

This module is pure. MySQL's collations ignore case, accents and trailing blanks, so a key is not
found by its text but by a hash. The hash is computed over the displayed columns, each preceded by
its length. Spark and MySQL have the same hash function, so a query can compute the hash of a row or
of a line. In MySQL, a key that is one short text needs no hash, because its octets are its identity
(decision 0087).
"""

from functools import lru_cache
from hashlib import blake2b, sha256

K_COLUMN_CHARACTERS = 512
K_HASH_BYTES = 16
# With its mark an identity has at most 255 octets, because a longer one needs a length field of two
# octets in each row.
KEY_ID_TEXT_OCTETS_MAX = 254
# The first octet of an identity: `=` if the text of the key follows, `#` if a hash follows.
TEXT_MARK, HASH_MARK = b"=", b"#"
# The size of the cache of hashes. It saves time, because live batches contain the same keys again
# and again.
HASHES_REMEMBERED_MAX = 8_192
NULL_TEXT = "(null)"
OTHER_TEXT = "(other)"
NO_KEY_TEXT = "*"

Key = tuple[str | None, ...]

# The texts that are hashed for the overflow key and for NULL. No real key has the first text,
# because the hashed text of a real key begins with a digit or `-`.
OTHER_HASHED = "other"
NULL_HASHED = "-"
# The overflow key, which no line can have.
OTHER: Key = ("\0other",)


def other_key(columns: int) -> Key:
    """Return the key that collects keys beyond a metric's `max_keys`."""
    return OTHER * max(columns, 1)


def is_other(key: Key) -> bool:
    """Tell whether this is the overflow key. A line's own text `(other)` is another key."""
    return bool(key) and key[0] == OTHER[0] and all(part == OTHER[0] for part in key)


def key_hash(key: Key) -> bytes:
    """Return the first 16 bytes of SHA-256 over `<octets>:<value>` per part, `-` for NULL.

    `<octets>` is the length of the value in UTF-8, after `cut`. For a metric without a key the
    hashed text is empty; for the overflow key it is `other`.
    """
    # Long keys are not cached, because a line can have a megabyte.
    if any(part is not None and len(part) > K_COLUMN_CHARACTERS for part in key):
        return _hash(key)
    return _remembered_hash(key)


def _hash(key: Key) -> bytes:
    text = OTHER_HASHED if is_other(key) else "".join(_hashed(part) for part in key)
    return sha256(text.encode()).digest()[:K_HASH_BYTES]


_remembered_hash = lru_cache(HASHES_REMEMBERED_MAX)(_hash)


def _hashed(part: str | None) -> str:
    if part is None:
        return NULL_HASHED
    value = cut(part)
    return f"{len(value.encode())}:{value}"


def key_id(key: Key) -> bytes:
    """Return the identity of a key within its window, as `window_cells` stores it.

    A key that is one text of at most KEY_ID_TEXT_OCTETS_MAX octets gives `=` and these octets. Any
    other key, NULL and the overflow key give `#` and the hash.
    """
    if len(key) == 1 and key[0] is not None and not is_other(key):
        text = cut(key[0]).encode()
        if len(text) <= KEY_ID_TEXT_OCTETS_MAX:
            return TEXT_MARK + text
    return HASH_MARK + key_hash(key)


def text_of_id(k_id: bytes) -> str | None:
    """Return the text that an identity contains; None if the identity is a hash."""
    return k_id[1:].decode() if k_id.startswith(TEXT_MARK) else None


def file_hash(path: str) -> bytes:
    """Return a 16-byte hash of a file's path, which identifies the file in table `unparsed`."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def shown_columns(key: Key) -> tuple[str | None, str | None, str | None]:
    """Return the columns k1 to k3 of a key, as displayed; long values are shortened (`cut`)."""
    if not key:
        return NO_KEY_TEXT, None, None
    if is_other(key):
        return OTHER_TEXT, None, None
    shown = [None if part is None else cut(part) for part in key]
    padded = [*shown, None, None][:3]
    return padded[0], padded[1], padded[2]


def cut(value: str) -> str:
    """Return a value of at most 512 characters that servers accept as UTF-8.

    A longer value, or one with a lone surrogate, is shortened and ends in `~` and 16 digits of its
    hash, so that different values stay different.
    """
    if value.isascii() and len(value) <= K_COLUMN_CHARACTERS:
        return value
    shown = value.encode("utf-8", "replace").decode()
    if shown == value and len(value) <= K_COLUMN_CHARACTERS:
        return value
    digits = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return shown[: K_COLUMN_CHARACTERS - 17] + "~" + digits


def redis_field(key: Key) -> str:
    """Return the field of a key in Redis: its parts joined by `|`.

    A `\\` is put before `|` and `\\` inside a part, before a leading `@`, and before a text that
    would look like the overflow key or NULL.
    """
    if not key:
        return NO_KEY_TEXT
    if is_other(key):
        return OTHER_TEXT
    return "|".join(_escape(part) for part in key)


def _escape(part: str | None) -> str:
    if part is None:
        return NULL_TEXT
    text = cut(part).replace("\\", "\\\\").replace("|", "\\|")
    reserved = text.startswith("@") or text in (NULL_TEXT, OTHER_TEXT)
    return "\\" + text if reserved else text
