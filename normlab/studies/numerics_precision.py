"""Which eps and which scale of values survive as float16 and bfloat16 when a norm takes its statistics in them.

torch's own kernels take them in float32; this is what a norm written out in the low precision does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from normlab.studies.numerics_nets import seeded

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
EPS = (1e-5, 1e-6, 1e-8)
SHAPE = (64, 512)
SCALES = [10.0**k for k in range(4, -7, -1)]


def fp16_eps() -> dict[str, Any]:
    """Stored value of each eps by dtype; bounds of the dtype; and the statistics of values of many scales.

    underflow_scale   the largest number whose square is 0 in the dtype: smaller values have no variance
    overflow_scale    the largest number whose square is finite: larger values have an infinite one
    rows              by dtype and scale: variance in that dtype, the share of tokens whose variance is 0 or not finite,
                      root mean square of the normalised output for each eps
    """
    found: dict[str, Any] = {"stored_eps": {}, "underflow_scale": {}, "overflow_scale": {}, "rows": []}
    with seeded(0):
        unit = torch.randn(SHAPE, dtype=torch.float64)
    for name, dtype in DTYPES.items():
        found["stored_eps"][name] = {f"{eps:g}": float(torch.tensor(eps, dtype=dtype)) for eps in EPS}
        found["underflow_scale"][name] = _largest(dtype, lambda square: square == 0)
        found["overflow_scale"][name] = _largest(dtype, lambda square: math.isfinite(square))
        found["rows"] += [{"dtype": name, **_at_scale(unit, scale, dtype)} for scale in SCALES]
    return found


def _largest(dtype: torch.dtype, holds: Callable[[float], bool]) -> float:
    """The largest number of the dtype for whose square, computed in it, `holds` is true; found by bisection."""
    low, high = -80.0, 70.0  # powers of 2: it holds at the one and not at the other
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(_square(middle, dtype)) else (low, middle)
    return float(torch.tensor(2.0**low, dtype=dtype))


def _square(power: float, dtype: torch.dtype) -> float:
    return float(torch.tensor(2.0**power, dtype=dtype).square())


def _at_scale(unit: Tensor, scale: float, dtype: torch.dtype) -> dict[str, Any]:
    x = (unit * scale).to(dtype)
    # Rounded after every operation, as a norm written in the low precision rounds.
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    row: dict[str, Any] = {
        "scale": scale,
        "true_variance": scale**2,
        "variance": float(variance.double().mean()),
        "zero": float((variance == 0).double().mean()),
        "infinite": float((~variance.isfinite()).double().mean()),
    }
    for eps in (*EPS, 0.0):
        out = centred / torch.sqrt(variance + torch.tensor(eps, dtype=dtype))
        row[f"rms_eps_{eps:g}"] = float(out.double().square().mean().sqrt())
    return row
