"""The join file: a round trip, each kind of damage with its message, and the secret in none."""

from __future__ import annotations

import base64
import json
import random
import zlib

import pytest

from appliance.enrol.envelope import JOIN_BYTES_MAX, JoinFileFault
from appliance.enrol.host_config import config_text
from appliance.enrol.join_file import CA_CHARS_MAX, check_time, encode, parse
from tests.unit.appliance.enrol.kit import CANARY, ENDS_MS, join_file


def test_what_is_written_is_read() -> None:
    for join in (join_file(), join_file(ca=None, addresses=("[::1]:9192",))):
        assert parse(encode(join)) == join


def test_a_host_reads_a_file_with_the_most_cas() -> None:
    line = "a" * 64 + "\n"
    assert len(encode(join_file(ca=line * (CA_CHARS_MAX // len(line))))) < JOIN_BYTES_MAX


def test_a_file_can_be_pasted() -> None:
    """A terminal adds carriage returns and blanks, and a mail adds blank lines."""
    text = encode(join_file())
    assert parse("\n" + text.replace("\n", "  \r\n") + "\n\n") == join_file()
    assert max(map(len, text.splitlines())) <= 100
    assert text.startswith("millrace-join-1 collector\nThis file lets one host in, once.")


def written(**changes: object) -> str:
    """Return a join file with other fields and a correct CRC. None removes a field."""
    lines = encode(join_file()).splitlines()
    fields = {**json.loads(base64.b64decode("".join(lines[2:]))[4:]), **changes}
    data = json.dumps({key: one for key, one in fields.items() if one is not None}).encode()
    body = base64.b64encode(zlib.crc32(data).to_bytes(4, "big") + data).decode()
    return "\n".join([*lines[:2], body])


def test_later_fields_are_ignored() -> None:
    assert parse(written(later=[1])) == join_file()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "this is no join file"),
        ("-----BEGIN CERTIFICATE-----\n", "this is no join file"),
        ("millrace-join-x collector\n", "this is no join file"),
        (encode(join_file()).replace("join-1", "join-2", 1), "version 2, expected 1"),
        (encode(join_file()).replace("1 collector", "1 broker", 1), "for broker, expected"),
        (encode(join_file()).rsplit("\n", 3)[0], "cut or damaged"),
        ("\n".join(encode(join_file()).splitlines()[:2]), "cut or damaged"),
        (encode(join_file()) + "more", "cut or damaged"),
        (written(user=None), "another version"),
        (written(addresses=[]), "another version"),
        (written(secret=7), "another version"),
        (written(mechanism="PLAIN"), "another version"),
        (written(user="${file:/etc/shadow}"), "another version"),
        (written(group='web"\ntopics: "x'), "another version"),
        (written(addresses=["mill:9192\x1b[2J"]), "another version"),
        (written(ends_ms=float("inf")), "another version"),
        (written(commit_interval_ms=-1), "another version"),
    ],
)
def test_pitfall_35_each_fault_has_its_message(text: str, reason: str) -> None:
    with pytest.raises(JoinFileFault, match=reason):
        parse(text)


def test_every_changed_character_is_noticed() -> None:
    """The message never has a piece of the file, and no error hides behind it that has one."""
    text = encode(join_file())
    start = len("\n".join(text.splitlines()[:2])) + 1
    chance = random.Random(1)
    for place in range(start, len(text) - 1):
        if text[place] == "\n":
            continue
        other = chance.choice([one for one in "ABCxyz019+/!" if one != text[place]])
        with pytest.raises(JoinFileFault) as caught:
            parse(text[:place] + other + text[place + 1 :])
        assert str(caught.value) == "the join file is cut or damaged: copy the whole file again"
        hidden = caught.value
        assert hidden.__suppress_context__ or hidden.__context__ is None


def test_an_expired_file_says_so_with_the_clock_of_the_host() -> None:
    check_time(join_file(), ENDS_MS - 1, "now")
    with pytest.raises(JoinFileFault, match=r"web-07 has expired.*NOW.*web-07 --again"):
        check_time(join_file(), ENDS_MS, "NOW")


def test_no_secret_is_printed() -> None:
    assert CANARY not in repr(join_file())
    assert CANARY not in encode(join_file())
    assert CANARY not in config_text(join_file())
