"""The cache of the connector's jars: only pinned files are stored, and no file is fetched twice."""

import hashlib
from pathlib import Path

import pytest

from stream.spark.jars import Jar, JarError, fetch, jar_paths, missing_jars, pinned_jars, store

GOOD = b"a jar"
JAR = Jar("g", "thing", "1.0", hashlib.sha256(GOOD).hexdigest())


def test_four_jars_are_pinned() -> None:
    assert [jar.artifact for jar in pinned_jars()] == [
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    ]
    assert len(jar_paths(Path("x"))) == 4


def test_a_wrong_sum_never_gets_in(tmp_path: Path) -> None:
    source, cache = tmp_path / "source.jar", tmp_path / "cache"
    cache.mkdir()
    source.write_bytes(b"another jar")
    with pytest.raises(JarError, match=r"g:thing:1\.0: found sha256 .*, expected "):
        store(JAR, source, cache)
    assert list(cache.iterdir()) == []
    source.write_bytes(GOOD)
    store(JAR, source, cache)
    assert [path.name for path in cache.iterdir()] == ["thing-1.0.jar"]


def test_a_full_cache_needs_neither_network_nor_jvm(tmp_path: Path) -> None:
    (tmp_path / JAR.file_name).write_bytes(GOOD)
    assert fetch(tmp_path, [JAR]) == 0


def test_a_damaged_jar_counts_as_missing(tmp_path: Path) -> None:
    assert missing_jars(tmp_path, [JAR]) == [JAR]
    (tmp_path / JAR.file_name).write_bytes(GOOD[:-1])
    assert missing_jars(tmp_path, [JAR]) == [JAR]
