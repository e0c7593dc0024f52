"""The catalogues: by kind, a name and the place of its class. To add an entry, write its class and its line here; a
user's module adds its own by assignment, `NORMS["mine"] = Mine`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, MutableMapping, Sequence
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from normlab.catalogue.entry import Options, Unknown


class Catalogue(MutableMapping[str, Any]):
    """The entries of one kind by name, in order. `singular` is what one of them is called in messages, `base` the place
    of the class that they derive from; None: they are functions."""

    def __init__(self, kind: str, singular: str, base: str | None, entries: dict[str, str]) -> None:
        self.kind, self.singular, self.base = kind, singular, base
        self._shipped = tuple(entries)
        self._entries: dict[str, Any] = dict(entries)

    def __getitem__(self, name: str) -> Any:
        entry = self._entries[name]
        if isinstance(entry, str):
            entry = self._entries[name] = found(entry)
        return entry

    def __setitem__(self, name: str, entry: Any) -> None:
        if name in self._shipped:
            raise ValueError(f"the {self.singular} '{name}' comes with normlab: choose another name")
        if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
            raise ValueError(f"{name!r} cannot name a {self.singular}: use letters, digits, '_' and '-'")
        self._check_entry(f"{self.singular} '{name}'", entry)
        self._entries[name] = entry

    def _check_entry(self, what: str, entry: Any) -> None:
        if self.base is None:
            if not callable(entry):
                raise ValueError(f"{what}: expected a function, got {entry!r}")
            return
        base = found(self.base)
        if not (isinstance(entry, type) and issubclass(entry, (base, Unknown))):
            raise ValueError(f"{what}: expected a class derived from {base.__module__}.{base.__name__}, got {entry!r}")
        check_options(what, entry.Options)

    def __delitem__(self, name: str) -> None:
        if name in self._shipped:
            raise ValueError(f"the {self.singular} '{name}' comes with normlab")
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def added(self) -> list[str]:
        """Names that a user's module registered."""
        return [name for name in self._entries if name not in self._shipped]

    def title(self, name: str) -> str:
        """What tables and legends call an entry; its name, if it has no title or is not known here."""
        return str(getattr(self[name], "title", "") or name) if name in self else name

    def check(self, name: str, also: tuple[str, ...] = ()) -> str:
        """Return `name` if it is known; raise ValueError that lists the known ones otherwise."""
        known = [*also, *self]
        if name not in known:
            raise ValueError(f"expected one of {', '.join(known)}, got '{name}'{suggest(name, known)}")
        return name


def found(place: str) -> Any:
    """What stands at `module:name` in the package."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"normlab.{module}"), attribute)


def check_options(what: str, options: Any) -> None:
    """Raise ValueError, one line, unless `options` is a tree of options with legal defaults."""
    if not (isinstance(options, type) and issubclass(options, Options)):
        raise ValueError(f"{what}: expected Options derived from normlab.catalogue.Options, got {options!r}")
    for name, field in options.model_fields.items():
        if field.is_required():
            raise ValueError(f"{what}: its option '{name}' has no default: give it one")
    try:
        hash(options.model_validate(options().all()))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise ValueError(f"{what}: the default of its option '{name}' is not legal: {first['msg']}") from None
    except TypeError as error:
        raise ValueError(f"{what}: an option must not change: {error}; use a tuple") from None


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def suggest(name: str, known: list[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


NORMS = Catalogue(
    "norms",
    "norm",
    "model.norms:Norm",
    {
        "none": "model.norms.base:Identity",
        "layernorm": "model.norms.layernorm:LayerNorm",
        "rmsnorm": "model.norms.rmsnorm:RMSNorm",
        "prmsnorm": "model.norms.rmsnorm:PartialRMSNorm",
        "crmsnorm": "model.norms.rmsnorm:CompressedRMSNorm",
        "scalenorm": "model.norms.scalenorm:ScaleNorm",
        "batchnorm": "model.norms.batchnorm:BatchNorm",
        "dyt": "model.norms.pointwise:DyT",
        "derf": "model.norms.pointwise:Derf",
        "seednorm": "model.norms.selfscaled:SeeDNorm",
        "bhyt": "model.norms.selfscaled:BHyT",
    },
)
PLACEMENTS = Catalogue(
    "placements",
    "placement",
    "model.placements:Placement",
    {
        "post": "model.placements:Post",
        "pre": "model.placements:Pre",
        "sandwich": "model.placements:Sandwich",
        "reordered": "model.placements:Reordered",
        "deepnorm": "model.placements:DeepNorm",
        "subln": "model.placements:SubLN",
        "admin": "model.placements:Admin",
        "lns": "model.placements:LNS",
        "mixln": "model.placements:MixLN",
        "rezero": "model.placements:ReZero",
        "layerscale": "model.placements:LayerScale",
        "pre-then-post": "model.placements:PreThenPost",
    },
)
MIXERS = Catalogue(
    "mixers", "mixer", "model.mixers:Mixer", {"mean": "model.mixers:MeanMixer", "linear": "model.mixers:LinearMixer"}
)
INITS = Catalogue(
    "inits",
    "init",
    "model.inits:Init",
    {
        "small_normal": "model.inits:SmallNormal",
        "torch": "model.inits:TorchInit",
        "xavier": "model.inits:Xavier",
        "gpt2": "model.inits:GPT2",
    },
)
TASKS = Catalogue(
    "tasks",
    "task",
    "train.tasks:Task",
    {
        "affine": "train.tasks:Affine",
        "sum": "train.tasks:Sum",
        "table": "train.tasks:Table",
        "markov": "train.tasks:Markov",
    },
)
OPTIMIZERS = Catalogue(
    "optimizers",
    "optimizer",
    "train.optim:Optimizer",
    {"adam": "train.optim:Adam", "adamw": "train.optim:AdamW", "sgd": "train.optim:SGD"},
)
SCHEDULES = Catalogue(
    "schedules",
    "schedule",
    None,
    {"constant": "train.optim:constant", "linear": "train.optim:linear", "cosine": "train.optim:cosine"},
)
CATALOGUES = {
    catalogue.kind: catalogue for catalogue in (NORMS, PLACEMENTS, MIXERS, INITS, TASKS, OPTIMIZERS, SCHEDULES)
}
