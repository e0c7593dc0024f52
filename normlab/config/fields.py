"""The dotted names of a run's fields, and one value checked against one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.fields import FieldInfo

from normlab.config.names import suggest
from normlab.config.schema import RunSpec


@cache
def run_fields() -> dict[str, FieldInfo]:
    """Every field of a run that an axis may vary, by dotted name, in order; the seed has its own key in a study."""
    names = leaf_fields(RunSpec)
    del names["seed"]
    return names


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
    field = run_fields()[name]
    strict = ConfigDict(strict=True, allow_inf_nan=False)
    annotated: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotated, config=strict)


def read_field(name: str, value: Any) -> Any:
    """`value` as the field `name` keeps it (1 becomes 1.0 in a float field); pydantic's ValidationError if illegal."""
    return _adapter(name).validate_python(value)


def set_fields(data: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a dumped RunSpec with dotted settings put in."""
    changed = {key: dict(value) if isinstance(value, Mapping) else value for key, value in data.items()}
    for name, value in settings.items():
        section, field = name.split(".")
        changed[section][field] = value
    return changed


def hint(name: str, others: Sequence[str] = ()) -> str:
    """`; did you mean 'optim.lr'?` for a name that is no field of a run; also finds the section of a bare `lr`."""
    if name.removeprefix("base.") == "seed":
        return "; did you mean 'seeds'?"
    same_leaf = [known for known in run_fields() if known.split(".")[-1] == name.split(".")[-1]]
    if name not in same_leaf and len(same_leaf) == 1:
        return f"; did you mean '{same_leaf[0]}'?"
    return suggest(name, [*run_fields(), *others])
