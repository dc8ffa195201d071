"""How a key is told apart, shown and cut. Pure.

Keys are bytes: collations fold case and accents and pad blanks, so a row is found by a hash over
the full values, each with its length before it; the readable columns are for people.
"""

from hashlib import blake2b

K_COLUMN_CHARACTERS = 512
NULL_TEXT = "(null)"
OTHER_TEXT = "(other)"
NO_KEY_TEXT = "*"

Key = tuple[str | None, ...]

# A key that no line can have: values never begin with this length.
_OTHER_MARK = (-2).to_bytes(4, "big", signed=True)
_NULL_MARK = (-1).to_bytes(4, "big", signed=True)
OTHER: Key = ("\0other",)


def other_key(columns: int) -> Key:
    """The key that takes what is beyond a metric's `max_keys`."""
    return OTHER * max(columns, 1)


def is_other(key: Key) -> bool:
    """Whether this is the overflow key, not a line's own text `(other)`."""
    return bool(key) and key[0] == OTHER[0] and all(part == OTHER[0] for part in key)


def key_hash(key: Key) -> bytes:
    """16 bytes over the full, length-prefixed values; NULL has length -1."""
    digest = blake2b(digest_size=16)
    if is_other(key):
        digest.update(_OTHER_MARK)
        return digest.digest()
    for part in key:
        if part is None:
            digest.update(_NULL_MARK)
        else:
            value = part.encode("utf-8", "surrogatepass")
            digest.update(len(value).to_bytes(4, "big", signed=True) + value)
    return digest.digest()


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
