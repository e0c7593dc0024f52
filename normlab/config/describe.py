"""The config's fields for people (a table) and for editors (JSON Schema)."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from normlab.catalogue import CATALOGUES, Entry
from normlab.config.fields import leaf_fields, option_fields, run_fields
from normlab.config.scalars import show
from normlab.config.schema import NAMED, OPTIONS, Outputs, Study, Thresholds

_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def field_table() -> str:
    """Every field of a config: dotted name, default, legal values, description; one a line, aligned."""
    rows = [("field", "default", "legal", "about")]
    rows += [_row(name, field) for name, field in run_fields().items()]
    rows += [_option_row(name, readers) for name, readers in option_fields().items()]
    rows += [_row(f"thresholds.{name}", field) for name, field in leaf_fields(Thresholds).items()]
    rows += [_row(f"outputs.{name}", field) for name, field in leaf_fields(Outputs).items()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    head = [
        "A config has the keys question, base, axes, seeds, thresholds, outputs, plugins, name (default: the file's).",
        "'base' is one run; an axis is a dotted field with a list of values, or a name over variants that set several.",
        "Seeds are a list or a range such as 0-4.",
        "",
    ]
    return "\n".join([*head, *(line.rstrip() for line in lines)])


def _row(name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    default = field.default
    shown = f"[{', '.join(map(show, default))}]" if isinstance(default, tuple) else show(default)
    return name, shown, _legal(name, field), field.description or ""


def _option_row(name: str, readers: dict[str, FieldInfo]) -> tuple[str, str, str, str]:
    """An option of several entries has the defaults of each."""
    (_, _, legal, about), *_ = (_row(name, field) for field in readers.values())
    defaults = dict.fromkeys(_row(name, field)[1] for field in readers.values())
    return name, "|".join(defaults), legal, f"{', '.join(readers)}: {about}"


def _legal(name: str, field: FieldInfo) -> str:
    if name in NAMED:
        return "|".join(CATALOGUES[NAMED[name]])
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
    if get_origin(field.annotation) is Literal:
        return "|".join(kinds)
    if get_origin(field.annotation) is tuple:
        return f"list of {_KIND[kinds[0]]}"
    limits = [(limit, key, sign) for limit in field.metadata for key, sign in _SIGNS.items() if hasattr(limit, key)]
    bounds = [f"{sign} {show(getattr(limit, key))}" for limit, key, sign in limits]
    null = " or null" if type(None) in get_args(field.annotation) else ""
    return " ".join([_KIND[kinds[0]], ", ".join(bounds)]).rstrip() + null


_KIND = {int: "int", float: "float", bool: "true|false", str: "text"}


def json_schema() -> dict[str, Any]:
    """JSON Schema of a config file (axes and seeds as they are written there, not as a Study keeps them)."""
    schema = Study.model_json_schema()
    definitions, properties = schema["$defs"], schema["properties"]
    for name in ("Axis", "Point"):
        del definitions[name]
    del definitions["RunSpec"]["properties"]["seed"]
    for dotted, kind in NAMED.items():
        section, field = dotted.split(".")
        definitions[f"{section.capitalize()}Spec"]["properties"][field]["enum"] = list(CATALOGUES[kind])
    for dotted, chooser in OPTIONS.items():
        section, field = dotted.split(".")
        entries = CATALOGUES[NAMED[chooser]].values()
        options = {name: inner for entry in entries for name, inner in _options_schema(entry).items()}
        shape = {"type": "object", "properties": options, "additionalProperties": False}
        definitions[f"{section.capitalize()}Spec"]["properties"][field] = shape
    values = {"type": "array", "minItems": 1, "uniqueItems": True}
    fields = [*run_fields(), *option_fields()]
    leaves = {"type": "object", "propertyNames": {"enum": fields}}
    properties["axes"] = {
        "type": "object",
        "properties": dict.fromkeys(fields, values),
        "additionalProperties": {"type": "object", "minProperties": 1, "additionalProperties": leaves},
        "description": "dotted field: list of values; or name: {label: {dotted field: value}}",
    }
    part = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}
    properties["seeds"] = {
        "anyOf": [{"type": "array", "items": part, "minItems": 1}, {"type": "string"}],
        "default": [0],
    }
    schema["required"] = ["question"]
    return schema


def _options_schema(entry: type[Entry]) -> dict[str, Any]:
    return entry.Options.model_json_schema(mode="validation").get("properties", {})
