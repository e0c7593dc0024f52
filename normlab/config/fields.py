"""The dotted names of a run's fields, and one value checked against one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from normlab.catalogue import CATALOGUES
from normlab.catalogue.lists import suggest
from normlab.config.schema import NAMED, OPTIONS, RunSpec

# Fields by the names that they had before, and where what they set is said now.
FORMER = {
    "norm_eps": "model.norm_options.eps",
    "dyt_alpha": "model.norm_options.alpha",
    "init_std": "model.init_options.std",
}


@cache
def run_fields() -> dict[str, FieldInfo]:
    """Every field of a run that an axis may vary, by dotted name, in order; the seed has its own key in a study."""
    names = leaf_fields(RunSpec)
    del names["seed"]
    return names


def option_fields() -> dict[str, dict[str, FieldInfo]]:
    """Every option of an entry that an axis may vary, by dotted name: the field of each entry that has it."""
    found: dict[str, dict[str, FieldInfo]] = {}
    for path, chooser in OPTIONS.items():
        for name, entry in CATALOGUES[NAMED[chooser]].items():
            for option, field in entry.Options.model_fields.items():
                found.setdefault(f"{path}.{option}", {})[name] = field
    return found


def is_field(name: str) -> bool:
    """Whether a dotted name is that of a field of a run, or of an option of an entry."""
    return name in run_fields() or name in option_fields()


def leaf_fields(node: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """The leaves below a node of the tree by dotted name, in order."""
    leaves: dict[str, FieldInfo] = {}
    for name, field in node.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            leaves |= leaf_fields(field.annotation, f"{prefix}{name}.")
        else:
            leaves[f"{prefix}{name}"] = field
    return leaves


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return _type_of(run_fields()[name])


def _type_of(field: FieldInfo) -> TypeAdapter[Any]:
    strict = ConfigDict(strict=True, allow_inf_nan=False)
    annotated: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotated, config=strict)


def read_field(name: str, value: Any) -> Any:
    """`value` as the field `name` keeps it (1 becomes 1.0 in a float field); pydantic's ValidationError if illegal.
    An option must be legal for one of the entries that have it."""
    if name in run_fields():
        return _adapter(name).validate_python(value)
    *others, last = option_fields()[name].values()
    for field in others:
        with suppress(ValidationError):
            return _type_of(field).validate_python(value)
    return _type_of(last).validate_python(value)


def set_fields(data: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a dumped RunSpec with dotted settings put in."""
    changed = _copied(data)
    for name, value in settings.items():
        *path, field = name.split(".")
        node = changed
        for part in path:
            node = node[part]
        node[field] = value
    return changed


def _copied(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in data.items()}


def hint(name: str, others: Sequence[str] = ()) -> str:
    """`; did you mean 'optim.lr'?` for a name that is no field of a run; also finds the section of a bare `lr`."""
    if name.removeprefix("base.") == "seed":
        return "; did you mean 'seeds'?"
    if name.split(".")[-1] in FORMER:
        return f"; it is called '{FORMER[name.split('.')[-1]]}' now"
    names = [*run_fields(), *option_fields()]
    same_leaf = [known for known in names if known.split(".")[-1] == name.split(".")[-1]]
    if name not in same_leaf and len(same_leaf) == 1:
        return f"; did you mean '{same_leaf[0]}'?"
    return suggest(name, [*names, *others])
