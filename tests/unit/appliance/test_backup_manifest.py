"""The manifest of a backup: its fields, and the refusal of a damaged one."""

import json
from dataclasses import replace

import pytest

from appliance.backup.manifest import (
    FORMAT,
    BadBackup,
    Manifest,
    StoredFile,
    StoredFolder,
    decode,
    encode,
)

MANIFEST = Manifest(
    version="0.1.0",
    made_at_ms=1_785_000_000_000,
    paused_ms=41,
    cluster_id="4L6g3nShT-eMCtK--X86sw",
    brokers=3,
    rows=12,
    folders=(StoredFolder("secrets/mysql", 0o700),),
    files=(
        StoredFile("data/secrets/mysql/root", 32, "ab" * 32, 0o600),
        StoredFile("mysql.sql", 5, "cd" * 32, 0o600),
    ),
)


def test_what_is_written_is_read() -> None:
    assert decode(encode(MANIFEST)) == MANIFEST
    assert MANIFEST.size_bytes == 37


def test_an_earlier_version_can_restore_a_whole_mill_and_refuses_a_main_host() -> None:
    whole = json.loads(encode(MANIFEST))
    assert whole["format"] == 1
    assert "main_broker" not in whole
    of_host = replace(MANIFEST, main_broker=1)
    assert json.loads(encode(of_host))["format"] == 2
    assert decode(encode(of_host)) == of_host


def test_no_flipped_bit_is_believed() -> None:
    whole = encode(MANIFEST)
    refused = 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x04
        try:
            # The flipped bit may have hit white space between tokens, which changes nothing.
            assert decode(bytes(damaged)) == MANIFEST
        except BadBackup as error:
            assert "manifest.json" in str(error)
            refused += 1
    assert refused > len(whole) // 2


@pytest.mark.parametrize("length", [0, 1, 100, -2])
def test_a_cut_one_is_refused(length: int) -> None:
    with pytest.raises(BadBackup, match=r"manifest\.json is damaged"):
        decode(encode(MANIFEST)[:length])


def test_one_of_a_later_format_says_which_version_can_read_it() -> None:
    content = json.loads(encode(replace(MANIFEST, version="0.9.0")))
    content["format"] = FORMAT + 1
    content["what_we_do_not_know"] = True
    with pytest.raises(
        BadBackup, match=r"of format 3, made by millrace 0\.9\.0; expected format 2"
    ):
        decode(json.dumps(content).encode())


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "data/../../outside"])
def test_a_path_that_leads_out_of_the_backup_is_refused(path: str) -> None:
    outside = replace(MANIFEST, files=(StoredFile(path, 1, "ab" * 32, 0o600),))
    with pytest.raises(BadBackup, match="is not inside the backup"):
        decode(encode(outside))
