"""Which nets the fused step knows. Imports no torch."""

from __future__ import annotations

from dataclasses import replace

from normlab.config.engine import Engine
from normlab.config.schema import RunSpec

PLACEMENTS, MIXERS, NORMS = ("pre", "post"), ("linear", "mean"), ("none", "layernorm", "rmsnorm", "dyt")


def gap(spec: RunSpec) -> str | None:
    """What of a net the C++ does not know; None if it knows all of it."""
    model, precision = spec.model, spec.train.precision
    named = {"placement": (model.placement, PLACEMENTS), "mixer": (model.mixer, MIXERS), "norm": (model.norm, NORMS)}
    named["final norm"] = (model.final_norm_name(), NORMS)
    for what, (name, known) in named.items():
        if name not in known:
            return f"{what} '{name}'"
    if precision not in ("float32", "float64"):
        return f"precision {precision}"
    statistics = model.norm_options.all().get("statistics", "float32")
    if statistics != "float32":
        return f"statistics in {statistics}"
    return None


def engine_for(engine: Engine, spec: RunSpec) -> Engine:
    """What a run is really made with: the fused step only where it knows the net."""
    return replace(engine, fused="") if engine.fused and gap(spec) else engine
