"""The closed sets of names that a config may use, known without importing torch.

Each kind has a catalogue (one dict of classes) in `normlab.model` or `normlab.train`; the catalogue checks itself
against this file when it is built, so the two cannot drift. A plugin that adds an entry to a catalogue makes the new
name legal here as well.
"""

from __future__ import annotations

import difflib
from typing import Any

KNOWN: dict[str, list[str]] = {
    "norms": ["none", "layernorm", "rmsnorm", "dyt"],
    "placements": ["post", "pre"],
    "mixers": ["mean", "linear"],
    "inits": ["small_normal", "torch"],
    "tasks": ["affine", "sum", "table", "markov"],
    "optimizers": ["adam", "adamw", "sgd"],
    "schedules": ["constant", "linear", "cosine"],
    "precisions": ["float32", "float64", "bfloat16", "float16"],
}


class Catalogue(dict[str, Any]):
    """A dict from name to class of one kind; adding an entry registers its name for the config."""

    def __init__(self, kind: str, entries: dict[str, Any]) -> None:
        assert list(entries) == KNOWN[kind], f"catalogue {kind} and config/names.py disagree"
        super().__init__(entries)
        self.kind = kind

    def __setitem__(self, name: str, entry: Any) -> None:
        super().__setitem__(name, entry)
        if name not in KNOWN[self.kind]:
            KNOWN[self.kind].append(name)


def suggest(name: str, known: list[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def check_name(kind: str, name: str, also: tuple[str, ...] = ()) -> str:
    """Return `name` if it is known; raise ValueError that lists the known ones otherwise."""
    known = [*KNOWN[kind], *also]
    if name not in known:
        raise ValueError(f"expected one of {', '.join(known)}, got '{name}'{suggest(name, known)}")
    return name
