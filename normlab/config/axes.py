"""The axes of a study: `optim.lr: [1e-4, 1e-3]`, or a plain name over variants that set several fields together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from normlab.config.fields import hint, is_field, read_field
from normlab.config.plan import cells, name_point
from normlab.config.scalars import show
from normlab.config.schema import Axis, Point, RunSpec
from normlab.config.source import Keys, Source, Unread, describe
from normlab.config.validate import broken_rule, phrase

_SECTIONS = tuple(RunSpec.model_fields)


def read_axes(data: Any, source: Source) -> tuple[Axis, ...]:
    """All axes that can be read; whatever is wrong with the others is reported to `source`."""
    if isinstance(data, Unread):
        return ()
    if not isinstance(data, dict):
        what = f"expected names with lists of values, got {describe(data)}"
        source.report(source.place(("axes",)), f"axes: {what}: give it keys or remove it")
        return ()
    axes = [axis for name, values in data.items() if (axis := _read_axis(name, values, source))]
    owner: dict[str, str] = {}
    for axis in axes:
        for field in dict.fromkeys(field for point in axis.points for field in point.settings):
            if field in owner:
                place = source.place(("axes", axis.name), key=True)
                name = f"{field}: " if field == axis.name else f"{axis.name}: {field}: "
                source.report(place, f"{name}set by axis '{owner[field]}' too: drop one")
            owner[field] = axis.name
    return tuple(axes)


def _read_axis(name: str, values: Any, source: Source) -> Axis | None:
    path: Keys = ("axes", name)
    if isinstance(values, Unread):
        return None
    if problem := _name_problem(name, values):
        source.report(source.place(path, key=True), f"{name}: {problem}")
        return None
    if "." in name and not isinstance(values, list):
        mend = f": write [{show(values)}]" if isinstance(values, (str, int, float)) else ""
        mend = "; named variants stand under a name without a dot" if isinstance(values, dict) else mend
        source.report(source.place(path), f"{name}: expected a list of values, got {describe(values)}{mend}")
        return None
    if not values:
        source.report(source.place(path), f"{name}: expected at least one value, got none: remove the axis")
        return None
    points = _values(name, values, source) if "." in name else _variants(name, values, source)
    return Axis(name=name, points=tuple(points)) if points else None


def _name_problem(name: str, values: Any) -> str | None:
    if name in ("seed", "seeds"):
        return "seeds are no axis: set 'seeds: 0-4' at the top of the study"
    if "." in name:
        return None if is_field(name) else f"no field of a run{hint(name)}"
    if name in _SECTIONS or not isinstance(values, dict):
        mend = f"; write 'axes: {{{name}.<field>: [...]}}'" if name in _SECTIONS else hint(name)
        return f"expected a dotted field, or a name over named variants{mend}"
    return None if name.strip() == name != "" else "expected a name"


def _values(name: str, values: list[Any], source: Source) -> Iterable[Point]:
    points: dict[str, Point] = {}
    for index, raw in enumerate(values):
        path: Keys = ("axes", name, index)
        settings = _settings({name: (raw, path)}, name, source)
        if not settings:
            continue
        point = Point(label=show(settings[name]), settings=settings)
        if point.label in points:
            source.report(source.place(path), f"{name}: {point.label} is given twice")
        points[point.label] = point
    return points.values()


def _variants(name: str, variants: dict[str, Any], source: Source) -> Iterable[Point]:
    points: list[Point] = []
    for label, fields in variants.items():
        path: Keys = ("axes", name, label)
        where = f"{name} '{label}'"
        if not isinstance(fields, dict):
            if not isinstance(fields, Unread):
                what = f"expected fields to set, such as {{optim.lr: 1e-3}}, got {describe(fields)}"
                source.report(source.place(path), f"{where}: {what}")
            continue
        if not label.strip():
            source.report(source.place(path, key=True), f"{where}: expected a label")
        unknown = [field for field in fields if not is_field(field)]
        for field in unknown:
            seeds = field in ("seed", "seeds")
            text = "seeds are set at the top of the study" if seeds else f"no field of a run{hint(field)}"
            source.report(source.place((*path, field), key=True), f"{where}: {field}: {text}")
        known = {field: (raw, (*path, field)) for field, raw in fields.items() if field not in unknown}
        points.append(Point(label=label, settings=_settings(known, where, source)))
    return points


def _settings(raw: dict[str, tuple[Any, Keys]], where: str, source: Source) -> dict[str, Any]:
    """The legal ones of the given settings, as their fields keep them; the others are reported."""
    settings = {}
    for field, (value, path) in raw.items():
        try:
            settings[field] = read_field(field, value)
        except ValidationError as error:
            if not isinstance(value, Unread):
                name = where if where == field else f"{where}: {field}"
                source.report(source.place(path), f"{name}: {phrase(error.errors(include_url=False)[0])}")
    return settings


def check_grid(base: RunSpec, axes: tuple[Axis, ...], source: Source) -> None:
    """Report what is wrong with whole points of the grid, each problem once, at the axis value nearest to it."""
    seen = set[tuple[Keys, str]]()
    for points, spec in cells(base, axes):
        if isinstance(spec, RunSpec):
            continue
        for found in spec.errors(include_url=False):
            rule, section = broken_rule(found), ".".join(map(str, found["loc"]))
            names = [f"{section}.{field}".lstrip(".") for field in rule.fields] if rule else [section]
            message = rule.message if rule else phrase(found)
            path = _nearest(axes, points, names)
            if (path, message) not in seen:
                seen.add((path, message))
                at = name_point(axes, points)
                source.report(source.place(path), f"{names[0]}: {message} (at {at})")
            if len(seen) >= 20:
                return


def _nearest(axes: tuple[Axis, ...], points: tuple[Point, ...], names: list[str]) -> Keys:
    """Path of the axis value that sets the first of the fields that any axis sets."""
    for name in names:
        for axis, point in zip(axes, points, strict=True):
            if name in point.settings:
                if axis.name == name:
                    return ("axes", name, axis.points.index(point))
                return ("axes", axis.name, point.label, name)
    return ("axes", axes[0].name)
