"""Overrides from the command line, `a.b=v` with commas for lists, laid over what the file says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from normlab.catalogue.lists import suggest
from normlab.config.errors import ConfigError
from normlab.config.fields import hint, is_field, leaf_fields, option_fields, run_fields
from normlab.config.scalars import show
from normlab.config.schema import Outputs, Thresholds
from normlab.config.source import Keys, Place, Source, parse

# Behind every line that a file can have, so that these problems are told last.
OVERRIDE_LINE = 10**9
_TEXTS = ("name", "question")


def apply_overrides(
    source: Source, overrides: Sequence[str], seeds: str | None, import_plugins: Callable[[Source], None]
) -> None:
    """Lay overrides and the option `--seeds` over the source's data; faults are reported to the source. Those of the
    plugins come first, and `import_plugins` after them: an override may set an option of a user's entry."""
    seen: dict[str, str] = {}
    names = [override.partition("=")[0].strip() for override in overrides]
    first = [index for index, name in enumerate(names) if name == "plugins"]
    _lay(source, overrides, first, seen)
    import_plugins(source)
    _lay(source, overrides, [index for index in range(len(overrides)) if index not in first], seen)
    if seeds is not None:
        place = Place(OVERRIDE_LINE, len(overrides), f"option '--seeds {seeds}'")
        _put(source, ("seeds",), seeds, place)


def _lay(source: Source, overrides: Sequence[str], indices: Sequence[int], seen: dict[str, str]) -> None:
    for index in indices:
        override = overrides[index]
        place = Place(OVERRIDE_LINE, index, f"override '{override}'")
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not key:
            source.report(place, "expected key=value, such as optim.lr=1e-3 or optim.lr=1e-4,1e-3")
        elif key in seen:
            source.report(place, f"{key}: set by '{seen[key]}' already: use commas for several values")
        else:
            seen[key] = override
            try:
                _apply(source, key, text, place)
            except ValueError as error:
                source.report(place, f"{key}: {error}")


def _apply(source: Source, key: str, text: str, place: Place) -> None:
    axes = source.data.get("axes")
    axes = axes if isinstance(axes, dict) else {}
    sections = {f"thresholds.{name}": False for name in leaf_fields(Thresholds)}
    sections |= {f"outputs.{name}": name in ("steps", "reach") for name in leaf_fields(Outputs)}
    if key in _TEXTS:
        _put(source, (key,), text, place)
    elif key == "seeds":
        _put(source, ("seeds",), text, place)
    elif key == "plugins":
        _put(source, ("plugins",), _values(text), place)
    elif key in sections:
        values = _values(text)
        single = len(values) == 1 and not sections[key]
        _put(source, tuple(key.split(".")), values[0] if single else values, place)
    elif isinstance(axes.get(key), dict):
        _choose_variants(source, key, axes[key], text, place)
    elif is_field(key):
        _set_field(source, key, _values(text), axes, place)
    else:
        raise ValueError(f"unknown key{_hint(key, [*sections, *axes, 'seeds', *_TEXTS, 'plugins'])}")


def _set_field(source: Source, key: str, values: list[Any], axes: dict[str, Any], place: Place) -> None:
    if key in axes or len(values) > 1:
        _put(source, ("axes", key), values, place)
        return
    for name, variants in axes.items():
        points = variants.values() if isinstance(variants, dict) else []
        if points and all(isinstance(fields, dict) and key in fields for fields in points):
            mend = f"choose variants instead, {name}={next(iter(variants))}"
            raise ValueError(f"every variant of axis '{name}' sets it: {mend}")
    _put(source, ("base", *key.split(".")), values[0], place)


def _choose_variants(source: Source, name: str, variants: dict[str, Any], text: str, place: Place) -> None:
    labels = [text] if text in variants else [show(value) for value in _values(text)]
    for label in labels:
        if label not in variants:
            near = suggest(label, list(variants)) or f"; known: {', '.join(variants)}"
            raise ValueError(f"no variant '{label}'{near}")
    if len(set(labels)) < len(labels):
        raise ValueError("a variant is given twice")
    source.data["axes"][name] = {label: variants[label] for label in labels}


def _values(text: str) -> list[Any]:
    """The values of an override, read like those of a YAML list; the brackets of one may be written."""
    try:
        inner = parse(f"v: [{text}\n]", "")
        inner.raise_problems()
    except ConfigError as error:
        what = error.problems[0].partition(": ")[2].removeprefix("v: ")
        raise ValueError(what.replace("not YAML: ", "cannot be read: ")) from None
    values = inner.data["v"]
    if list(inner.data) != ["v"] or not isinstance(values, list):
        raise ValueError("expected a value, or several with commas between")
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if not values:
        raise ValueError("no value given: null stands for none")
    return values


def _hint(key: str, others: list[str]) -> str:
    stripped = key.lstrip("+~").removeprefix("base.").removeprefix("axes.")
    if stripped != key and (is_field(stripped) or stripped in others):
        return f"; did you mean '{stripped}'?"
    fields = [name for name in (*run_fields(), *option_fields(), *others) if name.startswith(f"{key}.")]
    return f"; set its fields, as in {fields[0]}=..." if fields else hint(key, others)


def _put(source: Source, path: Keys, value: Any, place: Place) -> None:
    node: Any = source.data
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            return
    node[path[-1]] = value
    for places in (source.keys, source.values):
        for inner in [known for known in places if known[: len(path)] == path]:
            del places[inner]
        places[path] = place
