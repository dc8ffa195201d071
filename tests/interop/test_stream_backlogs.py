"""The checks of the stream's benchmark: backlogs that several tasks share, in every format.

Run them for every change to how lines are parsed or folded. Interference between tasks shows only
in batches that are large enough for two tasks, and not every time.
"""

from collections.abc import Iterator

import pytest

from bench import stream_inputs
from bench.session import Bench, Options
from bench.straight import Measure
from bench.stream import counted_backlog
from bench.stream_rig import Servers, servers

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(Options(runs=1, folder=tmp_path_factory.mktemp("bench"))) as made:
        yield made


@pytest.fixture(scope="module")
def on(bench: Bench) -> Iterator[Servers]:
    with servers(bench) as running:
        yield running


@pytest.mark.parametrize("kind", stream_inputs.MEASURES)
@pytest.mark.parametrize("form", stream_inputs.FORMATS)
def test_every_cell_of_a_backlog_is_exact(
    bench: Bench, on: Servers, form: str, kind: Measure
) -> None:
    figures = counted_backlog(bench, on, form, kind)
    assert figures["lines_per_s"] > 0
