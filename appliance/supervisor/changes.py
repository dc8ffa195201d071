"""Which parts of a running mill another configuration concerns.

A part starts anew when what it would be told, or where it would listen, is not what it was told.
What the stream takes over while it runs is left out of that.
"""

from dataclasses import dataclass
from typing import Any

from appliance.launch.run import SERVERS
from appliance.mill.settings import Mill, settings_for
from stream.config.changes import LIVE_KEYS
from stream.config.settings import StreamSection


@dataclass(frozen=True, slots=True)
class Differences:
    """Names of parts, each list in the order of starting.

    `in_turn`: those of the changed ones that start anew one after the other, where they are.
    """

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    in_turn: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.removed)

    def __str__(self) -> str:
        told = (
            (
                "starts anew",
                "start anew",
                tuple(name for name in self.changed if name not in self.in_turn),
            ),
            ("starts anew", "start anew one after the other", self.in_turn),
            ("starts", "start", self.added),
            ("stops", "stop", self.removed),
        )
        return "; ".join(
            f"{', '.join(names)} {one if len(names) == 1 else many}"
            for one, many, names in told
            if names
        )


def differences(started: Mill, wanted: Mill) -> Differences:
    """What has to be done to a mill that runs as `started`. Raises InitError, as its parts do."""
    before = {part.name: part for part in started.parts}
    after = {part.name: part for part in wanted.parts}
    changed = tuple(
        name
        for name, part in after.items()
        if name in before and (part != before[name] or _told(started, name) != _told(wanted, name))
    )
    return Differences(
        changed=changed,
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        in_turn=tuple(
            name for name in changed if after[name].takes_turns and after[name] == before[name]
        ),
    )


def _told(mill: Mill, name: str) -> dict[str, Any]:
    """A part's settings but for those that it takes over while it runs."""
    if name in SERVERS:
        # Redis and MySQL are told nothing but their port.
        return {}
    settings = settings_for(mill, name)
    if name == "stream":
        live = {StreamSection.model_fields[key].alias or key for key in LIVE_KEYS}
        section = {key: value for key, value in settings["section"].items() if key not in live}
        settings = {**settings, "section": section, "reload": None, "topics": None}
    if name == "collector":
        section = {key: value for key, value in settings["section"].items() if key != "inputs"}
        settings = {**settings, "section": section, "reload": None, "topics": None}
    if name == "monitor":
        # The page describes metrics and inputs by the file of its start, and takes their numbers
        # from MySQL and the collector.
        left = ("metrics", "inputs")
        settings = {key: value for key, value in settings.items() if key not in left}
    return settings
