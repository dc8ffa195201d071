"""Collectors of other hosts: which report counts, and what the monitor makes of it."""

from dataclasses import replace

from monitor.state.collectors import COLLECTORS_MAX, Health, Heard, ReportMemory
from monitor.views.collectors import BEHIND_BYTES, FORGET_MS, SILENT_MS, counts, judge
from protocol.collector_report import FENCED, STOPPED, CollectorReport, encode
from protocol.status import Problem

NOW_MS = 1_800_000_000_000


def report(instance: str = "web-1", **keys: object) -> CollectorReport:
    base = CollectorReport(
        instance=instance,
        group="web",
        host=f"{instance}.example.org",
        version="1",
        state="running",
        at_ms=NOW_MS,
        started_at_ms=NOW_MS,
    )
    return replace(base, **keys)  # type: ignore[arg-type]


def judged(one: CollectorReport, age_ms: int = 0) -> tuple[Health, str]:
    (view,) = judge([Heard(one, NOW_MS - age_ms)], NOW_MS)
    return view.health, view.text


def test_each_state_and_its_reason() -> None:
    assert judged(report()) == (Health.WORKING, "")
    assert judged(report(lag_bytes=BEHIND_BYTES)) == (Health.WORKING, "")
    assert judged(report(lag_bytes=BEHIND_BYTES + 1))[0] is Health.BEHIND
    assert judged(report(), SILENT_MS)[0] is Health.WORKING
    assert judged(report(), 130_000) == (Health.SILENT, "no report for 2 min 10 s")
    assert judged(report(state=STOPPED), FORGET_MS - 1) == (Health.STOPPED, "")
    late = judged(report(skew_ms=3_600_000))
    assert late == (Health.SKEWED, "its clock is 1 h behind the brokers'")
    assert "ahead of" in judged(report(skew_ms=-61_000))[1]
    assert judged(report(skew_ms=60_000))[0] is Health.WORKING
    problems = (Problem("broker", "is away"), Problem("files", "x"))
    found = judged(report(problems=problems, problems_total=7))
    assert found == (Health.PROBLEM, "broker: is away; and 6 more")


def test_a_collector_that_is_silent_for_a_week_is_forgotten() -> None:
    assert judge([Heard(report(), NOW_MS - FORGET_MS)], NOW_MS) == ()


def test_those_with_trouble_come_first() -> None:
    heard = [
        Heard(report("a"), NOW_MS),
        Heard(report("b", state=STOPPED), NOW_MS),
        Heard(report("c", lag_bytes=BEHIND_BYTES * 2), NOW_MS),
        Heard(report("d"), NOW_MS - SILENT_MS - 1),
        Heard(report("e", problems=(Problem("x", "y"),), problems_total=1), NOW_MS),
    ]
    views = judge(heard, NOW_MS)
    assert [one.report.instance for one in views] == ["d", "e", "c", "b", "a"]
    assert [one.health.is_trouble for one in views] == [True, True, True, False, False]
    assert counts(views)[Health.SKEWED] == 0


def take(memory: ReportMemory, one: CollectorReport, at_ms: int = NOW_MS) -> None:
    memory.take(one.instance.encode(), encode(one), at_ms)


def test_the_last_record_of_a_key_counts_and_a_deletion_forgets() -> None:
    memory = ReportMemory()
    take(memory, report(files=1))
    take(memory, report(files=2))
    assert [one.report.files for one in memory.heard.values()] == [2]
    memory.take(b"web-1", None, NOW_MS)
    memory.take(b"never-there", None, NOW_MS)
    assert memory.heard == {}


def test_records_of_another_name_or_form_are_ignored() -> None:
    memory = ReportMemory()
    take(memory, report())
    memory.take(b"web-1", encode(report("web-2")), NOW_MS + 1)
    memory.take(b"web-1", b"no report", NOW_MS + 1)
    memory.take(None, encode(report()), NOW_MS + 1)
    assert memory.heard == {"web-1": Heard(report(), NOW_MS)}


def test_a_copied_machine_is_a_problem_of_the_collector_that_goes_on() -> None:
    memory = ReportMemory()
    take(memory, report(host="first"))
    fenced = report(host="copy", state=STOPPED, problems=(Problem(FENCED, "ended"),))
    take(memory, fenced)
    take(memory, report(host="first"))
    (view,) = judge(memory.heard.values(), NOW_MS)
    assert view.health is Health.PROBLEM
    assert view.report.host == "first"
    assert view.text == "a collector of the same name on copy has ended because of it"


def test_two_collectors_that_take_turns_are_a_problem_and_a_restart_is_none() -> None:
    memory = ReportMemory()

    def health(at_ms: int) -> tuple[Health, str]:
        (view,) = judge(memory.heard.values(), at_ms)
        return view.health, view.text

    take(memory, report(host="a", started_at_ms=1), 0)
    take(memory, report(host="a", started_at_ms=2), 10_000)
    assert health(10_000)[0] is Health.WORKING, "it was restarted"
    take(memory, report(host="b", started_at_ms=3), 20_000)
    assert health(20_000)[0] is Health.WORKING, "it has moved"
    take(memory, report(host="a", started_at_ms=2), 30_000)
    text = "another collector of the same name reports from b"
    assert health(30_000) == (Health.PROBLEM, text)
    take(memory, report(host="a", started_at_ms=2), 30_000 + SILENT_MS)
    assert health(30_000 + SILENT_MS)[0] is Health.WORKING, "the other one is gone"


def test_the_list_is_bounded() -> None:
    memory = ReportMemory()
    for number in range(COLLECTORS_MAX + 10):
        take(memory, report(f"c{number}"), NOW_MS + number)
    assert len(memory.heard) == COLLECTORS_MAX
    assert "c9" not in memory.heard
    assert "c10" in memory.heard
