import io
import json
from collections.abc import Mapping

from bench.measurement import Goal, Measurement, Peer, Run
from bench.report import HEADS, rows, table, write_line


def runs(*figures: Mapping[str, float], other_load: float = 0.1) -> list[Run]:
    return [Run(one, other_load) for one in figures]


COMPARED = Measurement(
    "collector",
    "4 lines",
    runs({"lines_per_cpu_s": 300.0, "cpu_s": 2.0}, {"lines_per_cpu_s": 100.0, "cpu_s": 4.0}),
    Peer("loop", runs({"lines_per_cpu_s": 100.0}, {"lines_per_cpu_s": 100.0}, other_load=0.5)),
    [Goal("lines_per_cpu_s", at_least=1.5, of="ratio"), Goal("cpu_s", at_most=2.9)],
)


def written(measurement: Measurement) -> dict[str, object]:
    out = io.StringIO()
    write_line(measurement, out)
    assert out.getvalue().endswith("}\n") and out.getvalue().count("\n") == 1
    found: dict[str, object] = json.loads(out.getvalue())
    return found


def test_a_line_has_the_schema() -> None:
    line = written(COMPARED)
    assert list(line) == [
        "schema", "part", "case", "figures", "values", "peer", "ratio", "goals", "machine",
        "noisy", "discarded", "at"
    ]  # fmt: skip
    assert line["schema"] == "bench/1"
    assert line["figures"] == {
        "lines_per_cpu_s": {"min": 100, "median": 200, "max": 300, "runs": 2},
        "cpu_s": {"min": 2, "median": 3, "max": 4, "runs": 2},
    }
    machine = line["machine"]
    assert isinstance(machine, dict) and set(machine) == {"cores", "python", "other_load"}
    assert machine["other_load"] == {"min": 0.1, "median": 0.3, "max": 0.5, "runs": 4}


def test_single_events_stand_beside_the_figures() -> None:
    peer = Peer("kafka", runs({"p50_s": 11.0}), {"gap_s": [10.98765]})
    found = Measurement("part", "case", runs({"p50_s": 0.2}), peer, values={"gap_s": [0.1, 0.3]})
    line = written(found)
    assert line["values"] == {"gap_s": [0.1, 0.3]}
    assert line["peer"] == {
        "name": "kafka",
        "figures": {"p50_s": {"min": 11.0, "median": 11.0, "max": 11.0, "runs": 1}},
        "values": {"gap_s": [10.99]},
    }
    assert written(COMPARED)["values"] == {}


def test_ratios_are_taken_pair_by_pair() -> None:
    assert COMPARED.ratios["lines_per_cpu_s"].maximum == 3.0
    assert COMPARED.ratios["lines_per_cpu_s"].median == 2.0
    assert "cpu_s" not in COMPARED.ratios


def test_a_peer_that_measured_nothing_gives_no_ratio() -> None:
    peer = Peer("loop", runs({"cpu_s": 0.0}))
    assert Measurement("part", "case", runs({"cpu_s": 1.0}), peer).ratios == {}


def test_goals_are_judged_by_the_median() -> None:
    assert [(goal.figure, met) for goal, _, met in COMPARED.judged()] == [
        ("lines_per_cpu_s", True),
        ("cpu_s", False),
    ]
    assert written(COMPARED)["goals"] == [
        {"figure": "lines_per_cpu_s", "of": "ratio", "at_least": 1.5, "met": True},
        {"figure": "cpu_s", "of": "figures", "at_most": 2.9, "met": False},
    ]


def test_noisy_runs_are_counted_and_kept() -> None:
    assert written(COMPARED)["noisy"] == 2
    quiet = Measurement("part", "case", runs({"cpu_s": 1.0}, other_load=0.3))
    assert written(quiet)["noisy"] == 0


def test_without_a_peer_there_is_no_ratio() -> None:
    line = written(Measurement("part", "case", runs({"cpu_s": 1.0})))
    assert (line["peer"], line["ratio"], line["goals"]) == (None, None, [])


def test_the_table_shows_every_figure_and_what_disturbed_it() -> None:
    assert len(list(rows([COMPARED]))) == 2
    out = io.StringIO()
    table([COMPARED], out)
    head, first, second = out.getvalue().splitlines()
    assert head.split() == [word for word in HEADS if word]
    assert "≥ 1.5× met" in first and "2.0×" in first and "noisy 2/4" in first
    assert "≤ 2.9 MISSED" in second and "collector" not in second


def test_an_empty_table_is_silent() -> None:
    out = io.StringIO()
    table([], out)
    assert out.getvalue() == ""
