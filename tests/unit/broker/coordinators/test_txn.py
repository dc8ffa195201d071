"""The transaction coordinator's rules: the refusals with their codes, and the state changes."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.coordinators.txn import TxnShard
from broker.coordinators.txn_state import (
    IllegalTxnMove,
    Transaction,
    TxnState,
)
from protocol.errors import EncodeError, ErrorCode
from protocol.types import TopicPartition
from tests.unit.broker.txn_kit import (
    EXPIRATION_MS,
    ID,
    ID_COUNT_MAX,
    TIMEOUT_MS,
    A,
    B,
    C,
    Ledger,
    identity,
    refused,
)

COMPLETE = (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
PREPARE = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
ALIVE = tuple(state for state in TxnState if state is not TxnState.DEAD)


# Partitions join.


def test_the_first_partitions_open_the_transaction_and_later_ones_join_it() -> None:
    ledger = Ledger()
    one = ledger.add(ledger.begin(), A)
    assert (one.state, one.start_ms, one.partitions) == (TxnState.ONGOING, 1_000, frozenset({A}))
    ledger.now_ms = 2_000
    one = ledger.add(one, B, C)
    assert (one.start_ms, one.last_update_ms, one.partitions) == (
        1_000,
        2_000,
        frozenset({A, B, C}),
    )


def test_partitions_that_are_in_it_already_write_nothing() -> None:
    ledger = Ledger()
    one = ledger.add(ledger.begin(), A, B)
    assert not ledger.shard.add_partitions(*identity(one), [B], 2_000).records


@pytest.mark.parametrize("state", COMPLETE)
def test_the_next_transaction_begins_with_nothing_of_the_last(state: TxnState) -> None:
    ledger = Ledger()
    ledger.in_state(state)
    ledger.now_ms = 9_000
    one = ledger.add(ledger[ID], B)
    assert (one.partitions, one.start_ms) == (frozenset({B}), 9_000)


@pytest.mark.parametrize("state", PREPARE)
def test_nothing_joins_while_markers_are_written(state: TxnState) -> None:
    ledger = Ledger()
    one = ledger.in_state(state)
    assert refused(lambda: ledger.add(one, B)) is ErrorCode.CONCURRENT_TRANSACTIONS


def operations(ledger: Ledger) -> dict[str, Callable[[Transaction], object]]:
    """Return each operation that checks its producer, by a short name."""
    shard = ledger.shard
    return {
        "add": lambda one: shard.add_partitions(*identity(one), [A], 1),
        "commit": lambda one: shard.end(*identity(one), 1, is_commit=True),
        "abort": lambda one: shard.end(*identity(one), 1, is_commit=False),
        "write": lambda one: shard.refuse_outsider(*identity(one), A),
    }


@pytest.mark.parametrize("operation", ["add", "commit", "abort", "write"])
@pytest.mark.parametrize("state", ALIVE)
def test_another_producer_is_refused(operation: str, state: TxnState) -> None:
    ledger = Ledger()
    one = ledger.in_state(state)
    ask = operations(ledger)[operation]
    epoch = one.producer_epoch
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(lambda: ask(replace(one, transactional_id="other"))) is unknown
    assert refused(lambda: ask(replace(one, producer_id=1))) is unknown
    older, newer = replace(one, producer_epoch=epoch - 1), replace(one, producer_epoch=epoch + 1)
    assert refused(lambda: ask(older)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: ask(newer)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: ask(replace(one, transactional_id=""))) is ErrorCode.INVALID_REQUEST


# One move at a time.


@pytest.mark.parametrize("operation", ["add", "commit", "abort"])
def test_while_a_move_is_being_written_nothing_else_may_move_it(operation: str) -> None:
    ledger = Ledger()
    one = ledger.add(ledger.begin(), A)
    ledger.shard.add_partitions(*identity(one), [B], 1)
    ask = operations(ledger)[operation]
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(lambda: ask(one)) is concurrent
    assert refused(lambda: ledger.begin()) is concurrent
    ledger.now_ms += TIMEOUT_MS * 2
    assert not ledger.shard.abort_overdue(ledger.now_ms, ledger.now_ms)


def test_a_move_that_could_not_be_written_has_not_happened() -> None:
    ledger = Ledger()
    one = ledger.add(ledger.begin(), A)
    shard = ledger.shard
    for _ in range(2):
        outcome = shard.end(*identity(one), 1, is_commit=True)
        shard.withdraw(moved.transactional_id for moved in outcome.reply)
        outcome = shard.init_producer_id(ID, TIMEOUT_MS, None, -1, 1)
        shard.withdraw(moved.transactional_id for moved in outcome.reply)
    assert ledger[ID] == one
    assert ledger.end(one).state is TxnState.PREPARE_COMMIT


def test_a_move_without_a_record_has_not_happened() -> None:
    """The encoding fails, so the id must not stay pending. No later request could end its
    transaction."""
    ledger = Ledger()
    for _ in range(2):
        with pytest.raises(EncodeError):
            ledger.begin(transactional_id="x" * 40_000)


def test_a_first_producer_whose_record_could_not_be_written_leaves_nothing() -> None:
    ledger = Ledger()
    ledger.shard.init_producer_id(ID, TIMEOUT_MS, None, 5, 1)
    assert refused(ledger.begin) is ErrorCode.CONCURRENT_TRANSACTIONS
    ledger.shard.withdraw([ID])
    assert not ledger.shard.transactions
    assert ledger.begin().producer_epoch == 0


def test_an_id_counts_once_for_the_limit_whatever_becomes_of_it() -> None:
    ledger = Ledger()
    names = [f"id-{number}" for number in range(ID_COUNT_MAX - 2)]
    known = [ledger.begin(transactional_id=name) for name in names]
    for one in known:
        ledger.shard.add_partitions(*identity(one), [A], 1)
    ledger.shard.init_producer_id("under way", TIMEOUT_MS, None, 5, 1)
    ledger.begin(transactional_id="last")
    code = refused(lambda: ledger.begin(transactional_id="one more"))
    assert code is ErrorCode.POLICY_VIOLATION


# Its end.


@pytest.mark.parametrize(
    ("state", "is_commit", "code"),
    [
        (TxnState.EMPTY, True, ErrorCode.INVALID_TXN_STATE),
        (TxnState.EMPTY, False, ErrorCode.INVALID_TXN_STATE),
        (TxnState.PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (TxnState.PREPARE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (TxnState.PREPARE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (TxnState.PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (TxnState.COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (TxnState.COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_an_end_that_the_state_does_not_allow(
    state: TxnState, is_commit: bool, code: ErrorCode
) -> None:
    ledger = Ledger()
    one = ledger.in_state(state)
    assert refused(lambda: ledger.end(one, is_commit=is_commit)) is code
    assert ledger[ID] == one


@pytest.mark.parametrize("state", COMPLETE)
def test_the_repeat_of_an_end_is_a_success_that_writes_nothing(state: TxnState) -> None:
    ledger = Ledger()
    one = ledger.in_state(state)
    is_commit = state is TxnState.COMPLETE_COMMIT
    assert not ledger.shard.end(*identity(one), 1, is_commit=is_commit).records


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_ends_in_two_steps(is_commit: bool) -> None:
    ledger = Ledger()
    one = ledger.end(ledger.add(ledger.begin(), A, B), is_commit=is_commit)
    assert one.state is (TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT)
    assert one.partitions == {A, B}
    assert ledger.shard.preparing() == [one]
    one = ledger.complete()
    assert one.state is (TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT)
    assert one.partitions == frozenset()
    assert not ledger.shard.preparing()


@pytest.mark.parametrize("is_commit", [True, False])
def test_pitfall_26_a_decision_survives_a_crash(is_commit: bool) -> None:
    ledger = Ledger()
    one = ledger.end(ledger.add(ledger.begin(), A, B), is_commit=is_commit)
    ledger.reload()
    assert ledger.shard.preparing() == [one]
    other = not is_commit
    assert refused(lambda: ledger.end(one, is_commit=other)) is ErrorCode.INVALID_TXN_STATE


def test_a_crash_before_the_decision_is_durable_leaves_the_transaction_open() -> None:
    ledger = Ledger()
    one = ledger.add(ledger.begin(), A)
    ledger.shard.end(*identity(one), 1, is_commit=True)
    ledger.reload()
    assert ledger[ID] == one
    assert ledger.end(one, is_commit=False).state is TxnState.PREPARE_ABORT


def test_completing_twice_is_a_fault_of_ours() -> None:
    ledger = Ledger()
    ledger.in_state(TxnState.COMPLETE_COMMIT)
    with pytest.raises(IllegalTxnMove):
        ledger.complete()


# Who may write.


def test_a_batch_is_taken_only_into_a_partition_of_the_open_transaction() -> None:
    ledger = Ledger()
    one = ledger.in_state(TxnState.ONGOING)
    ledger.shard.refuse_outsider(*identity(one), A)
    outside = refused(lambda: ledger.shard.refuse_outsider(*identity(one), B))
    assert outside is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("state", [TxnState.EMPTY, *COMPLETE])
def test_a_batch_that_comes_after_the_end_is_refused(state: TxnState) -> None:
    ledger = Ledger()
    one = ledger.in_state(state)
    code = refused(lambda: ledger.shard.refuse_outsider(*identity(one), A))
    assert code is ErrorCode.INVALID_TXN_STATE


def test_nothing_is_written_behind_a_decision_that_is_under_way() -> None:
    ledger = Ledger()
    one = ledger.in_state(TxnState.ONGOING)
    outcome = ledger.shard.end(*identity(one), 1, is_commit=True)
    for _ in range(2):
        code = refused(lambda: ledger.shard.refuse_outsider(*identity(one), A))
        assert code is ErrorCode.CONCURRENT_TRANSACTIONS
        ledger.write(outcome)


def test_writing_goes_on_while_another_partition_joins() -> None:
    ledger = Ledger()
    one = ledger.in_state(TxnState.ONGOING)
    outcome = ledger.shard.add_partitions(*identity(one), [B], 1)
    ledger.shard.refuse_outsider(*identity(one), A)
    not_yet = refused(lambda: ledger.shard.refuse_outsider(*identity(one), B))
    assert not_yet is ErrorCode.INVALID_TXN_STATE
    ledger.write(outcome)
    ledger.shard.refuse_outsider(*identity(one), B)


# By the clock.


def test_an_overdue_transaction_is_aborted_under_a_raised_epoch() -> None:
    ledger = Ledger()
    zombie = ledger.in_state(TxnState.ONGOING)
    end_ms = zombie.start_ms + TIMEOUT_MS
    assert not ledger.shard.abort_overdue(end_ms, end_ms)
    (outcome,) = ledger.shard.abort_overdue(end_ms + 1, end_ms + 1)
    ledger.write(outcome)
    assert ledger[ID].state is TxnState.PREPARE_ABORT
    assert ledger[ID].producer_epoch == zombie.producer_epoch + 1
    assert refused(lambda: ledger.end(zombie)) is ErrorCode.PRODUCER_FENCED
    ledger.complete()
    assert refused(lambda: ledger.add(zombie, A)) is ErrorCode.PRODUCER_FENCED
    assert (
        refused(lambda: ledger.begin((zombie.producer_id, zombie.producer_epoch)))
        is ErrorCode.PRODUCER_FENCED
    )


LOADED_MS = 7_000
"""The monotonic time at which a coordinator has loaded the shard."""


def moved(ledger: Ledger) -> TxnShard:
    """Return the shard after it has moved to another node."""
    ledger.reload()
    ledger.shard.begin(LOADED_MS)
    return ledger.shard


def test_a_clock_that_is_ahead_aborts_no_transaction_before_its_time() -> None:
    """The coordinator moved to a node whose clock is an hour ahead."""
    ledger = Ledger()
    young = ledger.in_state(TxnState.ONGOING)
    shard = moved(ledger)
    ahead_ms = young.start_ms + 3_600_000
    assert not shard.abort_overdue(ahead_ms, LOADED_MS + TIMEOUT_MS)
    # The next transaction starts by the clock of this node.
    ledger.end(young)
    ledger.complete()
    ledger.now_ms = ahead_ms
    ledger.add(young, A)
    end_ms = LOADED_MS + 2 * TIMEOUT_MS
    assert not shard.abort_overdue(ahead_ms + TIMEOUT_MS, end_ms)
    assert shard.abort_overdue(ahead_ms + TIMEOUT_MS + 1, end_ms + 1)


def test_an_overdue_transaction_that_was_found_open_is_aborted_after_its_time() -> None:
    ledger = Ledger()
    zombie = ledger.in_state(TxnState.ONGOING)
    shard = moved(ledger)
    end_ms = zombie.start_ms + TIMEOUT_MS + 1
    assert not shard.abort_overdue(end_ms, LOADED_MS + TIMEOUT_MS)
    (outcome,) = shard.abort_overdue(end_ms, LOADED_MS + TIMEOUT_MS + 1)
    ledger.write(outcome)
    assert ledger[ID].state is TxnState.PREPARE_ABORT


def test_a_clock_that_is_behind_keeps_no_transaction_open_for_ever() -> None:
    ledger = Ledger()
    zombie = ledger.in_state(TxnState.ONGOING)
    shard = moved(ledger)
    behind_ms = zombie.start_ms - 3_600_000
    assert not shard.abort_overdue(behind_ms, LOADED_MS + TIMEOUT_MS)
    assert shard.abort_overdue(behind_ms, LOADED_MS + TIMEOUT_MS + 1)


HOUR_MS = 3_600_000
LOOK_MS = 10_000
"""The interval of a coordinator's search for overdue transactions."""


