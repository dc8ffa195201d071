"""The supported encodings of files by name, and the treatment of invalid bytes.

This module is pure. It imports little, because the command that checks the configuration loads it.
A codec of Python is supported under two conditions. Each line can be decoded without the lines
before it. And the byte of the newline (in UTF-16 the code unit) is never a part of another
character.
"""

import codecs
from enum import StrEnum

UTF_8 = "utf-8"
UTF_16 = "utf-16"  # the byte order mark of a file says which of the two byte orders it has
UTF_16_ORDERS = {"utf-16-le": "<u2", "utf-16-be": ">u2"}

_ONE_BYTE = """
    ascii cp1006 cp1125 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp437 cp720
    cp737 cp775 cp850 cp852 cp855 cp856 cp857 cp858 cp860 cp861 cp862 cp863 cp864 cp865 cp866 cp869
    cp874 hp-roman8 iso8859-1 iso8859-10 iso8859-11 iso8859-13 iso8859-14 iso8859-15 iso8859-16
    iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-9 koi8-r koi8-t
    koi8-u kz1048 mac-arabic mac-croatian mac-cyrillic mac-farsi mac-greek mac-iceland mac-latin2
    mac-roman mac-romanian mac-turkish palmos ptcp154 tis-620
"""
_MORE_BYTES = """
    big5 big5hkscs cp932 cp949 cp950 euc_jis_2004 euc_jisx0213 euc_jp euc_kr gb18030 gb2312 gbk
    johab shift_jis shift_jis_2004 shift_jisx0213
"""
LINEWISE = frozenset((*_ONE_BYTE.split(), *_MORE_BYTES.split()))
"""Python's names of the codecs in which the byte 10 is always a newline."""


class OnInvalid(StrEnum):
    r"""The treatment of bytes that are not valid in the file's encoding.

    `keep` leaves invalid UTF-8 unchanged; in other encodings it writes each such byte as `\xNN`.
    """

    KEEP = "keep"
    REPLACE = "replace"
    DEAD_LETTER = "dead_letter"


def canonical_name(name: str) -> str:
    """Return the canonical name of an encoding. Raises ValueError with what was expected."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        found = ""
    if found == "utf-8-sig":
        return UTF_8  # a byte order mark is always left out
    if found in LINEWISE or found in (UTF_8, UTF_16, *UTF_16_ORDERS):
        return found
    why = "whose lines cannot be read one by one, " if found else ""
    raise ValueError(
        f"found {name!r}, {why}expected utf-8, utf-16, utf-16-le, utf-16-be, latin-1, windows-1252,"
        " gbk, gb18030, shift_jis, euc_jp, euc_kr, big5, koi8-r or another name of Python's codecs"
        " for text whose newline is the byte 10"
    )


def is_raw(name: str, on_invalid: OnInvalid) -> bool:
    """Tell whether the bytes of the file are sent unchanged."""
    return name == UTF_8 and on_invalid is OnInvalid.KEEP


def growth_max(name: str, on_invalid: OnInvalid) -> int:
    """Return the most UTF-8 bytes of a record that one byte of the file can become."""
    return 1 if name == UTF_8 and on_invalid is not OnInvalid.REPLACE else 4
