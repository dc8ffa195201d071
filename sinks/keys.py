"""How a key is told apart, shown and cut. Pure.

Keys are bytes: collations fold case and accents and pad blanks, so a key is found by a hash. It is
made of the columns as they are shown, each with its length before it, by a function that Spark and
MySQL have too: of a row in the database, and of a line in a query, the same hash can be made.
MySQL's rows need no hash of a key that is one short text: its octets are its identity (decision
0087).
"""

from functools import lru_cache
from hashlib import blake2b, sha256

K_COLUMN_CHARACTERS = 512
K_HASH_BYTES = 16
# With its mark, an identity of at most 255 octets: beyond that its length would take two.
KEY_ID_TEXT_OCTETS_MAX = 254
# How an identity begins: of a text that stands in it as it is, and of a hash.
TEXT_MARK, HASH_MARK = b"=", b"#"
# Live batches bring the same keys again and again.
HASHES_REMEMBERED_MAX = 8_192
NULL_TEXT = "(null)"
OTHER_TEXT = "(other)"
NO_KEY_TEXT = "*"

Key = tuple[str | None, ...]

# What is hashed in place of a key's text; the text of a key begins with a digit or with `-`.
OTHER_HASHED = "other"
NULL_HASHED = "-"
# A key that no line can have.
OTHER: Key = ("\0other",)


def other_key(columns: int) -> Key:
    """The key that takes what is beyond a metric's `max_keys`."""
    return OTHER * max(columns, 1)


def is_other(key: Key) -> bool:
    """Whether this is the overflow key, not a line's own text `(other)`."""
    return bool(key) and key[0] == OTHER[0] and all(part == OTHER[0] for part in key)


def key_hash(key: Key) -> bytes:
    """The first 16 bytes of SHA-256 over `<octets>:<value>` for each part, `-` for NULL.

    Octets are those of the value in UTF-8, as `cut` leaves it. Without a key the text is empty;
    the overflow key's is `other`.
    """
    # Long keys are not remembered: a line may be a megabyte.
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
    """What tells a key apart from all others of its window in MySQL, as `window_cells` has it.

    `=` and the octets of a key that is one text of at most KEY_ID_TEXT_OCTETS_MAX; `#` and the
    hash of any other, of NULL and of the overflow key.
    """
    if len(key) == 1 and key[0] is not None and not is_other(key):
        text = cut(key[0]).encode()
        if len(text) <= KEY_ID_TEXT_OCTETS_MAX:
            return TEXT_MARK + text
    return HASH_MARK + key_hash(key)


def text_of_id(k_id: bytes) -> str | None:
    """The text that stands in an identity as it is; None for one that is a hash."""
    return k_id[1:].decode() if k_id.startswith(TEXT_MARK) else None


def file_hash(path: str) -> bytes:
    """16 bytes over a file's path, as `unparsed` rows carry it."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def shown_columns(key: Key) -> tuple[str | None, str | None, str | None]:
    """k1 to k3: the values as people read them, long ones cut so that they stay distinct."""
    if not key:
        return NO_KEY_TEXT, None, None
    if is_other(key):
        return OTHER_TEXT, None, None
    shown = [None if part is None else cut(part) for part in key]
    padded = [*shown, None, None][:3]
    return padded[0], padded[1], padded[2]


def cut(value: str) -> str:
    """A value of at most 512 characters that servers take as UTF-8.

    A longer one, and one with a lone surrogate, ends in `~` and 16 digits of its hash.
    """
    if value.isascii() and len(value) <= K_COLUMN_CHARACTERS:
        return value
    shown = value.encode("utf-8", "replace").decode()
    if shown == value and len(value) <= K_COLUMN_CHARACTERS:
        return value
    digits = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return shown[: K_COLUMN_CHARACTERS - 17] + "~" + digits


def redis_field(key: Key) -> str:
    """The field of a key in Redis: its parts joined by `|`.

    `|` and `\\` inside a part, and a leading `@`, are escaped by `\\`; so is a text that would
    read like the overflow key or like NULL.
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
