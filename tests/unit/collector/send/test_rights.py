"""The messages about rights that a collector's user lacks."""

from collector.send.rights import creation_denied, denial_of, topic_denied, transactions_denied
from protocol.client.errors import TransactionFailed
from protocol.errors import ApiError, ErrorCode


def test_a_denial_is_found_behind_the_failure_of_its_transaction() -> None:
    error = TransactionFailed("it can only be aborted")
    assert denial_of(error) is None
    error.__cause__ = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert denial_of(error) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert denial_of(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)) is None


def test_each_message_names_the_user_and_the_command() -> None:
    assert topic_denied("collector.web-1", "p", "read,write") == (
        "user collector.web-1 may not read and write topic p: on a host of the mill, run"
        " `millrace acl allow collector.web-1 read,write --topic p`"
    )
    assert "topic t does not exist" in creation_denied("u", "t", None)
    assert "`millrace topic create t --partitions 16`" in creation_denied("u", "t", 16)
    assert "`millrace acl allow u write --transactional-id x`" in transactions_denied("u", "x")


def test_without_a_login_the_command_has_a_place_for_the_user() -> None:
    told = topic_denied(None, "t", "write")
    assert told.startswith("the user of this collector may not")
    assert "`millrace acl allow USER write --topic t`" in told
