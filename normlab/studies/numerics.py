"""`normlab numerics`: the article's seeded experiments on untrained nets, in our own code, in the given order of draws.

One function an experiment of the ledger. Where the printed number cannot come from the printed setting, `nearest` says
which setting of a stated family comes closest, and how close. Shapes: B batch, T time, D width, N rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from normlab.model.norms import NORMS
from normlab.studies import numerics_nearest as near
from normlab.studies.final_norm import final_norm_rows
from normlab.studies.numerics_nets import (
    linear_stack,
    normalise,
    ragged,
    residual_gradients,
    seeded,
    sublayer,
    token_norm,
)
from normlab.studies.numerics_precision import fp16_eps
from normlab.studies.numerics_printed import PRINTED, agrees
from normlab.studies.params import norm_parameters

QUESTION = "Do the article's seeded experiments on untrained nets give the printed numbers?"
Values = dict[str, Any]


def _stack(factor: float, normed: bool = False) -> list[float]:
    with seeded(0):
        x_BTD = torch.randn(4, 16, 64)
        after = (lambda x: normalise("layernorm", x)) if normed else (lambda x: x)
        return linear_stack(x_BTD, 20, lambda: torch.randn(64, 64) * factor, after)


def stack_vanish() -> Values:
    """1.1: seed 0, x (4, 16, 64), then 20 maps with weights randn * 0.3, each drawn when it is its turn."""
    simplest = _stack(0.3 / math.sqrt(64))
    found = near.nearest("stack-vanish", near.stacks())
    away = near.distance(PRINTED["stack-vanish"], {"norms": simplest})
    return {
        "norms": _stack(0.3),
        "nearest": found,
        "simplest": {"setting": "weights randn * 0.3 / sqrt(64), seed 0", "distance": away, "norms": simplest},
    }


def stack_explode() -> Values:
    """1.1: the same with weights randn * 1.2."""
    return {"norms": _stack(1.2)}


def stack_layernorm() -> Values:
    """1.1: weights randn * 0.3, a LayerNorm after every map; `norms` are those after the maps."""
    norms = _stack(0.3, normed=True)[1:]
    return {"norms": norms, "lowest": min(norms), "highest": max(norms)}


def group_statistics() -> dict[str, Values]:
    """1.2: seed 1, four sequences of 5, 12, 30, 200 tokens of width 64, randn * 2 + 1, drawn in this order."""
    with seeded(1):
        batch, layer = near.statistics_of(ragged(near.LENGTHS, 64))
    tried = list(near.statistics())
    batch["nearest"] = near.nearest("batch-statistics", ((setting, of_batch) for setting, of_batch, _ in tried))
    layer["nearest"] = near.nearest("layer-statistics", ((setting, of_layer) for setting, _, of_layer in tried))
    return {"batch-statistics": batch, "layer-statistics": layer}


def layernorm_matches_torch() -> Values:
    """1.3: seed 0, x (4, 32, 256) = randn * 3 + 2; LayerNorm written out against torch.nn.LayerNorm, eps 1e-5."""
    with seeded(0):
        x_BTD = 2.0 + 3.0 * torch.randn(4, 32, 256)
    reference = nn.LayerNorm(256)
    centred = x_BTD - x_BTD.mean(-1, keepdim=True)
    written = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    ours = normalise("layernorm", x_BTD)
    with torch.no_grad():
        errors = [float((reference(x_BTD) - other).abs().max()) for other in (written, ours)]
    return {
        "max_abs_error": errors[0],
        "max_abs_error_of_our_model": errors[1],
        "output_mean": float(written.mean()),
        "output_std": float(written.std()),
        "parameters": sum(p.numel() for p in reference.parameters()),
    }


def block_exit_norms() -> Values:
    """2.1: seed 0, x (2, 8, 64), then the Post-LN block's sublayer, then the Pre-LN block's (64 to 128 to 64)."""
    with seeded(0), torch.no_grad():
        x_BTD = torch.randn(2, 8, 64)
        post, pre = sublayer(64, 128), sublayer(64, 128)
        exits = normalise("layernorm", x_BTD + post(x_BTD)), x_BTD + pre(normalise("layernorm", x_BTD))
    return {"post": token_norm(exits[0]), "pre": token_norm(exits[1])}


def output_statistics() -> Values:
    """3.3: seed 7, x (1024, 512) = randn * 3 + 1.5; unbiased standard deviations."""
    with seeded(7):
        x_ND = 1.5 + 3.0 * torch.randn(1024, 512)
    found: Values = {}
    for short, name in (("ln", "layernorm"), ("rms", "rmsnorm")):
        y_ND = normalise(name, x_ND)
        means_N = y_ND.mean(-1)
        found |= {f"{short}_row_mean": float(means_N.mean()), f"{short}_row_mean_std": float(means_N.std())}
        found[f"{short}_row_std"] = float(y_ND.std(-1).mean())
    return found


def rms_parameters() -> Values:
    """3.4: parameters of both norms at width 1024; seed 0, x (64, 128, 1024): mean square of RMSNorm's output."""
    with seeded(0):
        square = float(normalise("rmsnorm", torch.randn(64, 128, 1024)).square().mean())
    counts = {short: norm_parameters(name, 1024) for short, name in (("ln", "layernorm"), ("rms", "rmsnorm"))}
    return {**counts, "rms_output_mean_square": square}


