"""`normlab speed`: the norms at the article's shapes (sections 3.4 and 6.4), and a whole training step with each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from normlab.studies.speed_model import measure_model
from normlab.studies.speed_norms import ALL, HEADLINES, LN, RMS, Cell
from normlab.studies.speed_shapes import LONGEST, AtShape, Pace, Shape, measure_shape
from normlab.studies.speed_values import shape_values

QUESTION = "Is a hand-written RMSNorm faster than torch's LayerNorm, and what do the norms cost in training?"

# Section 6.4, table 1, and section 3.4: printed medians of a forward call in microseconds.
SHAPES = (
    Shape(4, 128, 512, (21, 18)),
    Shape(8, 256, 1024, (63, 54)),
    Shape(16, 512, 2048, (240, 205)),
    Shape(32, 1024, 4096, (1820, 1540)),
)
SINGLE = Shape(64, 128, 1024, (96, 78))

FULL, QUICK = Pace(rounds=7, visit=0.03, patience=4.0), Pace(rounds=5, visit=0.01, patience=0.5)
MODEL_FULL, MODEL_QUICK = Pace(15, 0.2, LONGEST), Pace(5, 0.1, LONGEST)
SMALL, LARGE = 2**24, 2**28  # bytes of a tensor, see `quick_cells`
PASS_TEXTS = (
    "forward: recorded for a backward pass, as in training",
    "backward: gradients of x and all parameters through a recorded pass",
    "both: the one, then the other",
    "GB/s: the least that a pass must move over its median time (forward: x is read, y written; backward: x and the"
    " gradient are read, one is written; both: the sum)",
)


def quick_cells(shape: Shape) -> tuple[Cell, ...]:
    """What `--quick` times at a shape."""
    if shape.bytes > LARGE:
        return (LN, RMS)
    if shape.bytes > SMALL:
        return HEADLINES
    compiled = ("layernorm", "rmsnorm") if shape.bytes <= 2**21 else ()
    return tuple(cell for cell in ALL if cell.implementation != "compiled" or cell.norm in compiled)


def measure(quick: bool, say: Callable[[str], None], device: str = "cpu") -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and values; see the module of each part for what is measured how."""
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    pace, model_pace = (QUICK, MODEL_QUICK) if quick else (FULL, MODEL_FULL)
    found = []
    for shape in (*SHAPES, SINGLE):
        cells = quick_cells(shape) if quick else ALL
        say(f"{shape.name}: {len(cells)} cells")
        found.append(measure_shape(shape, cells, HEADLINES, pace, device))
    say("training step of the whole net")
    model = measure_model(model_pace, device)
    return _settings(quick, device, load, found), {**shape_values(found, SINGLE.name), **model}


def _settings(quick: bool, device: str, load: float, found: list[AtShape]) -> dict[str, Any]:
    pace, model_pace = (QUICK, MODEL_QUICK) if quick else (FULL, MODEL_FULL)
    faults = sorted({why for at in found for cell, why in at.absent.items() if cell.implementation == "compiled"})
    # Without a norm there is nothing that a compiler would be called for.
    works = any(cell.implementation == "compiled" and cell.norm != "none" for at in found for cell in at.cells)
    settings = {
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "execution": "eager; compiled (torch.compile, inductor, static shapes) where a cell says so",
        "torch": torch.__version__,
        "device": device,
        "clock": "CUDA events" if device.startswith("cuda") else "torch.utils.benchmark.Timer",
        "shapes": [at.shape.name for at in found],
        "rounds": pace.rounds,
        "seconds_per_visit": pace.visit,
        "seconds_per_cell": {"usual": pace.patience, "most": LONGEST, "least_rounds": pace.least},
        "model_rounds": model_pace.rounds,
        "model_seconds_per_visit": model_pace.visit,
        "compile": {"works": works, "faults": faults},
        "load_average_at_start": load,
        "cores": os.cpu_count(),
        "passes": list(PASS_TEXTS),
    }
    if quick:
        settings["shortened"] = [
            f"{FULL.rounds} rounds -> {QUICK.rounds}",
            f"{MODEL_FULL.rounds} rounds of the training step -> {MODEL_QUICK.rounds}",
            f"{1000 * FULL.visit:.0f} ms a visit -> {1000 * QUICK.visit:.0f}",
            "compiled: LayerNorm and RMSNorm at the smallest shape only",
            "16x512x2048, 64x128x1024: forward of torch's LayerNorm, of handwritten RMSNorm and DyT only",
            "32x1024x4096: forward of torch's LayerNorm and of handwritten RMSNorm only",
        ]
    return settings
