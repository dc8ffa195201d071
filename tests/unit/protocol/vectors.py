"""Golden frames: hex with comments, in `tests/vectors`."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "vectors"


def names() -> list[str]:
    """Return the names of all vectors."""
    return sorted(path.stem for path in FOLDER.glob("*.hex"))


def load(name: str) -> bytes:
    """Return the bytes of a vector. Text behind a # is a comment."""
    lines = (FOLDER / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))
