"""The sound rest of a configuration with faults: what Spark can check in spite of them.

This module is pure. Inputs and metrics are independent of each other, so a fault in one of them
says nothing about the others. The rest is the configuration without the inputs and metrics that
have faults, and without the metrics that read such an input.
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
    """A configuration whose inputs and metrics have no faults that we can find without Spark.

    `places` has the index in the file of each metric that is left.
    """

    config: MillConfig
    places: tuple[int, ...]

    def path_in_file(self, path: Path) -> Path:
        """Return the path in the file of a key of the rest."""
        if path[:2] == ("stream", "metrics") and len(path) > 2 and isinstance(path[2], int):
            return (*path[:2], self.places[path[2]], *path[3:])
        return path


class FaultyConfig(ConfigFaults):
    """A configuration with faults, and its sound rest; None if nothing is left to check."""

    def __init__(self, document: Document, rest: SoundRest | None) -> None:
        super().__init__(document.faults)
        self.document = document
        self.rest = rest


def sound_rest(
    given: Mapping[str, object], config: MillConfig, faulty: Collection[Path]
) -> SoundRest | None:
    """Return the sound rest of a file's values; None if no metric is left.

    `config` has no values with faults. `faulty` are the paths of all faults.
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
