"""The folder of an archive: on this machine, or on any file system that Hadoop supports.

Both kinds of folder have the same few operations. After a crash, a file that `write_new` or `move`
made is either complete or absent. Paths are relative to the folder, with `/` between their steps.
"""

import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class Folder(Protocol):
    """A folder of an archive, on this machine or on another file system.

    `root` is its URI, which Spark can read. All methods raise the exceptions of the file system.
    """

    root: str

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, or an empty list if the folder does not exist."""
        ...

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Create a file; raises FileExistsError if it exists."""
        ...

    def settle(self, path: str) -> None:
        """Flush all files below a folder to disk, if the file system offers a way to do that."""
        ...

    def move(self, source: str, target: str) -> None:
        """Rename a file; if an earlier attempt has moved it already, do nothing."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content; do nothing if it does not exist."""
        ...


def root_of(folder: str, home: Path) -> str:
    """Return a configured folder as a URI. A relative folder is below `home`, the mill's folder.

    Blanks and other special characters are not escaped, because Hadoop expects them unescaped.
    """
    return folder if _SCHEME.match(folder) else f"file://{home.resolve() / folder}"


def open_folder(root: str, session: SparkSession) -> Folder:
    """Return the folder of a URI. A local folder is not accessed before its first use."""
    if root.startswith("file:"):
        return LocalFolder(root)
    return HadoopFolder(root, session)


class LocalFolder:
    """A folder on this machine. Its methods call fsync themselves."""

    def __init__(self, root: str) -> None:
        self._folder = Path("/" + root.removeprefix("file:").lstrip("/"))
        self.root = f"file://{self._folder}"

    def names(self, path: str) -> list[str]:
        try:
            return sorted(one.name for one in (self._folder / path).iterdir())
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()

    def write_new(self, path: str, data: bytes) -> None:
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuid.uuid4()}.tmp")
        try:
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            # Use a link, because it fails if the target exists. A rename would replace the target.
            os.link(draft, target)
        finally:
            draft.unlink(missing_ok=True)
        _sync(target.parent)

    def settle(self, path: str) -> None:
        for folder, _, files in os.walk(self._folder / path):
            for name in files:
                _sync(Path(folder, name))
            _sync(Path(folder))
        # The parent folders can be new too, so their entries must be flushed as well.
        for above in Path(path).parents:
            _sync(self._folder / above)
        _sync(self._folder.parent)

    def move(self, source: str, target: str) -> None:
        before, after = self._folder / source, self._folder / target
        after.parent.mkdir(parents=True, exist_ok=True)
        try:
            before.rename(after)
        except FileNotFoundError:
            if not after.exists():
                raise
        _sync(after.parent)
        _sync(after.parent.parent)

    def remove(self, path: str) -> None:
        target = self._folder / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HadoopFolder:
    """A folder on a file system of Hadoop, accessed through the JVM; it raises Py4JError."""

    def __init__(self, root: str, session: SparkSession) -> None:
        self.root = root.rstrip("/")
        self._jvm: Any = session._jvm
        self._configuration: Any = session._jsc.sc().hadoopConfiguration()
        self._system: Any = self._path("").getFileSystem(self._configuration)

    def names(self, path: str) -> list[str]:
        found = self._path(path)
        if not self._system.exists(found):
            return []
        return sorted(str(one.getPath().getName()) for one in self._system.listStatus(found))

    def read(self, path: str) -> bytes:
        stream = self._system.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write_new(self, path: str, data: bytes) -> None:
        target = self._path(path)
        parent, _, name = path.rpartition("/")
        draft = self._path(f"{parent}/.{name}.{uuid.uuid4()}.tmp")
        if self._system.exists(target):
            raise FileExistsError(f"{self.root}/{path} exists already")
        stream = self._system.create(draft, True)
        try:
            stream.write(data)
        finally:
            stream.close()
        if not self._system.rename(draft, target):
            self._system.delete(draft, False)
            raise FileExistsError(f"{self.root}/{path} exists already")

    def settle(self, path: str) -> None:
        """Do nothing, because Hadoop has no way to flush a file after it was closed."""

    def move(self, source: str, target: str) -> None:
        before, after = self._path(source), self._path(target)
        self._system.mkdirs(after.getParent())
        if self._system.exists(after):
            # In an object store a move is a copy and a deletion, so after a crash both files can
            # exist.
            self._system.delete(before, False)
        elif not self._system.rename(before, after):
            raise OSError(f"{self.root}/{source} cannot be moved to {target}")

    def remove(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{path}" if path else self.root)
