"""The topic of positions: one collector's records in it, and which process owns an instance id."""

from collector.identity.checkpoints import encode_key
from collector.send.claims import Claim, claim_key, decode_claim, encode_claim
from collector.send.positions import gather

ME, RIVAL = Claim("me", 1), Claim("rival", 1)


def claim(of: Claim, instance: str = "i") -> tuple[bytes, bytes]:
    return claim_key(instance), encode_claim(of, "host", 1)


def test_the_last_record_of_each_generation_counts_and_only_ones_own() -> None:
    records = [
        (encode_key("i", "a"), b"1"),
        (encode_key("other", "a"), b"x"),
        (encode_key("i", "b"), b"2"),
        (encode_key("i", "a"), b"3"),
        (encode_key("i", "b"), None),
        (None, b"y"),
        claim(ME),
    ]
    assert gather("i", records).values == {"a": b"3"}


def test_a_claim_is_no_position_and_reads_back() -> None:
    key, value = claim(ME)
    assert decode_claim(value) == ME
    assert decode_claim(b"?") is None
    assert gather("i", [(key, value)]).values == {}
    assert gather("i/", [(key, value)]).values == {"claim": value}, "no instance may hold a slash"


def test_a_rival_is_who_claimed_since_ones_last_claim() -> None:
    again = ME._replace(number=2)
    third = ME._replace(number=3)
    assert gather("i", [claim(RIVAL), claim(ME), claim(again)], ME).rival is None
    assert gather("i", [claim(ME), claim(RIVAL), claim(again)], ME).rival == "rival"
    assert gather("i", [claim(ME), claim(RIVAL), claim(again), claim(third)], again).rival is None
    assert gather("i", [claim(ME), claim(RIVAL, "other"), claim(again)], ME).rival is None
    assert gather("i", [claim(RIVAL), claim(ME)], None).rival is None
