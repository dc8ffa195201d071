import pytest

from broker.coordinators.placing import shard_of


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("millrace-stream", 199443552),
        # Java's smallest int has no absolute value, so this group gets partition 0.
        ("polygenelubricants", -(2**31)),
        ("grüße", 98768023),
        ("😀", 1772899),
    ],
)
def test_a_group_lies_where_javas_hash_puts_it(group_id: str, java_hash: int) -> None:
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % 50
    assert shard_of(group_id, 50) == expected


def test_a_groups_place_is_worked_out_once() -> None:
    """One request needs the partition of a group several times, and names can be long. So the
    result is cached."""
    shard_of.cache_clear()
    assert {shard_of("x" * 32_000, 50) for _ in range(3)} == {2}
    assert shard_of.cache_info().misses == 1
