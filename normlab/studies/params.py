"""Parameters and reductions of a model's norms: every norm of the catalogue, built without memory and counted.

A reduction is a sum over a token's width in the forward pass: LayerNorm takes two (mean, variance), RMSNorm one (mean
square), DyT none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from normlab.catalogue import NORMS, PLACEMENTS
from normlab.config.errors import ConfigError
from normlab.config.schema import ModelSpec, RunSpec
from normlab.model.decoder import Decoder
from normlab.model.part import CannotBuild, make

QUESTION = "How many parameters and reductions do a model's norms take, and what does RMSNorm save?"

LARGEST = 10**9  # of each number that is asked for


def norm_parameters(norm: str, width: int) -> int:
    """Parameters of one norm of the catalogue; ConfigError for a user's that cannot be built."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in make(NORMS, norm, width).parameters())
    except CannotBuild as error:
        raise ConfigError([str(error)]) from error


@dataclass(frozen=True)
class Shape:
    """What the counts depend on. `placement` and `final_norm` are as in a config and say which norm stands before the
    head; `norm` is the model's own norm and `total` its parameters in all, where they are known."""

    width: int = 4096
    depth: int = 32
    norms_per_layer: int = 2
    final_norm: str = "none"
    placement: str = "pre"
    norm: str | None = None
    total: int | None = None

    def check(self) -> Shape:
        """This shape; ConfigError names each number out of range."""
        least = {"width": 1, "depth": 1, "norms_per_layer": 0}
        problems = [
            f"--{name.replace('_', '-')}: expected {low} to {LARGEST:,}, got {getattr(self, name):,}"
            for name, low in least.items()
            if not low <= getattr(self, name) <= LARGEST
        ]
        if problems:
            raise ConfigError(problems)
        return self


ARTICLE = Shape()  # section 6.4: d = 4096, 32 layers, two norms a layer, nothing said of a final norm


def final_norm(shape: Shape, norm: str) -> str:
    """The norm before the head, in a model whose layers have `norm`."""
    # Not checked: norms are counted even where such a net would be refused.
    model = ModelSpec.model_construct(norm=norm, placement=shape.placement, final_norm=shape.final_norm)
    return model.final_norm_name()


def model_parameters(shape: Shape, norm: str) -> int:
    """Parameters of all norms of the model."""
    in_layers = shape.depth * shape.norms_per_layer * norm_parameters(norm, shape.width)
    return in_layers + norm_parameters(final_norm(shape, norm), shape.width)


def toy() -> Shape:
    """The net of the trained studies, from the defaults of the configuration."""
    spec = RunSpec()
    m = spec.model
    with torch.device("meta"):
        total = sum(parameter.numel() for parameter in Decoder(spec).parameters())
    return Shape(m.width, m.depth, 2 * PLACEMENTS[m.placement].norms, m.final_norm, m.placement, m.norm, total)


# LLaMA 2 7B: arXiv:2307.09288 (RMSNorm before both sublayers and before the head). GPT-2 small: Radford et al. 2019.
PRESETS = {
    "llama-2-7b": Shape(4096, 32, 2, "same", norm="rmsnorm", total=6_738_415_616),
    "gpt2": Shape(768, 12, 2, "same", norm="layernorm", total=124_439_808),
}


def preset(name: str) -> Shape:
    """The shape of a known model; ConfigError, one line, for an unknown name."""
    known = [*PRESETS, "toy"]
    if name not in known:
        raise ConfigError([f"--preset: expected one of {', '.join(known)}, got '{name}'"])
    return toy() if name == "toy" else PRESETS[name]


def count(shape: Shape, norm: str) -> dict[str, Any]:
    """One row: parameters per norm, layer and model, saved against LayerNorm, share of the whole model (None where the
    whole is not known), reductions of a token's forward pass per norm, layer and model."""
    model, each = model_parameters(shape, norm), NORMS[norm].reductions
    share = None
    if shape.total is not None and shape.norm is not None:
        share = model / (shape.total - model_parameters(shape, shape.norm) + model)
    return {
        "norm": norm,
        "per_norm": norm_parameters(norm, shape.width),
        "per_layer": shape.norms_per_layer * norm_parameters(norm, shape.width),
        "model": model,
        "saved": model_parameters(shape, "layernorm") - model,
        "share": share,
        "reductions_per_norm": each,
        "reductions_per_layer": shape.norms_per_layer * each,
        "reductions_model": shape.depth * shape.norms_per_layer * each + NORMS[final_norm(shape, norm)].reductions,
    }


def article_values() -> dict[str, Any]:
    """Section 6.4's counts at section 6.4's setting, whatever else is asked for."""
    ln, rms = count(ARTICLE, "layernorm"), count(ARTICLE, "rmsnorm")
    parameters = {"ln_one": ln["per_norm"], "rms_one": rms["per_norm"]}
    parameters |= {"ln_model": ln["model"], "rms_model": rms["model"], "saved": rms["saved"]}
    reductions: dict[str, Any] = {}
    for part in ("per_norm", "per_layer"):
        reductions |= {f"ln_{part}": ln[f"reductions_{part}"], f"rms_{part}": rms[f"reductions_{part}"]}
    reductions["saving"] = 1 - rms["reductions_per_layer"] / ln["reductions_per_layer"]
    return {"norm-parameters": parameters, "reductions": reductions}


def measure(shape: Shape = ARTICLE) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and values of the counts at `shape`, beside the article's."""
    settings: dict[str, Any] = {
        "width": shape.width,
        "depth": shape.depth,
        "norms_per_layer": shape.norms_per_layer,
        "final_norm": shape.final_norm,
        "model_norm": shape.norm,
        "model_parameters": shape.total,
    }
    if NORMS.added:
        settings["entries"] = {"norms": {norm: {"title": NORMS.title(norm)} for norm in NORMS.added}}
    rows = [count(shape, norm) for norm in NORMS]
    return settings, article_values() | {"counts": {"rows": rows}}
