"""The order of one connection's requests: tests by hand, and a random program compared with a
model."""

from random import Random

from broker.sessions.pipeline import Pipeline, Slot
from tests.harness.seed import seeded

REQUEST_COUNT_MAX = 64
REQUEST_BYTES_MAX = 1_000
PRODUCE = b"\x00\x00"
FETCH = b"\x00\x01"


def start(pipeline: Pipeline, *, is_produce: bool) -> Slot:
    slot = pipeline.admit(is_produce, 10)
    assert slot is not None
    return slot


def waiting(pipeline: Pipeline) -> bytes | None:
    """Start the request that has waited longest. Return its frame, or None if it may not start
    yet."""
    started = pipeline.start_waiting()
    return None if started is None else started[1]


def test_produce_overlaps_produce_and_answers_leave_in_order() -> None:
    pipeline = Pipeline(REQUEST_COUNT_MAX, REQUEST_BYTES_MAX)
    first, second = (start(pipeline, is_produce=True) for _ in range(2))
    second.answer = [b"2"]
    assert pipeline.take_answers() == []
    first.answer = [b"1"]
    assert pipeline.take_answers() == [b"1", b"2"]
    assert pipeline.is_idle


def test_nothing_starts_behind_a_produce_that_is_held() -> None:
    pipeline = Pipeline(REQUEST_COUNT_MAX, REQUEST_BYTES_MAX)
    slot = start(pipeline, is_produce=True)
    pipeline.hold(slot)
    assert pipeline.held_bytes == slot.size_bytes
    assert pipeline.admit(True, 10) is None
    pipeline.wait(PRODUCE)
    assert waiting(pipeline) is None
    pipeline.let_go(slot)
    # The first Produce is appended but not answered. The next one follows it in the logs, so it may
    # start.
    assert waiting(pipeline) == PRODUCE
    assert pipeline.held_bytes == 0


def test_what_waits_can_be_looked_at() -> None:
    pipeline = Pipeline(REQUEST_COUNT_MAX, REQUEST_BYTES_MAX)
    start(pipeline, is_produce=False)
    assert list(pipeline.waiting) == []
    pipeline.wait(FETCH)
    pipeline.wait(PRODUCE)
    assert list(pipeline.waiting) == [FETCH, PRODUCE]


def test_anything_else_waits_for_all_before_it() -> None:
    pipeline = Pipeline(REQUEST_COUNT_MAX, REQUEST_BYTES_MAX)
    produce = start(pipeline, is_produce=True)
    assert pipeline.admit(False, 10) is None
    pipeline.wait(FETCH)
    assert waiting(pipeline) is None
    produce.answer = [b"p"]
    # The Produce must be answered and taken from the line, so that the order is kept.
    assert pipeline.take_answers() == [b"p"]
    assert waiting(pipeline) == FETCH


def test_produce_waits_behind_anything_else() -> None:
    pipeline = Pipeline(REQUEST_COUNT_MAX, REQUEST_BYTES_MAX)
    fetch = start(pipeline, is_produce=False)
    assert pipeline.admit(True, 10) is None
    pipeline.wait(PRODUCE)
    pipeline.wait(PRODUCE)
    fetch.answer = []
    assert pipeline.take_answers() == []
    assert waiting(pipeline) == PRODUCE
    assert waiting(pipeline) == PRODUCE


def test_nobody_overtakes_what_waits() -> None:
    pipeline = Pipeline(REQUEST_COUNT_MAX, REQUEST_BYTES_MAX)
    start(pipeline, is_produce=True)
    pipeline.wait(FETCH)
    assert pipeline.admit(True, 10) is None


def test_a_request_without_an_answer_frees_its_place() -> None:
    pipeline = Pipeline(REQUEST_COUNT_MAX, REQUEST_BYTES_MAX)
    silent, loud = (start(pipeline, is_produce=True) for _ in range(2))
    loud.answer = [b"2"]
    silent.answer = ()
    assert pipeline.take_answers() == [b"2"]


def test_the_line_is_full_at_its_limits() -> None:
    pipeline = Pipeline(REQUEST_COUNT_MAX, REQUEST_BYTES_MAX)
    was_full, slots = [], []
    for _ in range(REQUEST_COUNT_MAX):
        was_full.append(pipeline.is_full)
        slots.append(start(pipeline, is_produce=True))
    was_full.append(pipeline.is_full)
    slots[0].answer = []
    pipeline.take_answers()
    was_full.append(pipeline.is_full)
    assert was_full == [False] * REQUEST_COUNT_MAX + [True, False]
    large = Pipeline(REQUEST_COUNT_MAX, REQUEST_BYTES_MAX)
    large.admit(True, REQUEST_BYTES_MAX)
    assert large.is_full


def test_any_program_keeps_the_order() -> None:
    random = seeded("pipeline")
    for _ in range(300):
        run_program(random)


def run_program(random: Random) -> None:
    """Run a program in which requests arrive and answers come in any order. The model is a list of
    arrivals."""
    pipeline = Pipeline(REQUEST_COUNT_MAX, REQUEST_BYTES_MAX)
    kinds = [random.random() < 0.6 for _ in range(random.randint(1, 30))]
    arrived = 0
    started: list[int] = []
    open_slots: dict[int, Slot] = {}
    sent: list[object] = []

    def begin(number: int, slot: Slot) -> None:
        before = [one for one in range(number) if one in open_slots or one not in started]
        if kinds[number]:
            assert all(one in started and kinds[one] for one in before)
        else:
            assert not before
        started.append(number)
        open_slots[number] = slot

    def settle() -> None:
        sent.extend(pipeline.take_answers())
        while (begun := pipeline.start_waiting()) is not None:
            slot, frame = begun
            begin(int.from_bytes(frame[2:4], "big"), slot)

    while len(sent) < len(kinds):
        if arrived < len(kinds) and (not open_slots or random.random() < 0.5):
            number = arrived
            arrived += 1
            admitted = pipeline.admit(kinds[number], 1)
            if admitted is not None:
                begin(number, admitted)
            else:
                pipeline.wait((PRODUCE if kinds[number] else FETCH) + number.to_bytes(2, "big"))
        else:
            number = random.choice(list(open_slots))
            open_slots.pop(number).answer = [number]
            settle()
    assert sent == list(range(len(kinds)))
    assert started == sorted(started)
    assert pipeline.is_idle
