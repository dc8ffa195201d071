import json

import pytest

from broker.quorum.vote_file import ElectionState, VoteFileError, decode, encode
from tests.unit.broker.quorum.kit import TWO

KAFKAS = (
    b'{"leaderId":-1,"leaderEpoch":7,"votedId":2,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAg",'
    b'"data_version":1}'
)
"""The file as Kafka writes it in this version of the format."""


def test_it_is_kafkas_file_to_the_byte() -> None:
    assert encode(ElectionState(7, TWO)) == KAFKAS
    assert decode(KAFKAS) == ElectionState(7, TWO)


def test_an_epoch_without_a_vote_names_no_candidate() -> None:
    election = ElectionState(3, None, 2)
    assert json.loads(encode(election))["votedDirectoryId"] == "AAAAAAAAAAAAAAAAAAAAAA"
    assert decode(encode(election)) == election


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        KAFKAS[:-1],
        KAFKAS.replace(b'"data_version":1', b'"data_version":0'),
        KAFKAS.replace(b"7", b'"7"'),
        KAFKAS.replace(b"7", b"true"),
        KAFKAS.replace(b"7", b"-7"),
        KAFKAS.replace(b'"votedId":2', b'"votedId":-2'),
        KAFKAS.replace(b"AAg", b"!"),
        KAFKAS.replace(b'"AAAAAAAAAAAAAAAAAAAAAg"', b"5"),
    ],
)
def test_a_damaged_file_is_never_taken_for_no_vote(content: bytes) -> None:
    with pytest.raises(VoteFileError):
        decode(content, "data/quorum-state")


def test_the_error_names_file_and_version() -> None:
    with pytest.raises(VoteFileError, match=r"data/quorum-state: found data_version 9, expected 1"):
        decode(b'{"data_version":9}', "data/quorum-state")
