"""Lines on which an expression would not end, would end the JVM, or would count a wrong number."""

from typing import Any

import pytest

from stream.compile import compile_plan
from stream.config import StreamSection
from stream.counts import Counts
from stream.folding import Folding
from tests.interop.stream_spark import frame, keys, one_input, spark

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("started")]

@pytest.fixture(scope="module")
def started() -> None:
    """The start of Spark is no part of what is timed."""
    spark()


def fold(config: dict[str, Any], lines: list[str], *, in_tasks: bool, **where: Any) -> Counts:
    """As the driver folds lines, or as Spark's tasks do."""
    plan = compile_plan(StreamSection.model_validate(config))
    folding = Folding(plan, as_blocks=False)
    found = frame(lines, **where)
    return folding.fold_large(found) if in_tasks else folding.fold_small(found)


@pytest.mark.parametrize("in_tasks", [False, True])
def test_a_file_whose_name_is_no_utf_8_is_one_key(in_tasks: bool) -> None:
    config = one_input({"format": "raw"}, {"name": "by_file", "key": "file"})
    counts = fold(config, ["x"], in_tasks=in_tasks, file=b"t/\xed\xa0\x80\xff.log")
    assert keys(counts, "by_file") == {b"t/\xed\xa0\x80\xff.log".decode(errors="replace"): 1}
