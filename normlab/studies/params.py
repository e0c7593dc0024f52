"""Parameters and reductions of a model's norms, counted; no torch.

A reduction is a sum over a token's width in the forward pass: LayerNorm takes two (mean, variance), RMSNorm one (mean
square), DyT none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from normlab.config.errors import ConfigError
from normlab.config.schema import RunSpec

QUESTION = "How many parameters and reductions do a model's norms take, and what does RMSNorm save?"

REDUCTIONS = {"layernorm": 2, "rmsnorm": 1, "dyt": 0, "none": 0}
LARGEST = 10**9  # of each number that is asked for


def norm_parameters(norm: str, width: int) -> int:
    """Parameters of one norm: gain and bias, gain, gain and bias and one slope, nothing."""
    return {"layernorm": 2 * width, "rmsnorm": width, "dyt": 2 * width + 1, "none": 0}[norm]


@dataclass(frozen=True)
class Shape:
    """What the counts depend on. `final_norm` is the kind of norm before the head, `same` as in the layers, or `none`;
    `norm` is the model's own norm and `total` its parameters in all, where they are known."""

    width: int = 4096
    depth: int = 32
    norms_per_layer: int = 2
    final_norm: str = "none"
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


def final_parameters(shape: Shape, norm: str) -> int:
    """Parameters of the norm before the head, in a model whose layers have `norm`."""
    return norm_parameters(norm if shape.final_norm == "same" else shape.final_norm, shape.width)


def model_parameters(shape: Shape, norm: str) -> int:
    """Parameters of all norms of the model."""
    in_layers = shape.depth * shape.norms_per_layer * norm_parameters(norm, shape.width)
    return in_layers + final_parameters(shape, norm)


def toy() -> Shape:
    """The net of the trained studies, from the defaults of the configuration."""
    spec = RunSpec()
    m, vocab = spec.model, spec.task.vocab
    final = {"auto": "layernorm" if m.placement == "pre" else "none"}.get(m.final_norm, m.final_norm)
    shape = Shape(m.width, m.depth, 2, final, m.norm)
    linears = (m.width + 1) * m.width + (m.width + 1) * m.hidden + (m.hidden + 1) * m.width
    norms = model_parameters(shape, m.norm)
    return replace(shape, total=2 * vocab * m.width + m.depth * linears + norms)


# LLaMA 2 7B: arXiv:2307.09288 (RMSNorm before both sublayers and before the head). GPT-2 small: Radford et al. 2019.
PRESETS = {
    "llama-2-7b": Shape(4096, 32, 2, "same", "rmsnorm", 6_738_415_616),
    "gpt2": Shape(768, 12, 2, "same", "layernorm", 124_439_808),
    "toy": toy(),
}


def preset(name: str) -> Shape:
    """The shape of a known model; ConfigError, one line, for an unknown name."""
    if name not in PRESETS:
        raise ConfigError([f"--preset: expected one of {', '.join(PRESETS)}, got '{name}'"])
    return PRESETS[name]


def count(shape: Shape, norm: str) -> dict[str, Any]:
    """One row: parameters per norm, layer and model, saved against LayerNorm, share of the whole model (None where the
    whole is not known), reductions of a token's forward pass per norm, layer and model."""
    model, each = model_parameters(shape, norm), REDUCTIONS[norm]
    share = None
    if shape.total is not None and shape.norm is not None:
        share = model / (shape.total - model_parameters(shape, shape.norm) + model)
    final = REDUCTIONS[norm if shape.final_norm == "same" else shape.final_norm]
    return {
        "norm": norm,
        "per_norm": norm_parameters(norm, shape.width),
        "per_layer": shape.norms_per_layer * norm_parameters(norm, shape.width),
        "model": model,
        "saved": model_parameters(shape, "layernorm") - model,
        "share": share,
        "reductions_per_norm": each,
        "reductions_per_layer": shape.norms_per_layer * each,
        "reductions_model": shape.depth * shape.norms_per_layer * each + final,
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
    settings = {
        "width": shape.width,
        "depth": shape.depth,
        "norms_per_layer": shape.norms_per_layer,
        "final_norm": shape.final_norm,
        "model_norm": shape.norm,
        "model_parameters": shape.total,
    }
    rows = [count(shape, norm) for norm in REDUCTIONS]
    return settings, article_values() | {"counts": {"rows": rows}}
