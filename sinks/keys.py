"""How a key is identified, displayed and shortened. Pure.

Keys are bytes, because collations ignore case, accents and trailing blanks. So a key is found by a
hash. It is computed over the columns as displayed, each preceded by its length, with a function
that Spark and MySQL have too: a query can compute the hash of a database row or of a line. In
MySQL, a key that is one short text needs no hash: its octets are its identity (decision 0087).
"""

from functools import lru_cache
from hashlib import blake2b, sha256

K_COLUMN_CHARACTERS = 512
K_HASH_BYTES = 16
# With its mark an identity has at most 255 octets: above that its length field takes two octets.
KEY_ID_TEXT_OCTETS_MAX = 254
# The first octet of an identity that is the text itself, and of an identity that is a hash.
TEXT_MARK, HASH_MARK = b"=", b"#"
# Live batches contain the same keys repeatedly.
HASHES_REMEMBERED_MAX = 8_192
NULL_TEXT = "(null)"
OTHER_TEXT = "(other)"
NO_KEY_TEXT = "*"

Key = tuple[str | None, ...]

# What is hashed instead of a key's text. The text of a real key begins with a digit or `-`.
OTHER_HASHED = "other"
NULL_HASHED = "-"
# A key that no line can have.
OTHER: Key = ("\0other",)


def other_key(columns: int) -> Key:
    """Return the key that collects keys beyond a metric's `max_keys`."""
    return OTHER * max(columns, 1)


def is_other(key: Key) -> bool:
    """Tell whether this is the overflow key, not a line's own text `(other)`."""
    return bool(key) and key[0] == OTHER[0] and all(part == OTHER[0] for part in key)


def key_hash(key: Key) -> bytes:
    """Return the first 16 bytes of SHA-256 over `<octets>:<value>` per part, `-` for NULL.

    Octets count the value in UTF-8 as returned by `cut`. Without a key the text is empty; the
    text of the overflow key is `other`.
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

    `=` and the octets for a key that is one text of at most KEY_ID_TEXT_OCTETS_MAX. `#` and the
    hash for any other key, for NULL and for the overflow key.
    """
    if len(key) == 1 and key[0] is not None and not is_other(key):
        text = cut(key[0]).encode()
        if len(text) <= KEY_ID_TEXT_OCTETS_MAX:
            return TEXT_MARK + text
    return HASH_MARK + key_hash(key)


def text_of_id(k_id: bytes) -> str | None:
    """Return the text of an identity that contains it; None for a hash."""
    return k_id[1:].decode() if k_id.startswith(TEXT_MARK) else None


def file_hash(path: str) -> bytes:
    """Return 16 bytes over a file's path for rows of `unparsed`."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def shown_columns(key: Key) -> tuple[str | None, str | None, str | None]:
    """Return k1 to k3: displayed values, with long ones shortened so that they stay distinct."""
    if not key:
        return NO_KEY_TEXT, None, None
    if is_other(key):
        return OTHER_TEXT, None, None
    shown = [None if part is None else cut(part) for part in key]
    padded = [*shown, None, None][:3]
    return padded[0], padded[1], padded[2]


def cut(value: str) -> str:
    """Return a value of at most 512 characters that servers accept as UTF-8.

    A longer value, or one with a lone surrogate, ends in `~` and 16 digits of its hash.
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

    A `\\` escapes `|` and `\\` inside a part, a leading `@`, and a text that would look like the
    overflow key or NULL.
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
