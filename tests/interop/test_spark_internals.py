"""`docs/spark-internals.md` lists exactly the internals of Spark that we use, and each exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark.util
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from tests.harness import ROOT
from tests.interop.stream_spark import spark

pytestmark = pytest.mark.live

PAGE = ROOT / "docs" / "spark-internals.md"
PUBLIC = (
    "org.apache.spark.api.java.",
    "org.apache.spark.broadcast.",
    "org.apache.spark.sql.connector.",
    "org.apache.spark.sql.types.",
    "org.apache.spark.sql.util.",
)
PUBLIC_CLASSES = {
    "org.apache.spark.HashPartitioner",
    "org.apache.spark.SparkContext",
    "org.apache.spark.TaskContext$",
    "org.apache.spark.sql.AnalysisException",
    "org.apache.spark.sql.Dataset",
}
CLASS = re.compile(
    r"\b(?:org\.apache\.spark|org\.apache\.datasketches|org\.codehaus|com\.fasterxml|net\.razorvine)"
    r"\.[\w.]*\b[A-Z][\w$]*"
)
"""The name of a class of Spark, or of a library that comes with it, in an import, a call or a
text."""

PRIVATE_MODULES = ("pyspark.java_gateway",)


def sources(ending: str) -> list[Path]:
    """Return the files with this ending that use Spark."""
    beside = [ROOT / "appliance" / "mill" / "class_data.py"] if ending == ".py" else []
    return [*sorted((ROOT / "stream").rglob(f"*{ending}")), *beside]


def used_classes() -> list[str]:
    """Return the internal classes of Spark that our Java and Python code names."""
    texts = [path.read_text() for ending in (".java", ".py") for path in sources(ending)]
    found = {name for text in texts for name in CLASS.findall(text)}
    return sorted(name for name in found - PUBLIC_CLASSES if not name.startswith(PUBLIC))


def private_members(text: str) -> Iterator[str]:
    """Yield the private members of other objects, and the internal modules of PySpark, that this
    code uses."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if re.match("_[a-z]", node.attr) and not is_own:
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (one.name for one in node.names if one.name.startswith("_"))
            if node.module in PRIVATE_MODULES:
                yield node.module


def used_members() -> set[str]:
    return {name for path in sources(".py") for name in private_members(path.read_text())}


def named() -> set[str]:
    return set(re.findall(r"`([\w.$]+)`", PAGE.read_text()))


def test_all_that_is_used_is_named() -> None:
    listed = named()
    classes = [
        name
        for name in used_classes()
        if name not in listed and not any(name.startswith(f"{one}.") for one in listed)
    ]
    assert classes == []
    known = listed | {one.rpartition(".")[2] for one in listed}
    assert sorted(used_members() - known) == []


def test_what_is_private_is_seen_however_it_is_spelled() -> None:
    text = """
from pyspark.util import _load_from_socket, other
from pyspark.java_gateway import launch_gateway
def f(self, session):
    self._own = session.streams._jsqm.x(session.a()._jdf, cls._also_own, session.__class__)
"""
    seen = sorted(private_members(text))
    assert seen == ["_jdf", "_jsqm", "_load_from_socket", "pyspark.java_gateway"]


def test_all_that_is_named_is_used() -> None:
    classes, members = used_classes(), used_members()
    inside = [one for one in named() if CLASS.match(f"{one}.Any")]
    unused = [
        one for one in inside if not any(f"{name}.".startswith(f"{one}.") for name in classes)
    ]
    private = [one for one in named() if one.rpartition(".")[2].startswith("_")]
    unused += [one for one in private if one.rpartition(".")[2] not in members]
    assert unused == []


def refused(session: SparkSession) -> Exception:
    """Return the exception that PySpark raises for an exception in Java."""
    with pytest.raises(CapturedException) as raised:
        session.sql("SELECT nothing_of_that_name")
    return raised.value


def test_this_spark_has_all_of_it() -> None:
    session = spark()
    jvm: Any = session._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()

    def is_there(name: str) -> bool:
        # A nested class is written with a point in an import, but loaded with a dollar sign.
        outer, _, inner = name.rpartition(".")
        for loaded in (name, f"{outer}${inner}"):
            try:
                jvm.java.lang.Class.forName(loaded, False, loader)
            except Py4JJavaError:
                continue
            return True
        return False

    assert [name for name in used_classes() if not is_there(name)] == []
    members: dict[str, Any] = {
        "SparkSession": session,
        "SparkContext": session.sparkContext,
        "DataFrame": session.range(1),
        "StreamingQueryManager": session.streams,
        "CapturedException": refused(session),
        "util": pyspark.util,
    }
    private = [one.split(".")[-2:] for one in named() if one.rpartition(".")[2].startswith("_")]
    assert len(private) > len(members)
    assert [one for one in private if not hasattr(members[one[0]], one[1])] == []
