"""Checks the whole configuration as Spark will run it: compiles, plans, and folds made-up lines.

A configuration that passes this check cannot end the query. If all metrics together fail, each
input is tried alone and the failing metrics are found by halving. So each fault is reported at the
key of its input or metric.
"""

from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stream.config.settings import StreamSection
from stream.fold.compile import compile_plan
from stream.fold.folding import Folding
from stream.parse.check import check_section
from stream.parse.fault import Fault, KeyPath
from stream.parse.pattern_check import note_input_pattern, note_patterns
from stream.quarantine.failures import Origin, judge, words_of
from stream.source.kafka import made_lines


def check_configuration(session: SparkSession, section: StreamSection) -> list[Fault]:
    """Return all faults that Spark finds in a section that pydantic has validated."""
    faults = check_section(session, section)
    sound = without(section, [fault.path for fault in faults])
    return [*faults, *check_plan(session, section, sound)]


def notes_on(section: StreamSection) -> list[Fault]:
    """Return notes on patterns that can need too many steps; such a line is not counted."""
    notes: list[Fault] = []
    for name, given in section.from_.items():
        if given.pattern is not None:
            notes.extend(note_input_pattern(name, given.pattern))
    for index, metric in enumerate(section.metrics):
        for key, text in (("where", metric.where), ("value", metric.value)):
            if text is not None:
                notes.extend(note_patterns(("stream", "metrics", index, key), text))
    return notes


def check_plan(
    session: SparkSession, section: StreamSection, some: StreamSection | None = None
) -> list[Fault]:
    """Return a fault for each input and metric that Spark cannot run.

    `some` is the part of `section` to try; None tries all of it.

    Raises Py4JError or OSError if the JVM is gone.
    """
    some = section if some is None else some
    if _fails(session, some) is None:
        return []
    faults: list[Fault] = []
    for name, given in some.from_.items():
        why = _fails(session, some.model_copy(update={"from_": {name: given}, "metrics": ()}))
        if why is not None:
            faults.append(_fault(("stream", "from", name), why))
    sound = without(some, [fault.path for fault in faults])
    at = {metric.name: index for index, metric in enumerate(section.metrics)}
    for name, why in _failing_metrics(session, sound):
        faults.append(_fault(("stream", "metrics", at[name]), why))
    return faults


def without(section: StreamSection, paths: Sequence[KeyPath]) -> StreamSection:
    """Return a section without the inputs and metrics at these paths.

    Metrics that read a removed input are removed too.
    """
    inputs = {path[2] for path in paths if path[1] == "from"}
    numbers = {path[2] for path in paths if path[1] == "metrics"}
    metrics = [
        metric
        for number, metric in enumerate(section.metrics)
        if number not in numbers and not inputs & set(metric.from_)
    ]
    kept = {name: given for name, given in section.from_.items() if name not in inputs}
    return section.model_copy(update={"from_": kept, "metrics": tuple(metrics)})


def _failing_metrics(session: SparkSession, section: StreamSection) -> list[tuple[str, str]]:
    """Return the metrics that fail, each with the reason, by trying halves of the list."""
    why = _fails(session, section)
    if why is None or not section.metrics:
        return []
    if len(section.metrics) == 1:
        return [(section.metrics[0].name, why)]
    middle = len(section.metrics) // 2
    halves = (section.metrics[:middle], section.metrics[middle:])
    return [
        found
        for half in halves
        for found in _failing_metrics(session, section.model_copy(update={"metrics": half}))
    ]


def _fails(session: SparkSession, section: StreamSection) -> str | None:
    """Return why Spark cannot run a section; None if it can."""
    if not section.from_:
        return None
    try:
        folding = Folding(compile_plan(section), as_blocks=False)
        folding.fold_in_driver(made_lines(session, section.topics))
    except (PySparkException, Py4JError, OSError) as error:
        origin, causes = judge(error)
        if origin is Origin.JVM:
            raise
        return words_of(causes)
    return None


def _fault(path: KeyPath, why: str) -> Fault:
    return Fault(path, f"what Spark cannot run ({why})", "an input or a metric that Spark can plan")
