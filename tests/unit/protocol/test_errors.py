"""Error codes with their flags, and the trees of exceptions."""

from protocol import errors
from protocol.errors import TEXT_CHARS_MAX, ApiError, ErrorCode, WireError


def test_flags() -> None:
    assert not ErrorCode.NONE.retriable
    assert ErrorCode.CORRUPT_MESSAGE.retriable
    assert not ErrorCode.CORRUPT_MESSAGE.refreshes_metadata
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.refreshes_metadata
    for code in ErrorCode:
        assert code.retriable or not code.refreshes_metadata
        assert code.description
        assert ErrorCode(int(code)) is code
    assert len({code.description for code in ErrorCode}) == len(ErrorCode)


def test_codes_run_without_a_gap() -> None:
    assert [int(code) for code in ErrorCode] == [*range(-1, 116), 120, 125, 126, 127]


def test_unknown_codes_become_unknown_server_error() -> None:
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_api_errors_carry_code_and_detail() -> None:
    error = ApiError(ErrorCode.INVALID_CONFIG, "retention.ms: found x")
    assert (error.code, error.detail) == (40, "retention.ms: found x")
    assert str(error) == "INVALID_CONFIG: retention.ms: found x"
    assert "not the controller" in str(ApiError(ErrorCode.NOT_CONTROLLER))


def test_an_answer_says_what_is_wrong_and_not_the_code_again() -> None:
    assert ApiError(ErrorCode.INVALID_CONFIG, "no value").message == "no value"
    unknown = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert unknown.message == "This server does not host this topic-partition."
    assert len(ApiError(ErrorCode.INVALID_CONFIG, "x" * 5_000).message) == TEXT_CHARS_MAX


def test_what_peers_do_wrong_is_one_tree_and_our_own_bugs_are_not_in_it() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    wire = {kind.__name__ for kind in kinds if issubclass(kind, WireError)}
    assert {"BufferUnderflow", "FrameTooLarge", "BadVarint", "CorruptBatch"} <= wire
    assert not {"ApiError", "EncodeError"} & wire
