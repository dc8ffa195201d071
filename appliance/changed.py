"""What differs between two configurations, for a person: inputs and metrics by name, other keys.

Pure.
"""

from collections.abc import Mapping

from pydantic import BaseModel

from appliance.config.model import MillConfig


def changed_words(started: MillConfig, wanted: MillConfig) -> list[str]:
    """One line for each thing that is not as it was; empty for none."""
    before, after = started.collector.inputs, wanted.collector.inputs
    words = _differences(
        "input",
        {f"{', '.join(one.paths)} → {one.topic}": one for one in before},
        {f"{', '.join(one.paths)} → {one.topic}": one for one in after},
    )
    words += _differences(
        "metric",
        {one.name: one for one in started.stream.metrics},
        {one.name: one for one in wanted.stream.metrics},
    )
    told = {("collector", "inputs"), ("stream", "metrics")}
    for section in MillConfig.model_fields:
        one, other = getattr(started, section), getattr(wanted, section)
        if not isinstance(one, BaseModel) or not isinstance(other, BaseModel):
            words += [] if one == other else [f"{section}: changed"]
            continue
        words += [f"{section}.{key}: changed" for key in _keys(one, other, section, told)]
    return words


def _keys(one: BaseModel, other: BaseModel, section: str, told: set[tuple[str, str]]) -> list[str]:
    return [
        field.alias or key
        for key, field in type(one).model_fields.items()
        if (section, key) not in told and getattr(one, key) != getattr(other, key)
    ]


def _differences(
    kind: str, before: Mapping[str, BaseModel], after: Mapping[str, BaseModel]
) -> list[str]:
    words = [f"{kind} {name}: added" for name in after if name not in before]
    words += [f"{kind} {name}: gone" for name in before if name not in after]
    for name in before:
        if name in after and before[name] != after[name]:
            keys = _keys(before[name], after[name], "", set())
            words.append(f"{kind} {name}: changed in {', '.join(keys)}")
    return words
