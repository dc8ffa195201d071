"""The state of files after the collector lost its transaction and started over with open
handles."""

from pathlib import Path

from collector.config.settings import DRAIN_QUIET_MS
from tests.unit.collector.world import World


def of_two_inputs(folder: Path) -> World:
    """Return a world with two inputs. Files `b*` belong to the second one, and their records have
    its header."""
    world = World(folder, headers={"input": "one"})
    first: dict[str, object] = {
        "paths": [f"{folder}/a*"],
        "topic": "t",
        "headers": {"input": "one"},
    }
    world.change(first, first | {"paths": [f"{folder}/b*"], "headers": {"input": "two"}})
    return world


def test_a_deleted_file_is_read_on_as_its_own_input_has_it(tmp_path: Path) -> None:
    """The file has no name any more, so its name cannot show which input it belonged to."""
    world = of_two_inputs(tmp_path)
    world.write(3, "b")
    world.look()
    world.write(3, "b")
    world.path("b").unlink()
    world.start_over()
    world.quiet()
    world.expect(6)
    assert set(world.headers) == {((b"input", b"two"),)}


def test_a_deleted_file_stays_open_until_its_last_lines_are_committed(tmp_path: Path) -> None:
    """The transaction can be lost, and then the lines must be read again."""
    world = World(tmp_path)
    world.write(3, "a")
    world.look()
    world.write(3, "a")
    world.path("a").unlink()
    for _ in range(4):
        world.scan()
        world.feeder.step(world.now_ms)
        world.send(everything=True)
        world.now_ms += DRAIN_QUIET_MS
    world.start_over()
    world.quiet()
    world.expect(6, lost_possible=0)


def test_what_is_lost_with_a_transaction_and_its_file_is_told(tmp_path: Path) -> None:
    """The file's handle was closed to free a descriptor. So the deleted file cannot be read
    again."""
    world = World(tmp_path)
    world.write(3, "a")
    world.look()
    world.write(3, "a")
    world.scan()
    world.feeder.step(world.now_ms)
    world.handles.close_all()
    world.path("a").unlink()
    world.start_over()
    world.look()
    world.expect(3, lost_possible=1)


def test_a_handle_of_the_copy_is_not_taken_for_one_of_the_file_that_was_copied(
    tmp_path: Path,
) -> None:
    """The stored checkpoint does not say yet that the file's content is continued in the copy."""
    world = World(tmp_path)
    world.write(12, "a")
    world.look()
    world.write(14, "a")
    world.scan()
    world.path("a.1").write_bytes(world.path("a").read_bytes())
    world.path("a").write_bytes(b"")
    world.write(28, "a")
    for _ in range(3):
        world.scan()
        world.feeder.step(world.now_ms)
    world.start_over()
    world.look()
    world.quiet()
    world.expect(54, lost_possible=0)
