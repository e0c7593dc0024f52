"""Operations of one training step, by formula."""

from __future__ import annotations

from normlab.config.schema import RunSpec


def run_step_flops(spec: RunSpec) -> int:
    """Operations of the linear maps in one step of one run, forward and backward:

        3 * 2 N (L (D^2 + 2 D F) + D V)

    N = batch * length tokens, L blocks of width D and hidden width F, V tokens in the vocabulary. A block has three
    linear maps (D to D, D to F, F to D), the head one (D to V); a multiply-add counts as two. The backward pass has one
    product of the same size for the gradient of the input and one for that of the weight, hence the 3.

    It is what every implementation has to do, so one number serves all rows. Left out: norms, GELU, loss, optimiser,
    biases, and the running mean, which plain_toy takes by `cumsum` and the lanes by a small product (3% more).
    """
    m, t = spec.model, spec.task
    tokens = spec.train.batch * t.length
    weights = m.depth * (m.width * m.width + 2 * m.width * m.hidden) + m.width * t.vocab
    return 3 * 2 * tokens * weights


def gemm_flops(size: int) -> int:
    """Operations of the product of two square matrices with `size` rows: 2 size^3."""
    return 2 * size**3
