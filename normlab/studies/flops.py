"""Operations of one training step of the toy, by formula: matrix products, norms, the rest.

Every addition, multiplication, division, root and transcendental function of one element counts as one; a multiply-add
in a matrix product as two. What a token does once (its scale), not once an element, is left out. What a norm takes
stands in its class, `operations`.
"""

from __future__ import annotations

import torch

from normlab.config.schema import RunSpec
from normlab.model.decoder import Decoder
from normlab.model.norms import Norm

GELU = 4 + 8  # x (1 + erf(x / c)) / 2; backward its density as well
CROSS_ENTROPY = 4 + 2  # an element of the logits: shift, exp, sum, log-softmax; backward softmax - target
ADAM = 13  # a parameter: two moments, root, eps, division, update; see `Adam` in train/optim.py


def product_flops(spec: RunSpec) -> dict[str, int]:
    """Matrix products of the net in one step on one batch: `forward`, `backward`."""
    m, t = spec.model, spec.task
    sequences = spec.train.batch
    tokens = sequences * t.length
    mixing = 2 * sequences * t.length**2 * m.width if m.mixer == "mean" else 0
    linear = 2 * tokens * m.width * (m.depth * (m.width + 2 * m.hidden) + t.vocab)
    # A linear has a gradient for its input and one for its weight; the matrix that takes the mean has no weight.
    return {"forward": m.depth * mixing + linear, "backward": m.depth * mixing + 2 * linear}


def norm_flops(spec: RunSpec) -> int:
    """All norms of one step, forward and backward, as the net is built."""
    with torch.device("meta"):
        norms = [module for module in Decoder(spec).modules() if isinstance(module, Norm)]
    return spec.train.batch * spec.task.length * sum(norm.width * sum(norm.operations) for norm in norms)


def step_flops(spec: RunSpec, parameters: int) -> dict[str, int]:
    """`products`, `norms` and `other` (residual sums, biases, GELU, loss, Adam) of one step of a net with so many
    parameters."""
    m, t = spec.model, spec.task
    tokens = spec.train.batch * t.length
    residuals = 2 * m.depth * tokens * m.width * 2  # two sums a block, and the sum of their gradients
    biases = m.depth * tokens * (2 * m.width + m.hidden) * 2
    gelu = m.depth * tokens * m.hidden * GELU
    other = residuals + biases + gelu + tokens * t.vocab * CROSS_ENTROPY + parameters * ADAM
    return {"products": sum(product_flops(spec).values()), "norms": norm_flops(spec), "other": other}


def norm_share(flops: dict[str, int]) -> float:
    """Share of the norms in all operations of a step."""
    return flops["norms"] / sum(flops.values())
