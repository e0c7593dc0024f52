"""`normlab initial`: gradient norms by layer and growth of the residual stream before the first update.

A block's gradient norm is that of the gradient of the training loss (one batch) with respect to all of the block's
parameters, norms included. Beside it stands that of its outer feed-forward weight alone. That matrix is what the
theorem of arXiv:2002.04745 (section 3.2) is about, and it compares depths: in the last block its gradient does not
depend on the depth with Post-LN and falls as 1 / sqrt(depth) with Pre-LN. Shapes: S lanes (seeds), L layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normlab.config.schema import ModelSpec, RunSpec
from normlab.model.layers import Embedding, Linear
from normlab.train.stack import Stack
from normlab.train.tasks import TASKS, TrainingData

QUESTION = "At initialisation, which layers get the large gradients with Post-LN, with Pre-LN and without norms?"
DEPTHS = (6, 12, 20, 30)
SEEDS = (0, 1, 2)
GROWTH_DEPTH = 20
# "none" keeps the LayerNorm before the head, as everywhere in the article's toy.
PLACEMENTS: dict[str, dict[str, str]] = {
    "post": {"placement": "post"},
    "pre": {"placement": "pre"},
    "none": {"placement": "pre", "norm": "none"},
}
# Key suffix by init; the default reading has none. Xavier is the init of the theorem, and our configs lack it.
INITS = {"small_normal": "", "torch": "_torch_init", "xavier": "_xavier_init"}
RULES = [
    "Gradient norm of a block: L2 norm of the gradient of the training loss on one batch (32 sequences, as in training)"
    " with respect to all parameters of the block; outer weight: of its outer feed-forward matrix alone"
    " (arXiv:2002.04745)",
    "Without norm the blocks have none, and the LayerNorm before the head stays",
    "Init small_normal: weights normal with standard deviation 0.02, biases 0; torch: the default of torch's modules;"
    " xavier: weights normal with variance 2 / (fan in + fan out), embeddings standard normal, biases 0 (the paper's)",
]


def measure(quick: bool, say: Callable[[str], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and values by ledger id. It takes seconds; `quick` changes nothing."""
    gradients: dict[str, Any] = {}
    for init, suffix in INITS.items():
        rows, whole, outer, last = [], {}, {}, {}
        for name in PLACEMENTS:
            for depth in DEPTHS:
                block_LS, outer_LS = gradient_norms(stack_of(name, depth, init, SEEDS))
                rows += _rows(name, depth, block_LS, outer_LS)
                whole[f"{name}_{depth}"] = _by_seed(block_LS[-1] / block_LS[0])
                outer[f"{name}_{depth}"] = _by_seed(outer_LS[-1] / outer_LS[0])
                last[f"{name}_{depth}"] = _by_seed(outer_LS[-1])
            say(f"{name}, init {init}: {len(DEPTHS)} depths done")
        gradients[f"rows{suffix}"] = rows
        gradients[f"last_over_first{suffix}"] = whole
        gradients[f"last_over_first_outer{suffix}"] = outer
        gradients[f"last_outer{suffix}"] = last
    settings: dict[str, Any] = {"depths": list(DEPTHS), "seeds": list(SEEDS), "rules": RULES, "shortened": []}
    settings["spec"] = stack_of("pre", GROWTH_DEPTH, "small_normal", SEEDS).specs[0].model_dump(mode="json")
    return settings, {"postln-gradient": gradients, "initial-growth": _growth()}


def stack_of(name: str, depth: int, init: str, seeds: Sequence[int]) -> Stack:
    """The toy with the placement called `name` here and the init, a lane a seed."""
    inside = "torch" if init == "xavier" else init
    model = ModelSpec.model_validate({"depth": depth, "init": inside, **PLACEMENTS[name]})
    stack = Stack([RunSpec(model=model, seed=seed) for seed in seeds])
    if init == "xavier":
        xavier(stack)
    return stack


