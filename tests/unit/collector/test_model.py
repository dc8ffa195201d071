"""Random programs of appends, rotations, copies and kills, compared with a model.

By the model, every complete line that a scan could find is sent exactly once, despite copies and
kills. The lines of one generation are sent in order under one key. Nothing else is sent. Only an
unfinished line of a deleted file can be lost if the collector is killed at that moment.
"""

import gzip
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.config.settings import COPY_QUIET_MS, DRAIN_QUIET_MS
from collector.feeder import LIVE_TURNS
from collector.identity.comparing import JOINING_BYTES_MIN
from collector.text.fingerprint import FileId
from tests.unit.collector.blocks import seed
from tests.unit.collector.world import EVENTS, World

PROGRAMS = 150
MANY_PROGRAMS = 10_000  # random programs of each kind in the long form
IN_ONE = 50
ROUTED: dict[str, Any] = {
    "globs": ("*",), "exclude": ["*.off"], "topic": "t.{1}", "max_topics": 1_000,
}  # fmt: skip
"""Each line goes to the topic of its file's first name, even after the file was renamed."""
KINDS: dict[str, dict[str, Any]] = {"lines": {}, "events": EVENTS, "routed": ROUTED}
STEPS = 40
STREAM_ROUNDS = 10  # the most reports of the stream's progress while files wait for it
LINE_LENGTH = 99
TRIMMED_LINES_MIN = 11  # more bytes than the hash before a position covers
WRITTEN_MEANWHILE = 0.2  # the share of `look` calls during which a file grows


