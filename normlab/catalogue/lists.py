"""The catalogues: by kind, a name and the place of its class. To add an entry, write its class and its line here; a
user's module adds its own by assignment, `NORMS["mine"] = Mine`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any


class Catalogue(MutableMapping[str, Any]):
    """The entries of one kind by name, in order. `singular` is what one of them is called in messages."""

    def __init__(self, kind: str, singular: str, entries: dict[str, str]) -> None:
        self.kind, self.singular = kind, singular
        self._shipped = tuple(entries)
        self._entries: dict[str, Any] = dict(entries)

    def __getitem__(self, name: str) -> Any:
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(import_module(f"normlab.{module}"), attribute)
        return entry

    def __setitem__(self, name: str, entry: Any) -> None:
        if name in self._shipped:
            raise ValueError(f"the {self.singular} '{name}' comes with normlab: choose another name")
        if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
            raise ValueError(f"{name!r} cannot name a {self.singular}: use letters, digits, '_' and '-'")
        self._entries[name] = entry

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


def suggest(name: str, known: list[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


NORMS = Catalogue(
    "norms",
    "norm",
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
MIXERS = Catalogue("mixers", "mixer", {"mean": "model.mixers:MeanMixer", "linear": "model.mixers:LinearMixer"})
INITS = Catalogue(
    "inits",
    "init",
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
    {
        "affine": "train.tasks:Affine",
        "sum": "train.tasks:Sum",
        "table": "train.tasks:Table",
        "markov": "train.tasks:Markov",
    },
)
OPTIMIZERS = Catalogue(
    "optimizers", "optimizer", {"adam": "train.optim:Adam", "adamw": "train.optim:AdamW", "sgd": "train.optim:SGD"}
)
SCHEDULES = Catalogue(
    "schedules",
    "schedule",
    {"constant": "train.optim:constant", "linear": "train.optim:linear", "cosine": "train.optim:cosine"},
)
CATALOGUES = {
    catalogue.kind: catalogue for catalogue in (NORMS, PLACEMENTS, MIXERS, INITS, TASKS, OPTIMIZERS, SCHEDULES)
}
