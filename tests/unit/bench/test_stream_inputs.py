"""The traffic is the same in every format, and the stream accepts every configuration section."""

import json

import numpy as np
import pytest

from bench import stream_inputs
from bench.straight import Measure, cells_of
from bench.traffic import STATUSES, Traffic, address_of, path_of
from stream.config.settings import StreamSection

START_S = 1_754_006_400
FORMATS = tuple(stream_inputs.FORMATS)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("measure", stream_inputs.MEASURES)
def test_the_stream_takes_every_section(name: str, measure: Measure) -> None:
    section = StreamSection.model_validate(stream_inputs.section(name, measure, "logs.x"))
    assert [one.name for one in section.metrics] == [stream_inputs.metric(measure).name]


@pytest.mark.parametrize("name", FORMATS)
def test_a_line_says_in_every_format_what_was_drawn(name: str) -> None:
    drawn, combined = Traffic(9).draw(START_S, 60)
    lines = list(stream_inputs.lines(name, drawn, combined))
    assert len(lines) == len(drawn)
    for place in (0, len(lines) - 1, int(np.argmin(drawn.size))):
        text = lines[place].decode()
        assert path_of(int(drawn.path[place])) in text
        assert address_of(int(drawn.address[place])) in text
        assert STATUSES[drawn.status[place]] in text
        assert drawn.size[place] == -1 or str(drawn.size[place]) in text
        assert "\n" not in text


def test_json_lines_are_json() -> None:
    drawn, combined = Traffic(9).draw(START_S, 10)
    told = [json.loads(line) for line in stream_inputs.lines("json", drawn, combined)]
    assert [one["status"] for one in told] == [int(STATUSES[place]) for place in drawn.status]
    assert [one["bytes"] for one in told] == [int(n) if n >= 0 else None for n in drawn.size]


def test_a_share_is_of_errors() -> None:
    drawn, _ = Traffic(9).draw(START_S, 600)
    cells = cells_of(stream_inputs.metric("share"), drawn, 0)
    assert int(cells.sums.sum()) == int((drawn.status == STATUSES.index("500")).sum()) > 0
    assert int(cells.counts.sum()) == len(drawn)
