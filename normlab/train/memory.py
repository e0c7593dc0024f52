"""How many lanes fit into the memory of a GPU; on the CPU a stack is as large as it was cut."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch

from normlab.config.schema import RunSpec

SHARE = 0.8  # of the free memory: kernels need room to work in, and the estimate is one


def free_bytes(device: str) -> int | None:
    """Free memory of a GPU; None on the CPU."""
    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else None


def lane_bytes(spec: RunSpec) -> int:
    """Estimate of what a lane keeps between its forward and its backward pass, with its parameters and moments.

    A block keeps about ten tensors of the stream's size (norms, sums, inputs of the products) and two of the hidden
    layer's; the loss keeps logits three times; parameters come with gradient (twice), two moments and a scratch row."""
    model, tokens = spec.model, spec.train.batch * spec.task.length
    block = tokens * (10 * model.width + 2 * model.hidden)
    weights = model.depth * model.width * (model.width + 2 * model.hidden) + 2 * model.width * spec.task.vocab
    numbers = model.depth * block + 3 * tokens * spec.task.vocab + 6 * weights
    return numbers * (8 if spec.train.precision == "float64" else 4)


def lanes_that_fit(specs: Sequence[RunSpec], device: str) -> list[Sequence[RunSpec]]:
    """`specs` in parts of nearly one size that should fit; one part where memory is not asked."""
    free = free_bytes(device)
    if free is None:
        return [specs]
    most = max(1, int(SHARE * free) // lane_bytes(specs[0]))
    parts = -(-len(specs) // most)
    ends = [round(len(specs) * part / parts) for part in range(parts + 1)]
    return [specs[a:b] for a, b in zip(ends, ends[1:], strict=False)]


def halves(specs: Sequence[RunSpec], device: str) -> list[Sequence[RunSpec]]:
    """Two halves of lanes that turned out not to fit, after what the attempt held is given back."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    middle = len(specs) // 2
    return [specs[:middle], specs[middle:]]