def looked_after(ledger: Ledger, jump_ms: int, jump_at_ms: int) -> int:
    """Return the time in ms after which an abandoned transaction is aborted if the machine's clock
    jumps by `jump_ms`."""
    opened_ms = ledger.in_state(TxnState.ONGOING).start_ms
    shard, left_ms = ledger.shard, LOOK_MS // 2
    while left_ms < HOUR_MS:
        jumped_ms = jump_ms if left_ms >= jump_at_ms else 0
        if shard.abort_overdue(opened_ms + left_ms + jumped_ms, opened_ms + left_ms):
            break
        left_ms += LOOK_MS
    return left_ms


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("jump_at_ms", [1, LOOK_MS, 3 * LOOK_MS])
def test_a_clock_that_is_set_neither_aborts_a_transaction_nor_keeps_it_open(
    jump_ms: int, jump_at_ms: int
) -> None:
    """The transaction is aborted at its timeout, at most one check too early or two checks too
    late."""
    aborted_ms = looked_after(Ledger(), jump_ms, jump_at_ms)
    assert -LOOK_MS <= aborted_ms - TIMEOUT_MS <= 2 * LOOK_MS


def test_the_next_transaction_of_an_id_has_all_of_its_time() -> None:
    ledger = Ledger()
    one = ledger.in_state(TxnState.ONGOING)
    half_ms = one.start_ms + TIMEOUT_MS // 2
    assert not ledger.shard.abort_overdue(half_ms, half_ms)
    ledger.end(one)
    ledger.complete()
    ledger.now_ms = half_ms + 1
    ledger.add(one, A)
    end_ms = half_ms + 1 + TIMEOUT_MS
    assert not ledger.shard.abort_overdue(end_ms, end_ms)
    assert ledger.shard.abort_overdue(end_ms + 1, end_ms + 1)


