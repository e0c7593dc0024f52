"""A study as resolved YAML, every default written out, and two studies compared key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from normlab.config.scalars import quote, show
from normlab.config.schema import Axis, Study


def study_yaml(study: Study) -> str:
    """The study in the format of the config files; it loads back to an equal Study."""
    base = study.base.model_dump()
    del base["seed"]
    lines = [f"name: {_name(study.name)}", f"question: {quote(study.question)}", "base:", *_mapping(base, 1)]
    if study.axes:
        lines += ["axes:", *(line for axis in study.axes for line in _axis(axis))]
    lines.append(f"seeds: {_list(study.seeds)}")
    lines += ["thresholds:", *_mapping(study.thresholds.model_dump(), 1)]
    lines += ["outputs:", *_mapping(study.outputs.model_dump(), 1)]
    if study.plugins:
        lines.append(f"plugins: {_list(study.plugins)}")
    return "\n".join(lines) + "\n"


def _name(name: str) -> str:
    return quote(name) if name[0].isalpha() else f'"{name}"'


def _mapping(data: Mapping[str, Any], level: int) -> Iterator[str]:
    indent = "  " * level
    for key, value in data.items():
        if value == {}:
            continue
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _mapping(value, level + 1)
        else:
            yield f"{indent}{key}: {_list(value) if isinstance(value, tuple) else quote(value)}"


def _axis(axis: Axis) -> Iterator[str]:
    if "." in axis.name:
        yield f"  {axis.name}: {_list([point.settings[axis.name] for point in axis.points])}"
        return
    yield f"  {quote(axis.name)}:"
    for point in axis.points:
        settings = ", ".join(f"{field}: {quote(value)}" for field, value in point.settings.items())
        yield f"    {quote(point.label)}: {{{settings}}}"


def _list(values: Any) -> str:
    return "[" + ", ".join(quote(value) for value in values) + "]"


def diff_studies(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Lines `key: old -> new` for every dotted key that differs between two dumps, `study.model_dump(mode="json")`."""
    before, after = _flat(old), _flat(new)
    keys = [*before, *(key for key in after if key not in before)]
    absent = "(absent)"
    return [
        f"{key}: {before.get(key, absent)} -> {after.get(key, absent)}"
        for key in keys
        if before.get(key, absent) != after.get(key, absent)
    ]


def _flat(study: Mapping[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in study.items():
        if key == "axes":
            for axis in value:
                flat |= _flat_axis(axis)
        else:
            flat |= _leaves(key, value)
    # The base run is what dotted names speak of everywhere else.
    return {key.removeprefix("base."): value for key, value in flat.items()}


def _flat_axis(axis: Mapping[str, Any]) -> dict[str, str]:
    name, points = f"axes.{axis['name']}", axis["points"]
    if "." in axis["name"]:
        return {name: _list([point["settings"][axis["name"]] for point in points])}
    flat = {name: _list([point["label"] for point in points])}
    for point in points:
        flat |= _leaves(f"{name}.{point['label']}", point["settings"])
    return flat


def _leaves(key: str, value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {k: text for inner, item in value.items() for k, text in _leaves(f"{key}.{inner}", item).items()}
    return {key: _list(value) if isinstance(value, (list, tuple)) else show(value)}
