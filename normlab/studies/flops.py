"""Operations of one training step of the toy, by formula: matrix products, norms, the rest.

Every addition, multiplication, division, root and transcendental function of one element counts as one; a multiply-add
in a matrix product as two. What a token does once (its scale), not once an element, is left out.
"""

from __future__ import annotations

from normlab.config.schema import RunSpec
from normlab.model.decoder import final_norm_name
from normlab.model.placements import PLACEMENTS

# An element's operations in a norm, forward and backward (gradients of x, gain, bias and slope; x^ is the unit vector).
# LayerNorm forward: sum, centre, square, sum, scale, gain, bias. Backward: bias 1, gain 2, g * gain 1, its mean 1, its
# mean with x^ 2, and x 4.  RMSNorm forward: square, sum, scale, gain. Backward: gain 2, g * gain 1, mean with x^ 2,
# x 3.  DyT forward: slope, tanh, gain, bias. Backward: bias 1, gain 2, g * gain 1, through tanh 3, slope 2, x 1.
NORM_FORWARD = {"layernorm": 7, "rmsnorm": 4, "dyt": 4, "none": 0}
NORM_BACKWARD = {"layernorm": 11, "rmsnorm": 8, "dyt": 10, "none": 0}
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
    """All norms of one step, forward and backward."""
    m = spec.model
    norms = [m.norm] * (2 * m.depth * PLACEMENTS[m.placement].norms) + [final_norm_name(m)]
    elements = spec.train.batch * spec.task.length * m.width
    return sum(elements * (NORM_FORWARD[norm] + NORM_BACKWARD[norm]) for norm in norms)


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
