"""pydantic's findings as lines that name the place, what was expected, what came, and the likely mend."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from normlab.catalogue.lists import suggest
from normlab.config.errors import FieldError
from normlab.config.fields import FORMER, hint
from normlab.config.scalars import read_scalar, show
from normlab.config.source import Keys, Source, Unread, describe, dotted

N = TypeVar("N", bound=BaseModel)

_YES = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_BOUNDS = {"greater_than": "more than", "greater_than_equal": "at least", "less_than": "less than"}
_BOUNDS["less_than_equal"] = "at most"


def validate(node: type[N], data: dict[str, Any], source: Source, path: Keys = ()) -> N | None:
    """Build `node` from plain data and report everything that is wrong with it to `source`.

    A faulty field is dropped and the rest looked at again, so that rules between fields are checked in the same go.
    Returns what could be built without the faulty fields; None if nothing could.
    """
    work, dropped = _tuples(data), set[Keys]()
    while True:
        try:
            return node.model_validate(work)
        except ValidationError as error:
            before = len(dropped)
            for found in error.errors(include_url=False):
                involved = _involved(found)
                if not dropped & set(involved):
                    _report(found, involved, node, source, path)
                for field in involved:
                    dropped.add(field)
                    _remove(work, field, found["type"])
            if len(dropped) == before:
                return None


def _involved(found: Any) -> list[Keys]:
    """Paths of the fields that an error is about, the culprit first."""
    rule = broken_rule(found)
    return [(*found["loc"], *name.split(".")) for name in rule.fields] if rule else [found["loc"]]


def broken_rule(found: Any) -> FieldError | None:
    """The rule between fields that an entry of `ValidationError.errors()` is about, if it is about one."""
    cause = found.get("ctx", {}).get("error")
    return cause if isinstance(cause, FieldError) else None


def _remove(work: Any, field: Keys, kind: str) -> None:
    for part in field[:-1]:
        if not isinstance(work, dict) or not isinstance(work.get(part), dict):
            field = field[: field.index(part) + 1]
            break
        work = work[part]
    if isinstance(work, dict):
        work.pop(field[-1], None)
        if kind == "missing":
            work[field[-1]] = "missing"


def _report(found: Any, involved: list[Keys], node: type[BaseModel], source: Source, path: Keys) -> None:
    if isinstance(found["input"], Unread):
        return
    rule = broken_rule(found)
    if rule:
        written = [field for field in involved if source.written((*path, *field))]
        nearest = (*path, *(written or involved)[0])
        source.report(source.place(nearest), f"{dotted((*path, *involved[0]))}: {rule.message}")
        return
    where = (*path, *involved[0])
    unknown = found["type"] == "extra_forbidden"
    text = unknown_key(node, involved[0]) if unknown else phrase(found)
    source.report(source.place(where, key=unknown), f"{dotted(where)}: {text}")


def phrase(found: Any) -> str:
    """What was expected, what came, and the likely mend, for one entry of `ValidationError.errors()`."""
    kind, got, context = found["type"], found["input"], found.get("ctx", {})
    if kind in _BOUNDS:
        (bound,) = context.values()
        return f"expected {_BOUNDS[kind]} {show(bound)}, got {show(got)}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"expected one of {context['expected']}, got {describe(got)}{_near(got, context['expected'])}"
    if kind == "missing":
        return "missing: every study states its question" if found["loc"] == ("question",) else "missing"
    if kind == "string_pattern_mismatch":
        return f"expected a letter or digit, then letters, digits, '.', '_' and '-' only, got {describe(got)}"
    if kind == "too_short":
        return "expected at least one value, got an empty list"
    if kind in ("int_type", "int_from_float", "float_type", "bool_type", "string_type", "finite_number"):
        # 3e3 is a float in YAML 1.2, and `the number 3000` would not tell what is wrong with it.
        whole = kind in ("int_type", "int_from_float") and isinstance(got, float)
        return f"expected {_expected(kind)}, got {f'the float {got!r}' if whole else describe(got)}{_mend(kind, got)}"
    if kind == "tuple_type":
        single = "" if got is None or isinstance(got, Mapping) else f": write [{show(got)}]"
        return f"expected a list, got {describe(got)}{single}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        mend = ": give it keys or remove it" if got is None else ""
        return f"expected keys with values, got {describe(got)}{mend}"
    return f"{found['msg']}, got {describe(got)}"


def _expected(kind: str) -> str:
    whole, number = "a whole number", "a number"
    names = {"int_type": whole, "int_from_float": whole, "float_type": number, "finite_number": "a finite number"}
    return names.get(kind) or ("true or false" if kind == "bool_type" else "text")


def _mend(kind: str, got: Any) -> str:
    if got is None:
        return ": remove the line to keep the default" if kind != "string_type" else ": put it in quotes"
    if kind == "string_type":
        return "" if isinstance(got, (list, tuple, Mapping)) else ": put it in quotes"
    if kind == "bool_type" and isinstance(got, str) and got.lower() in _YES:
        return f": write {_YES[got.lower()]}"
    if kind in ("int_type", "int_from_float") and isinstance(got, float) and got.is_integer():
        return f": write {int(got)}"
    return _unquote(got) if isinstance(got, str) and kind != "bool_type" else ""


def _unquote(text: str) -> str:
    """The mend for a number that was written as text: `'12'`, `1_000`, `1,5`."""
    for candidate in (text, text.replace("_", "").replace(",", ""), text.strip()):
        try:
            value = read_scalar(candidate)
        except ValueError:
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return f": write {candidate} without quotes" if candidate == text else f": write {candidate}"
    return ""


def _near(got: Any, expected: str) -> str:
    return suggest(got, expected.replace(" or ", ", ").replace("'", "").split(", ")) if isinstance(got, str) else ""


def unknown_key(node: type[BaseModel], field: Keys) -> str:
    """What to say of a key that nothing reads: the nearest key of its own mapping, else its place elsewhere."""
    known = _keys_of(node, field[:-1])
    name = str(field[-1])
    section, dot, leaf = name.partition(".")
    if dot and section in known:
        return f"unknown key; write it nested, '{section}: {{{leaf}: ...}}'"
    anywhere = name in FORMER or field[0] == "base" or len(field) == 1
    near = (name not in FORMER and suggest(name, known)) or (hint(name) if anywhere else "")
    return f"unknown key{near or '; known: ' + ', '.join(known)}"


def _keys_of(node: type[BaseModel], path: Keys) -> list[str]:
    for part in path:
        inner = node.model_fields[str(part)].annotation
        assert isinstance(inner, type) and issubclass(inner, BaseModel)
        node = inner
    return list(node.model_fields)


def _tuples(value: Any) -> Any:
    """A deep copy with tuples for lists: the strict tree takes tuples, YAML gives lists."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else copy(value)
