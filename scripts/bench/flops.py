"""Operations of one training step, by formula."""

from __future__ import annotations

from normlab.config.schema import RunSpec
from normlab.studies.flops import product_flops


def run_step_flops(spec: RunSpec) -> int:
    """Operations of the linear maps in one step of one run, forward and backward.

    It is what every implementation has to do, so one number serves all rows. Left out: norms, GELU, loss, optimiser,
    biases, and the running mean, which plain_toy takes by `cumsum` and the lanes by a small product (3% more).
    """
    linear = spec.model.model_copy(update={"mixer": "linear"})
    return sum(product_flops(spec.model_copy(update={"model": linear})).values())


def gemm_flops(size: int) -> int:
    """Operations of the product of two square matrices with `size` rows: 2 size^3."""
    return 2 * size**3