@torch.no_grad()
def xavier(stack: Stack) -> None:
    """Draw the weights of every lane again: normal with variance 2 / (fan in + fan out), embeddings standard normal,
    biases 0 (arXiv:2002.04745, section 3.1; its zero query and key weights make attention the mean over positions)."""
    for lane, spec in enumerate(stack.specs):
        generator = torch.Generator().manual_seed(spec.seed)
        for module in stack.model.modules():
            if isinstance(module, Linear):
                fan_in, fan_out = module.weight.shape[1:]
                module.weight[lane].normal_(0.0, math.sqrt(2 / (fan_in + fan_out)), generator=generator)
                if module.bias is not None:
                    module.bias[lane].zero_()
            elif isinstance(module, Embedding):
                module.weight[lane].normal_(generator=generator)


def first_batch(specs: Sequence[RunSpec]) -> Tensor:
    """The tokens (S, B, T + 1) of each lane's first training step."""
    task = TASKS[specs[0].task.name](specs[0].task)
    return torch.from_numpy(np.stack([TrainingData(task, spec).next() for spec in specs]))


def gradient_norms(stack: Stack) -> tuple[Tensor, Tensor]:
    """Gradient norm of every block (L, S), and that of its outer feed-forward weight alone, on the first batch."""
    specs = stack.specs
    _, grad_SP = stack.gradients(first_batch(specs))
    square_LS = torch.zeros(specs[0].model.depth, len(specs), dtype=torch.float64)
    outer_LS, offset = torch.zeros_like(square_LS), 0
    for name, leaf in stack.model.named_parameters():
        size = leaf[0].numel()
        square_S = grad_SP[:, offset : offset + size].double().square().sum(1)
        offset += size
        if name.startswith("blocks."):
            layer = int(name.split(".")[1])
            square_LS[layer] += square_S
            if name.endswith("ffn.outer.weight"):
                outer_LS[layer] = square_S
    return square_LS.sqrt(), outer_LS.sqrt()


def stream_norms(stack: Stack) -> Tensor:
    """Mean token norm (L + 1, S) of the stream on the first batch: 0 is the embedding, l what block l gives out."""
    specs = stack.specs
    norm_LS = torch.zeros(specs[0].model.depth + 1, len(specs))

    def tap(layer: int, x_SBTD: Tensor) -> None:
        norm_LS[layer] = torch.linalg.vector_norm(x_SBTD, dim=-1).flatten(1).mean(1)

    with torch.no_grad():
        stack.model(first_batch(specs)[..., :-1], tap)
    return norm_LS


def growth_per_layer(norm_LS: Tensor) -> Tensor:
    """Mean growth of the stream a layer (S,): 0.016 for 1.6% (geometric)."""
    return (norm_LS[-1] / norm_LS[0]) ** (1 / (len(norm_LS) - 1)) - 1


def _growth() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for init, suffix in INITS.items():
        norm_LS = stream_norms(stack_of("pre", GROWTH_DEPTH, init, SEEDS))
        found[f"rows{suffix}"] = [
            {"seed": seed, "layer": layer, "norm": _short(norm_LS[layer, lane])}
            for lane, seed in enumerate(SEEDS)
            for layer in range(len(norm_LS))
        ]
        found[f"growth_per_layer{suffix}"] = _by_seed(growth_per_layer(norm_LS))
    return found


def _rows(name: str, depth: int, block_LS: Tensor, outer_LS: Tensor) -> list[dict[str, Any]]:
    return [
        {"placement": name, "depth": depth, "seed": seed, "layer": layer + 1}
        | {"grad_norm": _short(block_LS[layer, lane]), "outer_grad_norm": _short(outer_LS[layer, lane])}
        for lane, seed in enumerate(SEEDS)
        for layer in range(depth)
    ]


def _by_seed(value_S: Tensor) -> dict[str, Any]:
    return {"by_seed": {str(seed): float(value) for seed, value in zip(SEEDS, value_S, strict=True)}}


def _short(value: Tensor) -> float:
    """Six digits: what float32 holds."""
    return float(f"{float(value):.6g}")
