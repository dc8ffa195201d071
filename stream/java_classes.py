"""Our few Java classes (`java/*.java`), compiled for the running JVM by the compiler Spark brings.

They stand on interfaces that Spark offers to Java and not to Python. Only the driver needs them.
The jar they make is kept, under a name that changes with the sources and with Spark.
"""

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

SOURCES = Path(__file__).with_name("java")

# Of the language, what the interfaces of Spark's that the classes implement ask for.
_LANGUAGE = 8


def load(session: SparkSession, folder: Path) -> None:
    """Let the JVM find the classes; their jar is kept in `folder`, and made where it is missing.

    Raises OSError, and Py4JJavaError with file, line and reason for a class that does not compile.
    """
    jvm: Any = session._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    jar = folder / f"millrace-{_digest()}.jar"
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _make(jvm, loader, jar)
    loader.addURL(jvm.java.io.File(str(jar.absolute())).toURI().toURL())


def _digest() -> str:
    digest = hashlib.sha256(pyspark.__version__.encode())
    for path in sorted(SOURCES.glob("*.java")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _make(jvm: Any, loader: Any, jar: Path) -> None:
    draft = jar.with_name(f".{jar.name}.{os.getpid()}")
    with zipfile.ZipFile(draft, "w") as file:
        for path in sorted(SOURCES.glob("*.java")):
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.setSourceVersion(_LANGUAGE)
            compiler.setTargetVersion(_LANGUAGE)
            compiler.cook(path.name, path.read_text())
            classes = compiler.getBytecodes()
            for name in classes:
                file.writestr(f"{name.replace('.', '/')}.class", bytes(classes[name]))
    draft.replace(jar)
    for other in jar.parent.glob("millrace-*.jar"):
        if other != jar:
            other.unlink(missing_ok=True)