class Program:
    """One random program. Its files are named `a`, `a.1` …, and `b…`."""

    def __init__(self, folder: Path, rng: random.Random, **keys: Any):
        folder.mkdir()
        self.world = World(folder, **keys)
        self.rng = rng
        self.halves: dict[str, bytes] = {}  # the unfinished line of each name
        self.unsent: list[bytes] = []  # written since the last look
        self.expected: list[bytes] = []
        self.next_file = 0
        self.was_killed = False
        self.waits_for_stream = 0

    def names(self) -> list[str]:
        return sorted(
            path.name for path in self.world.folder.iterdir() if path.suffix not in (".gz", ".off")
        )

    def pick(self) -> str:
        return self.rng.choice(self.names() or ["a"])

    def append(self, name: str | None = None) -> None:
        name = name or self.pick()
        lines = self.world.new_lines(self.rng.randint(1, 30))
        data = self.halves.pop(name, b"") + lines
        self.world.append(name, lines)
        self.unsent += data.split(b"\n")[:-1]

    def half(self) -> None:
        name = self.pick()
        part = b"h%d" % self.rng.randrange(10**9)
        self.world.append(name, part)
        self.halves[name] = self.halves.get(name, b"") + part

    def create(self) -> None:
        self.next_file += 1
        self.append(f"b{self.next_file}")

    def rotate(self) -> None:
        if not self.world.path("a").exists():
            return
        self.make_room()
        self.move("a", "a.1")
        self.append("a")

    def make_room(self) -> None:
        for index in range(5, 0, -1):
            if self.world.path(f"a.{index}").exists():
                self.move(f"a.{index}", f"a.{index + 1}")

    def copytruncate(self) -> None:
        """Run copytruncate. A scan can see a partial copy, or a whole copy beside the original."""
        if not self.world.path("a").exists():
            return
        self.make_room()
        self.look()
        if b"\n" not in self.world.path("a").read_bytes():
            # Nothing was sent from the file, so a copy of it would count as another file.
            return
        if self.rng.random() < 0.5:
            self.append("a")
        data = self.world.path("a").read_bytes()
        for size in (self.rng.randrange(len(data)), len(data)):
            self.world.path("a.1").write_bytes(data[:size])
            self.maybe_seen()
        self.world.path("a").write_bytes(b"")
        if "a" in self.halves:
            self.halves["a.1"] = self.halves.pop("a")
        if self.rng.random() < 0.5:
            self.append("a")
        self.look()

    def copytruncate_unseen(self) -> None:
        """Run copytruncate completely while a scan goes from one name to the next."""
        world, original, copy = self.world, self.world.path("a"), self.world.path("a.1")
        if not original.exists():
            return
        self.make_room()
        self.look()
        if b"\n" not in original.read_bytes():
            return
        moments = []
        if self.rng.random() < 0.5:
            copy.write_bytes(original.read_bytes()[: self.rng.randrange(9000)])
        moments.append(world.walker.scan())
        if self.rng.random() < 0.5:
            self.append("a")
        copy.write_bytes(original.read_bytes())
        moments.append(world.walker.scan())
        original.write_bytes(b"")
        if "a" in self.halves:
            self.halves["a.1"] = self.halves.pop("a")
        if self.rng.random() < 0.5:
            self.append("a")
        moments.append(world.walker.scan())
        seen = [self.rng.choice(moments) for _ in range(2)]
        names = [one for one in moments[-1].seen if one.path not in (str(original), str(copy))]
        for path, scan in zip((original, copy), seen, strict=True):
            names += [one for one in scan.seen if one.path == str(path)]
        scan = replace(moments[-1], seen=tuple(names))
        world.feeder.wake(world.feeder.reader.judge(scan, world.now_ms))
        if self.rng.random() < 0.5:
            world.read()
        if self.rng.random() < 0.2:
            self.kill()
        self.look()

    def mount_anew(self) -> None:
        """Mount the file system again under another device number, perhaps after a while."""
        if self.halves:
            return
        self.look()
        self.world.quiet()
        device = self.rng.randrange(1, 99)
        for known in self.world.registry.generations.values():
            known.file = FileId(device, known.file.inode)
            handle = self.world.handles.get(known.name)
            if handle is not None:
                handle.file = known.file
        away = self.world.folder.with_name("away")
        self.world.folder.rename(away)
        for _ in range(self.rng.randint(0, 2)):
            self.world.scan()
            self.world.read()
            self.world.now_ms += self.rng.choice((100, DRAIN_QUIET_MS))
        away.rename(self.world.folder)
        self.look()

    def compress(self) -> None:
        """Compress a rotated file. A scan can see a partial archive, or both files."""
        names = [
            name
            for name in self.names()
            if name.startswith("a.")
            and name not in self.halves
            and not self.world.path(f"{name}.gz").exists()
        ]
        name = self.rng.choice(names or ["a.1"])
        if names and self.rng.random() < 0.5:
            self.append(name)
        data = self.world.path(name).read_bytes() if names else b""
        # With fewer bytes only its name shows that an archive is a copy, so scan the file first.
        is_read_too_little = 0 < self.position(name) < JOINING_BYTES_MIN
        if self.rng.random() < 0.6 or len(data) < JOINING_BYTES_MIN or is_read_too_little:
            self.look()
        if not data:
            return
        packed = gzip.compress(data)
        for size in (self.rng.randrange(len(packed)), len(packed)):
            self.world.path(f"{name}.gz").write_bytes(packed[:size])
            self.maybe_seen()
        if self.rng.random() < 0.3:
            # The kill closes the handle, so unread lines are only in the archive.
            self.kill()
        self.world.path(name).unlink()
        if self.rng.random() < 0.5:
            self.look_while_written()
        self.look()

    def position(self, name: str) -> int:
        """Return the position up to which the collector has read the file that has this name."""
        path = self.world.path(name)
        inode = path.stat().st_ino if path.exists() else None
        known = self.world.registry.generations.values()
        return max(
            (one.position for one in known if one.file.inode == inode and not one.state.has_ended),
            default=0,
        )

    def maybe_seen(self) -> None:
        """At random, let the collector scan, or kill it."""
        if self.rng.random() < 0.4:
            self.world.scan()
            self.world.read()
        if self.rng.random() < 0.1:
            self.kill()

    def move(self, old: str, new: str) -> None:
        # Scan before a name is taken over, so that no file is lost unseen.
        if self.world.path(new).exists():
            self.look()
            self.close(new)
        self.world.move(old, new)
        if old in self.halves:
            self.halves[new] = self.halves.pop(old)

    def delete(self) -> None:
        self.look()
        name = self.pick()
        if self.world.path(name).exists():
            self.world.path(name).unlink()
            self.close(name)
            self.look()

    def truncate(self) -> None:
        self.look()
        name = self.pick()
        if self.world.path(name).exists():
            self.halves.pop(name, None)
            self.world.path(name).write_bytes(b"")
            if self.rng.random() < 0.5:
                self.append(name)

    def replace(self) -> None:
        self.look()
        name = self.pick()
        lines = self.world.new_lines(self.rng.randint(1, 30))
        self.world.path("x.off").write_bytes(lines)
        if self.world.path(name).exists():
            self.close(name)
        self.world.move("x.off", name)
        self.unsent += lines.split(b"\n")[:-1]

    def zip(self) -> None:
        self.next_file += 1
        lines = self.world.new_lines(self.rng.randint(1, 50))
        self.world.path(f"b{self.next_file}.gz").write_bytes(gzip.compress(lines))
        self.unsent += lines.split(b"\n")[:-1]

    def restart(self) -> None:
        self.look()
        self.world.quiet()
        self.world.down()
        self.world.up()

    def look_in_part(self) -> None:
        self.world.scan()
        for _ in range(self.rng.randint(0, 3)):
            self.world.feeder.step(self.world.now_ms)
            self.world.send()

    def kill(self) -> None:
        self.was_killed = True
        if self.rng.random() < 0.7:
            self.look_in_part()
        self.world.kill()
        self.world.up()

    def abort(self) -> None:
        self.look_in_part()
        self.world.abort()
        self.look()

    def start_over(self) -> None:
        self.look_in_part()
        self.world.start_over()
        self.look()

    def start_over_without_a_file(self) -> None:
        """Delete or replace a file while a transaction with its lines is open, then start over."""
        self.look()
        world, path = self.world, self.world.path(self.pick())
        if path.name in self.halves or not path.exists():
            return
        self.append(path.name)
        self.look_in_part()
        world.feeder.step(world.now_ms)
        known = world.registry.at_path(str(path))
        if known is None or world.handles.get(known.name) is None:
            # The collector opens a possible copy that is empty only when it knows the original.
            return
        way = self.rng.choice(("delete", "move", "rewrite"))
        if way == "move":
            path.rename(path.with_name(f"gone{world.now_ms}.off"))
        elif way == "delete" or path.name != "a":
            path.unlink()
        else:
            self.make_room()
            world.path("a.1").write_bytes(path.read_bytes())
            path.write_bytes(b"")
            self.append("a")
        for _ in range(self.rng.randint(0, 4)):
            self.look_in_part()
            world.now_ms += self.rng.choice((100, DRAIN_QUIET_MS))
        self.start_over()
        world.quiet()

    def write_over_nuls(self) -> None:
        """Preallocate a file, write its lines in parts, and then truncate it to their size."""
        path = self.world.path(self.pick())
        if path.name in self.halves or not path.exists():
            return
        # Without a read byte, the collector could not tell the file from a copy of another.
        self.look()
        end = path.stat().st_size
        lines = self.world.new_lines(self.rng.randint(1, 30))
        with path.open("r+b") as file:
            file.truncate(end + len(lines) + self.rng.choice((0, 100, 9000, 2 << 20)))
            self.maybe_seen()
            for begin in range(0, len(lines), piece := self.rng.choice((70, 450, 5000))):
                file.seek(end + begin)
                file.write(lines[begin : begin + piece])
                file.flush()
                if self.rng.random() < 0.3:
                    self.maybe_seen()
            if self.rng.random() < 0.5:
                self.world.look()
            file.truncate(end + len(lines))
        self.unsent += lines.split(b"\n")[:-1]
        self.look()

    def leave_a_hole(self) -> None:
        """Write NULs that stay in the file, as after a power cut."""
        name = self.pick()
        if name in self.halves or not self.world.path(name).exists():
            return
        self.look()
        self.world.append(name, bytes(self.rng.choice((1, 64, 5000))))
        self.maybe_seen()
        self.append(name)
        self.look()

    def rewrite_open_line(self) -> None:
        """Replace the unfinished last line by complete lines, which can be shorter."""
        self.look()
        halves = [name for name in self.halves if self.world.path(name).exists()]
        if not halves:
            return
        name = self.rng.choice(sorted(halves))
        data = self.world.path(name).read_bytes()
        with self.world.path(name).open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)
        del self.halves[name]
        if self.rng.random() < 0.3:
            self.maybe_seen()
        self.append(name)
        self.look()

    def trim(self) -> None:
        """Trim the log to its last lines, long enough to be found by their hash after a restart."""
        name = self.pick()
        path = self.world.path(name)
        if name in self.halves or not path.exists():
            return
        self.look()
        lines = path.read_bytes().splitlines(keepends=True)
        if len(lines) < 2 * TRIMMED_LINES_MIN or b"\0" in lines[-1]:
            return
        kept = b"".join(lines[-self.rng.randrange(TRIMMED_LINES_MIN, len(lines)) :])
        if self.rng.random() < 0.5:
            path.write_bytes(kept)
        else:
            self.world.path("x.off").write_bytes(kept)
            self.world.move("x.off", name)
        if self.rng.random() < 0.5:
            self.append(name)
        self.maybe_seen()
        self.look()

    def look(self) -> None:
        if self.rng.random() < WRITTEN_MEANWHILE:
            self.look_while_written()
        self.world.look()
        # An archive above NEW_BYTES waits for the stream, because another file has live lines.
        for _ in range(STREAM_ROUNDS):
            if not self.world.feeder.held_files:
                break
            self.waits_for_stream += 1
            self.world.tell_progress(len(self.world.lines))
            self.world.look()
        assert not self.world.feeder.held_files
        self.expected += self.unsent
        self.unsent = []

    def look_while_written(self) -> None:
        """Append lines between the collector's steps, for example while it compares an archive."""
        turns = self.rng.randint(1, 12) if self.world.path("a").exists() else 0
        for _ in range(turns):
            self.append("a")
            self.world.scan()
            self.world.feeder.step(self.world.now_ms)
            self.world.send()

    def close(self, name: str) -> None:
        """Expect the unfinished line of a deleted file, because the collector sends it."""
        half = self.halves.pop(name, None)
        if half is not None:
            self.expected.append(half)

    def run(self) -> None:
        steps: list[Callable[[], None]] = [
            self.append, self.append, self.append, self.half, self.create, self.rotate, self.delete,
            self.truncate, self.replace, self.zip, self.look, self.look, self.restart, self.kill,
            self.abort, self.start_over, self.copytruncate, self.copytruncate, self.compress,
            self.copytruncate_unseen, self.mount_anew, self.start_over_without_a_file,
            self.write_over_nuls, self.leave_a_hole, self.rewrite_open_line, self.trim,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.rng.choice(steps)()
        self.look()
        # After COPY_QUIET_MS, a copy that still has a whole original counts as an independent file.
        self.world.now_ms += COPY_QUIET_MS
        self.world.quiet()
        self.look()
        assert self.complete(self.world.lines) == self.complete(self.expected)
        assert self.was_killed or sorted(self.world.lines) == sorted(self.expected)
        self.check_order()

    @staticmethod
    def complete(lines: list[bytes]) -> list[bytes]:
        """Return only the lines of full length, sorted. Unfinished lines are shorter."""
        return sorted(line for line in lines if len(line) >= LINE_LENGTH)

    def check_order(self) -> None:
        world = self.world
        last: dict[str, int] = defaultdict(int)
        keys: dict[str, set[bytes | None]] = defaultdict(set)
        for owner, key in zip(world.owners, world.keys, strict=True):
            keys[owner].add(key)
        for owner, record in world.records:
            # An event that a rotation split begins with lines of the file before.
            line = record.rpartition(b"\n")[2]
            if not line.startswith(b"h"):  # unfinished lines have no number
                assert int(line) > last[owner]
                last[owner] = int(line)
        assert all(len(found) == 1 for found in keys.values())
        if world.inputs[0].template is not None:
            named = [f"t.{(key or b'').decode()}" for key in world.keys]
            assert [topic for topic, _ in world.sent] == named


def run_one(folder: Path, index: int, number: int, **keys: Any) -> Program:
    program = Program(folder / "w", random.Random(number * 1000 + index), **keys)
    with pytest.MonkeyPatch.context() as patched:
        # With LIVE_TURNS = 1, a file's turn comes as late as with hundreds of files.
        patched.setattr("collector.feeder.LIVE_TURNS", program.rng.choice((1, LIVE_TURNS)))
        try:
            program.run()
        except AssertionError as error:
            raise AssertionError(f"MILLRACE_SEED={number} index {index}: {error}") from error
        finally:
            program.world.handles.close_all()
    return program


def run_some(folder: Path, first: int, kind: str) -> None:
    for index in range(first, first + IN_ONE):
        one = folder / str(index)
        one.mkdir()
        run_one(one, index, seed(), **KINDS[kind])
        shutil.rmtree(one)


def test_39_an_archive_that_waits_for_the_stream_is_read(tmp_path: Path) -> None:
    assert run_one(tmp_path, 1052, 3754972461).waits_for_stream


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", range(0, PROGRAMS, IN_ONE))
def test_39_random_programs_give_what_the_model_says(tmp_path: Path, first: int, kind: str) -> None:
    run_some(tmp_path, first, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", range(PROGRAMS, MANY_PROGRAMS, IN_ONE))
def test_39_many_random_programs(tmp_path: Path, first: int, kind: str) -> None:
    run_some(tmp_path, first, kind)
