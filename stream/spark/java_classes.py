"""Our few Java classes (`java/*.java`), compiled in the running JVM by Spark's own compiler.

They are in Java because they use interfaces of Spark that Python cannot use.
The compiler is Janino, which Spark uses for its generated code. Janino supports neither type
parameters nor lambdas, so the sources have none. They are compiled at the first start. The jar is
kept in the stream's data folder. Its name changes with the sources and with Spark's version, so a
new version is compiled again.
"""

import hashlib
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

SOURCES = Path(__file__).parents[1] / "java"

# The Java language level that Spark's interfaces require of these classes.
_LANGUAGE = 8


def load(session: SparkSession, folder: Path) -> None:
    """Make the classes available to the session; keep their jar in `folder`.

    Raises OSError, and Py4JJavaError with file, line and reason for a class that does not compile.
    """
    jvm: Any = session._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    jar = _jar(folder)
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _make(jvm, loader, jar)
    loader.addURL(jvm.java.io.File(str(jar.absolute())).toURI().toURL())
    # Executors on other machines get the jar through Spark.
    session.sparkContext._jsc.addJar(jar.absolute().as_uri())
    register(session)


@contextmanager
def borrowed(session: SparkSession, folder: Path) -> Iterator[None]:
    """Make the classes available inside this context, without writing to `folder`.

    If `folder` has no jar of the classes, they are compiled in a temporary folder.
    """
    with TemporaryDirectory(prefix="millrace-") as own:
        load(session, folder if _jar(folder).exists() else Path(own))
        yield


def register(session: SparkSession) -> None:
    """Register our functions with a session and those cloned from it."""
    jvm: Any = session._jvm
    registry = session._jsparkSession.sessionState().functionRegistry()
    jvm.millrace.Functions.register(registry)


def _jar(folder: Path) -> Path:
    return folder / f"millrace-{_digest()}.jar"


def _digest() -> str:
    digest = hashlib.sha256(pyspark.__version__.encode())
    for path in sorted(SOURCES.glob("*.java")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _make(jvm: Any, loader: Any, jar: Path) -> None:
    draft = jar.with_name(f".{jar.name}.{os.getpid()}")
    classes = jvm.java.util.HashMap()
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
    compiler.setClassFileCreator(
        jvm.org.codehaus.commons.compiler.util.resource.MapResourceCreator(classes)
    )
    compiler.setSourceVersion(_LANGUAGE)
    compiler.setTargetVersion(_LANGUAGE)
    sources = sorted(SOURCES.glob("*.java"))
    gateway = SparkContext._gateway
    assert gateway is not None
    files = gateway.new_array(jvm.java.io.File, len(sources))
    for at, path in enumerate(sources):
        files[at] = jvm.java.io.File(str(path))
    compiler.compile(files)
    with zipfile.ZipFile(draft, "w") as file:
        for name in classes:
            file.writestr(name, bytes(classes[name]))
    draft.replace(jar)
    for other in jar.parent.glob("millrace-*.jar"):
        if other != jar:
            other.unlink(missing_ok=True)
