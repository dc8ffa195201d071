"""Spark's inside as `docs/spark-internals.md` lists it: what is used is named, and is there."""

import re
from typing import Any

import pyspark.util
import pytest
from py4j.protocol import Py4JJavaError

from tests.harness.broker import ROOT
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
    "org.apache.spark.sql.Dataset",
}
IMPORT = re.compile(r"^import ((?:org\.apache\.spark|net\.razorvine)\.[\w.$]+);", re.MULTILINE)
PRIVATE = re.compile(r"\b(?:_jvm|_jdf|_jsc|_jsparkSession|_gateway|_load_from_socket|_jrdd)\b")


def sources(pattern: str) -> str:
    return "\n".join(path.read_text() for path in sorted((ROOT / "stream").rglob(pattern)))


def used_classes() -> list[str]:
    """The classes of Spark's inside that our Java imports."""
    found = set(IMPORT.findall(sources("*.java")))
    return sorted(name for name in found - PUBLIC_CLASSES if not name.startswith(PUBLIC))


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
    members = set(PRIVATE.findall(sources("*.py")))
    assert sorted(members - {one.rpartition(".")[2] for one in listed}) == []


def test_all_that_is_named_is_used() -> None:
    classes, members = used_classes(), set(PRIVATE.findall(sources("*.py")))
    inside = [one for one in named() if one.startswith(("org.apache.spark.", "net.razorvine."))]
    unused = [
        one for one in inside if not any(f"{name}.".startswith(f"{one}.") for name in classes)
    ]
    private = [one for one in named() if one.rpartition(".")[2].startswith("_")]
    unused += [one for one in private if one.rpartition(".")[2] not in members]
    assert unused == []


def test_this_spark_has_all_of_it() -> None:
    session = spark()
    jvm: Any = session._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()

    def is_there(name: str) -> bool:
        # A class within a class is imported with a point, and loaded with a dollar sign.
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
        "util": pyspark.util,
    }
    private = [one.split(".")[-2:] for one in named() if one.rpartition(".")[2].startswith("_")]
    assert len(private) > len(members)
    assert [one for one in private if not hasattr(members[one[0]], one[1])] == []