def identity_gradient() -> Values:
    """4.2: seed 3, sublayer 64 to 64 to 64, then x (1, 64), then a second x for the net without the residual."""
    with seeded(3):
        net = sublayer(64, 64)
        x_BD, other_BD = torch.randn(1, 64), torch.randn(1, 64)
    found = residual_gradients(net, x_BD, other_BD)
    return {**found, "nearest": near.nearest("identity-gradient", near.gradients())}


def residual_growth() -> Values:
    """4.4: seed 11, twelve Pre-LN sublayers 128 to 512 to 128, then x (2, 16, 128)."""
    with seeded(11), torch.no_grad():
        layers = [sublayer(128, 512) for _ in range(12)]
        x_BTD = torch.randn(2, 16, 128)
        norms = [token_norm(x_BTD)]
        for layer in layers:
            x_BTD = x_BTD + layer(normalise("layernorm", x_BTD))
            norms.append(token_norm(x_BTD))
    growth = (norms[-1] / norms[0]) ** (1 / 12) - 1
    return {"norms": norms, "after_final": token_norm(normalise("layernorm", x_BTD)), "growth_per_layer": growth}


def qknorm_parameters() -> Values:
    """5.1: parameters that QK-norm adds to a layer of width 4096 with 32 heads, built and counted: one RMSNorm of head
    width for the queries and one for the keys, shared by the heads."""
    width, heads = 4096, 32
    return {
        "added_parameters": 2 * norm_parameters("rmsnorm", width // heads),
        "two_d": 2 * width,
        "two_d_k": 2 * (width // heads),
        "width": width,
        "heads": heads,
    }


def eps_defaults() -> Values:
    """7.1: the eps that our norms start with, beside torch's LayerNorm."""
    ours = {short: NORMS[name].Options().eps for short, name in (("rms", "rmsnorm"), ("ln", "layernorm"))}
    return {**ours, "torch_ln": nn.LayerNorm(1).eps}


def layernorm_geometry() -> Values:
    """arXiv:2409.12951: LayerNorm without eps and affine part is: remove the component along (1, ..., 1), scale to unit
    length, multiply by sqrt(d). Largest difference of the two on values far from centred, in float64 and float32."""
    found: Values = {}
    with seeded(0):
        x_ND = 2.0 + 3.0 * torch.randn(1024, 512, dtype=torch.float64)
    for name, x in (("max_abs_error", x_ND), ("max_abs_error_float32", x_ND.float())):
        ones_D = torch.ones(512, dtype=x.dtype) / math.sqrt(512)
        flat_ND = x - (x @ ones_D).unsqueeze(-1) * ones_D
        built_ND = math.sqrt(512) * flat_ND / flat_ND.norm(dim=-1, keepdim=True)
        found[name] = float((built_ND - nn.functional.layer_norm(x, (512,), eps=0.0)).abs().max())
    return found


EXPERIMENTS: dict[str, Callable[[], Values]] = {
    "stack-vanish": stack_vanish,
    "stack-explode": stack_explode,
    "stack-layernorm": stack_layernorm,
    "layernorm-matches-torch": layernorm_matches_torch,
    "block-exit-norms": block_exit_norms,
    "output-statistics": output_statistics,
    "rms-parameters": rms_parameters,
    "identity-gradient": identity_gradient,
    "residual-growth": residual_growth,
    "qknorm-parameters": qknorm_parameters,
    "eps-defaults": eps_defaults,
    "layernorm-geometry": layernorm_geometry,
    "fp16-eps": fp16_eps,
}


def measure(quick: bool, say: Callable[[str], None]) -> tuple[Values, Values]:
    """Run every experiment; settings and values by ledger id. There is nothing to shorten: `quick` changes nothing."""
    values: Values = {}
    for name, experiment in EXPERIMENTS.items():
        begun = time.monotonic()
        values[name] = experiment()
        say(f"{name}: {time.monotonic() - begun:.1f} s")
    values |= group_statistics()
    values["final-norm-check"] = {"rows": final_norm_rows()}
    families = {
        "stack-vanish": near.STACK_FAMILY,
        "batch-statistics": near.BATCH_FAMILY,
        "layer-statistics": near.BATCH_FAMILY,
        "identity-gradient": near.GRADIENT_FAMILY,
    }
    experiments = {name: _words(function) for name, function in EXPERIMENTS.items()}
    experiments |= dict.fromkeys(("batch-statistics", "layer-statistics"), _words(group_statistics))
    settings: Values = {"experiments": experiments, "printed": PRINTED, "families": families, "rules": RULES}
    settings["shortened"] = []
    settings["agrees"] = {
        name: {path: agrees(text, near.at(values[name], path)) for path, text in printed.items()}
        for name, printed in PRINTED.items()
    }
    return settings, values


RULES = [
    "Agrees: rounded to the printed number of digits it is the printed number; for an order of magnitude (~) it is less"
    " than ten times larger or smaller",
    "The seeds are the printed ones, one run each",
]


def _words(function: Callable[..., Any]) -> str:
    return " ".join((function.__doc__ or "").split())
