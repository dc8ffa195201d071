"""The inputs and metrics without faults of a configuration with faults. Spark can check them in
spite of the faults.

This module is pure. Inputs and metrics are independent of each other, so a fault in one of them
says nothing about the others. The sound part of a configuration has all inputs and metrics except
those that have faults, and those metrics that read an input with faults.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from appliance.config.document import Document
from appliance.config.faults import ConfigFaults, Path
from appliance.config.model import MillConfig
from stream.config.settings import StreamSection


@dataclass(frozen=True, slots=True)
class SoundRest:
    """The part of a configuration whose inputs and metrics have no faults that can be found without
    Spark.

    `places` has, for each metric in this part, its index in the file.
    """

    config: MillConfig
    places: tuple[int, ...]

    def path_in_file(self, path: Path) -> Path:
        """Return the path in the file for a path in this part, in which metrics have other
        indices."""
        if path[:2] == ("stream", "metrics") and len(path) > 2 and isinstance(path[2], int):
            return (*path[:2], self.places[path[2]], *path[3:])
        return path


class FaultyConfig(ConfigFaults):
    """A configuration with faults, and its sound part; None if that part has nothing to check."""

    def __init__(self, document: Document, rest: SoundRest | None) -> None:
        super().__init__(document.faults)
        self.document = document
        self.rest = rest


def sound_rest(
    given: Mapping[str, object], config: MillConfig, faulty: Collection[Path]
) -> SoundRest | None:
    """Return the sound part of a file's values; None if it has no metrics.

    `config` is the configuration without the values that have faults. `faulty` has the paths of all
    faults.
    """
    stream = given.get("stream")
    if not isinstance(stream, Mapping):
        return None
    inputs, metrics = stream.get("from") or {}, stream.get("metrics") or []
    if not isinstance(inputs, Mapping) or not isinstance(metrics, list):
        return None
    in_stream = [path[1:] for path in faulty if path[:1] == ("stream",) and path[1:]]
    bad_keys = {path[0] for path in in_stream} - {"from", "metrics"}
    bad_inputs = {path[1] for path in in_stream if path[0] == "from" and len(path) > 1}
    bad_metrics = {path[1] for path in in_stream if path[0] == "metrics" and len(path) > 1}
    places = tuple(
        index
        for index, metric in enumerate(metrics)
        if index not in bad_metrics and not bad_inputs & _read_by(metric)
    )
    values = {
        **{key: value for key, value in stream.items() if key not in bad_keys},
        "from": {name: value for name, value in inputs.items() if name not in bad_inputs},
        "metrics": [metrics[index] for index in places],
    }
    try:
        section = StreamSection.model_validate(values)
    except ValidationError:
        return None
    return SoundRest(config.model_copy(update={"stream": section}), places) if places else None


def _read_by(metric: object) -> set[object]:
    """Return the names of the inputs that a metric reads."""
    names = metric.get("from") if isinstance(metric, Mapping) else None
    listed = names if isinstance(names, list) else [names]
    return {name for name in listed if isinstance(name, str)}
