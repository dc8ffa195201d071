"""A fault of the configuration that only Spark or Java can find."""

from dataclasses import asdict, dataclass

KeyPath = tuple[str | int, ...]
"""The path to a key in the configuration file: names of keys, and 0-based positions in lists."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the configuration: the key's path, what was found there, and what was expected.

    With `is_note` it is only advice, and does not prevent lines from being counted.
    """

    path: KeyPath
    found: str
    expected: str
    is_note: bool = False

    def __str__(self) -> str:
        key = ".".join(str(step) for step in self.path)
        return f"{key}: found {self.found}, expected {self.expected}"

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "path": list(self.path)}
