"""Where a printed number does not come out: which setting of a small stated family comes nearest, and how near.

The distance is the root mean square of measured minus printed, over the numbers that the article prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from normlab.studies.numerics_nets import (
    linear_stack,
    mean_and_variance,
    ragged,
    residual_gradients,
    seeded,
    sublayer,
)
from normlab.studies.numerics_printed import PRINTED

Candidates = Iterator[tuple[str, dict[str, Any]]]

LENGTHS = [5, 12, 30, 200]


def at(values: Mapping[str, Any], path: str) -> float:
    """The number at a dotted path: `norms.3`, `k4.0`."""
    found: Any = values
    for key in path.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return float(found)


def distance(printed: Mapping[str, str], values: Mapping[str, Any]) -> float:
    """Root mean square of what is measured minus what is printed."""
    squares = [(at(values, path) - float(text.removeprefix("~"))) ** 2 for path, text in printed.items()]
    return math.sqrt(sum(squares) / len(squares))


def nearest(ledger_id: str, candidates: Candidates) -> dict[str, Any]:
    """The candidate with the smallest distance: `setting`, its values, `distance`, and how many were `tried`."""
    printed, tried = PRINTED[ledger_id], 0
    best: tuple[float, str, dict[str, Any]] = (math.inf, "", {})
    for setting, values in candidates:
        tried += 1
        best = min(best, (distance(printed, values), setting, values), key=lambda found: found[0])
    return {"setting": best[1], "distance": best[0], "tried": tried, **best[2]}


STACK_FAMILY = (
    "weights of standard deviation c / sqrt(d) for c = 0.30, 0.31, 0.32, 0.33 (normal or uniform), widths 32, 64, "
    "128, seeds 0 to 9, input as drawn or every token scaled to norm sqrt(d)"
)


def stacks() -> Candidates:
    """Section 1.1 with weights that shrink a vector by about 0.3 a map."""
    draws: dict[str, Callable[..., Tensor]] = {"normal": torch.randn, "uniform": _unit_uniform}
    family = product((0.30, 0.31, 0.32, 0.33), draws, (32, 64, 128), range(10), (False, True))
    for factor, law, width, seed, scaled in family:
        with seeded(seed):
            x = torch.randn(4, 16, width)
            if scaled:
                x = x * (math.sqrt(width) / x.norm(dim=-1, keepdim=True))
            norms = linear_stack(x, 20, _drawer(draws[law], width, factor / math.sqrt(width)))
        how = "tokens scaled to norm sqrt(d)" if scaled else "tokens as drawn"
        yield f"{law} weights, c = {factor:.2f}, width {width}, seed {seed}, {how}", {"norms": norms}


def _drawer(draw: Callable[..., Tensor], width: int, scale: float) -> Callable[[], Tensor]:
    return lambda: draw(width, width) * scale


def _unit_uniform(*shape: int) -> Tensor:
    """Uniform with standard deviation 1."""
    return (torch.rand(*shape) * 2 - 1) * math.sqrt(3)


BATCH_FAMILY = (
    "seeds 0 to 19, widths 64, 128, 256, 512, 768, the sequences drawn in the printed or the reverse order, "
    "float32 or float64, biased or unbiased variance"
)


def statistics() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Section 1.2: setting, batch statistics and layer statistics, all from the same draws."""
    orders = {"shortest drawn first": LENGTHS, "longest drawn first": LENGTHS[::-1]}
    dtypes = {"float32": torch.float32, "float64": torch.float64}
    for seed, width, order, dtype in product(range(20), (64, 128, 256, 512, 768), orders, dtypes):
        with seeded(seed):
            sequences = sorted(ragged(orders[order], width, dtypes[dtype]), key=len)
        for correction, kind in enumerate(("biased", "unbiased")):
            yield (
                f"seed {seed}, width {width}, {order}, {dtype}, {kind} variance",
                *statistics_of(sequences, correction),
            )


def statistics_of(sequences: list[Tensor], correction: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Mean and variance over all values of the first 4, 2 and 1 sequences; and of each of the first two alone."""
    batch = {f"k{k}": mean_and_variance(torch.cat(sequences[:k]), correction) for k in (4, 2, 1)}
    return batch, {"sequences": [mean_and_variance(sequence, correction) for sequence in sequences[:2]]}


GRADIENT_FAMILY = (
    "seeds 0 to 9, width 32 or 64, hidden once, twice or four times the width, six inits (torch's, xavier uniform "
    "and normal, kaiming uniform and normal, orthogonal; biases as torch draws them), the net or x drawn first, a "
    "second x or the same one without the residual, float32 or float64"
)
_INITS: dict[str, Callable[[Tensor], Any]] = {
    "torch's init": lambda weight: None,
    "xavier uniform": nn.init.xavier_uniform_,
    "xavier normal": nn.init.xavier_normal_,
    "kaiming uniform": nn.init.kaiming_uniform_,
    "kaiming normal": nn.init.kaiming_normal_,
    "orthogonal": nn.init.orthogonal_,
}


def gradients() -> Candidates:
    """Section 4.2 under other inits, sizes, seeds and orders of draws."""
    dtypes = {"float32": torch.float32, "float64": torch.float64}
    family = product(range(10), (32, 64), (1, 2, 4), _INITS, (True, False), dtypes)
    for seed, width, factor, init, net_first, dtype in family:
        with seeded(seed):
            early = None if net_first else torch.randn(1, width, dtype=dtypes[dtype])
            net = sublayer(width, factor * width, dtypes[dtype])
            for layer in net:
                if isinstance(layer, nn.Linear):
                    _INITS[init](layer.weight)
            x = torch.randn(1, width, dtype=dtypes[dtype]) if early is None else early
            second = torch.randn(1, width, dtype=dtypes[dtype])
        order = "net drawn first" if net_first else "x drawn first"
        for other, name in ((second, "a second x"), (x.clone(), "the same x")):
            setting = f"{init}, width {width}, hidden {factor * width}, seed {seed}, {order}, {name}, {dtype}"
            yield setting, residual_gradients(net, x.clone(), other)