@pytest.mark.parametrize("state", [state for state in ALIVE if state is not TxnState.ONGOING])
def test_only_an_open_transaction_can_be_overdue(state: TxnState) -> None:
    ledger = Ledger()
    ledger.in_state(state)
    assert not ledger.shard.abort_overdue(10**12, 10**12)


@pytest.mark.parametrize("state", [TxnState.EMPTY, *COMPLETE])
def test_an_id_at_rest_expires_with_a_tombstone(state: TxnState) -> None:
    ledger = Ledger()
    ledger.in_state(state)
    end_ms = ledger.now_ms + EXPIRATION_MS
    assert not ledger.shard.expired(end_ms - 1)
    outcome = ledger.shard.expire(ledger.shard.expired(end_ms), end_ms)
    assert [record.value for record in outcome.records] == [None]
    assert refused(ledger.begin) is ErrorCode.CONCURRENT_TRANSACTIONS
    ledger.write(outcome)
    assert not ledger.shard.transactions
    ledger.reload()
    assert not ledger.shard.transactions
    assert ledger.begin().producer_id == 101


@pytest.mark.parametrize("state", [TxnState.ONGOING, *PREPARE])
def test_an_id_with_something_open_never_expires(state: TxnState) -> None:
    ledger = Ledger()
    ledger.in_state(state)
    assert not ledger.shard.expired(10**12)


