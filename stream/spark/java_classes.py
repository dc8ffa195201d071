"""Our few Java classes (`java/*.java`), compiled for the running JVM by the compiler Spark brings.

They stand on interfaces that Spark offers to Java and not to Python.
The compiler is Janino, which Spark uses for its generated code. Janino knows no type parameters and
no lambdas, so the sources use neither. They are compiled at the first start. The jar stays in the
stream's data folder, under a name that changes with the sources and with Spark's version.
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

# Of the language, what the interfaces of Spark's that the classes implement ask for.
_LANGUAGE = 8


def load(session: SparkSession, folder: Path) -> None:
    """Let the session find the classes; their jar is kept in `folder`, made where it is missing.

    Raises OSError, and Py4JJavaError with file, line and reason for a class that does not compile.
    """
    jvm: Any = session._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    jar = _jar(folder)
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _make(jvm, loader, jar)
    loader.addURL(jvm.java.io.File(str(jar.absolute())).toURI().toURL())
    # Executors on other machines get it from here.
    session.sparkContext._jsc.addJar(jar.absolute().as_uri())
    register(session)


@contextmanager
def borrowed(session: SparkSession, folder: Path) -> Iterator[None]:
    """As `load`, for who may not write to `folder`: what is missing there is made elsewhere."""
    with TemporaryDirectory(prefix="millrace-") as own:
        load(session, folder if _jar(folder).exists() else Path(own))
        yield


def register(session: SparkSession) -> None:
    """Let a session, and those cloned from it, know our functions."""
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