def test_an_id_that_is_used_again_does_not_expire() -> None:
    """One turn of the loop finds the expired ids, and later turns remove them. An id that is used
    in between must stay."""
    ledger = Ledger()
    for name in ("used", "pending", "old"):
        ledger.begin(transactional_id=name)
    end_ms = ledger.now_ms = ledger.now_ms + EXPIRATION_MS
    found = ledger.shard.expired(end_ms)
    assert found == ["used", "pending", "old"]
    ledger.begin(transactional_id="used")
    ledger.shard.init_producer_id("pending", TIMEOUT_MS, None, -1, end_ms)
    assert [one.transactional_id for one in ledger.shard.expire(found, end_ms).reply] == ["old"]
    assert not ledger.shard.expire(found, end_ms).records


# For administrators.


def test_listing_lets_through_what_passes_every_filter() -> None:
    ledger = Ledger()
    ledger.begin(transactional_id="empty")
    ledger.add(ledger.begin(transactional_id="open"), A)
    ledger.now_ms = 5_000
    ledger.add(ledger.begin(transactional_id="young"), TopicPartition("u", 1))

    def listed(
        states: list[str] | None = None, ids: list[int] | None = None, duration_ms: int = -1
    ) -> list[str]:
        found = ledger.shard.listed(states or [], ids or [], duration_ms, 6_000)
        return [one.transactional_id for one in found]

    assert listed() == ["empty", "open", "young"]
    assert listed(["Ongoing"]) == ["open", "young"]
    assert listed(["Ongoing", "Empty"], [100, 102]) == ["empty", "young"]
    assert listed(["Nonsense"]) == []
    assert listed(duration_ms=1_000) == ["open"]
    assert listed(duration_ms=999) == ["open", "young"]


class Filters(list[int]):
    """A list of filters that counts the searches in it."""

    searches = 0

    def __contains__(self, item: object) -> bool:
        self.searches += 1
        return super().__contains__(item)


def test_listing_does_not_search_long_filters_for_each_transaction() -> None:
    """A hundred thousand filters and as many transactions would block the loop for minutes."""
    ledger = Ledger()
    for name in ("a", "b", "c"):
        ledger.begin(transactional_id=name)
    filters = Filters([101, *range(1_000, 2_000)])
    (found,) = ledger.shard.listed([], filters, -1, 0)
    assert (found.transactional_id, filters.searches) == ("b", 0)


def test_an_unknown_id_cannot_be_described() -> None:
    code = refused(lambda: Ledger().shard.described("none"))
    assert code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
