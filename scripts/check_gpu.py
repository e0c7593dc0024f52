"""Checks on a GPU: do its curves agree with the CPU's, does the captured step equal the called one, how fast is it?

    python scripts/check_gpu.py [--json FILE] [--steps N]

1. agreement: a few lanes of three structures for 100 steps on both devices, in float64 (relative 1e-8: only the order
   of sums differs) and in float32 (0.001 nats), at rates at which training does not enlarge roundings.
2. company: two of these lanes alone and the same among 24 others, to the same tolerances. Not bit for bit as on the
   CPU: for other sizes the GPU's libraries choose other kernels, which sum in another order.
3. capture: the same lanes with the step called from Python and replayed from a CUDA graph, under deterministic
   algorithms: every number of every record equal.
4. time: table 1 of section 6.3 with five seeds (100 runs of 3000 steps) through `train_stack`, against the plain loop
   of `plain_toy.py` on the same GPU, one run after the other, extrapolated from 100 steps of the four nets.

Exits 1 if a check fails; 0, saying so, where there is no CUDA device. Takes a few minutes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from datetime import date
from typing import Any

# Has to be set before cuBLAS starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import torch
from bench.work import Naive

from normlab.config.schema import RunSpec, Thresholds
from normlab.store import RunRecord, curve_csv, strict_json
from normlab.train import loop
from normlab.train.program import Eager, Program
from normlab.train.stack import Stack

CHECK_STEPS, NAIVE_STEPS, COMPANY = 100, 100, 24
TOLERANCES = {"float64": 1e-8, "float32": 1e-3}
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
STRUCTURES = (("pre", 12, "layernorm"), ("post", 12, "layernorm"), ("pre", 20, "none"))
NETS = tuple(itertools.product(("post", "pre"), (12, 30)))


def spec(placement: str, depth: int, norm: str, lr: float, seed: int, **train: Any) -> RunSpec:
    """A run of the default reading."""
    model = {"placement": placement, "depth": depth, "norm": norm}
    return RunSpec.model_validate({"model": model, "optim": {"lr": lr}, "train": train, "seed": seed})


def lanes(structure: tuple[str, int, str], precision: str) -> list[RunSpec]:
    """Three calm lanes, and one that becomes non-finite where nothing is normalised.

    Calm: at these rates 100 steps do not enlarge a rounding. At 3e-3 (1e-3 without norm) they do, without end: two
    orders of the same sum on one CPU end 0.15 nats apart, in float64 too."""
    train: dict[str, Any] = {"steps": CHECK_STEPS, "eval_every": 50, "precision": precision}
    rates = (1e-4, 2e-4, 3e-4, 1e30 if structure[2] == "none" else 1e-3)
    return [spec(*structure, lr, seed, **train) for seed, lr in enumerate(rates)]


def train(specs: list[RunSpec], device: str) -> list[RunRecord]:
    """Their records."""
    return loop.train_stack(specs, thresholds=Thresholds(), device=device)


def compared(name: str, precision: str, ours: list[RunRecord], theirs: list[RunRecord]) -> dict[str, Any]:
    """The row that says how far the training losses of two records of each lane are apart at most."""
    worst, same = 0.0, True
    for one, other in zip(ours, theirs, strict=True):
        same &= one.run["outcome"] == other.run["outcome"] and one.run["onset"] == other.run["onset"]
        a, b = (np.array(record.curve["train_loss"][1:], dtype=float) for record in (one, other))
        both = np.isfinite(a[: len(b)]) & np.isfinite(b[: len(a)])
        gap = np.abs(a[: len(b)] - b[: len(a)])[both]
        worst = max(worst, float((gap / np.abs(a[: len(b)])[both] if precision == "float64" else gap).max()))
    tolerance = TOLERANCES[precision]
    return {"check": name, "found": worst, "allowed": tolerance, "same_end": same,
            "passed": same and worst <= tolerance}  # fmt: skip


def agreement(device: str) -> list[dict[str, Any]]:
    """The largest difference of the training losses between CPU and GPU, by structure and precision."""
    rows = []
    for structure, precision in itertools.product(STRUCTURES, TOLERANCES):
        specs, name = lanes(structure, precision), f"agreement {' '.join(map(str, structure))} {precision}"
        rows.append(compared(name, precision, train(specs, "cpu"), train(specs, device)))
    return rows


def company(device: str) -> list[dict[str, Any]]:
    """The largest difference of the training losses of a lane alone and the same lane among `COMPANY` others: a calm
    lane and the last one, which may become non-finite."""
    rows = []
    for structure, precision in itertools.product(STRUCTURES, TOLERANCES):
        specs, name = lanes(structure, precision), f"company {' '.join(map(str, structure))} {precision}"
        chosen = [specs[1], specs[-1]]
        others = [specs[k % 3].model_copy(update={"seed": 100 + k}) for k in range(COMPANY)]
        # In the midst of the others, not at an end.
        together = train(others[::2] + chosen + others[1::2], device)[len(others[::2]) :][: len(chosen)]
        alone = [record for one in chosen for record in train([one], device)]
        rows.append(compared(name, precision, alone, together))
    return rows


def written(records: list[RunRecord]) -> list[str]:
    """Everything of the records but their circumstances."""
    return [strict_json(record.run) + curve_csv(record.curve) for record in records]


def capture(device: str) -> list[dict[str, Any]]:
    """Records of called and of replayed steps, compared to the last bit."""
    rows = []
    torch.use_deterministic_algorithms(True)
    real = loop.program_for

    def eager(stack: Stack) -> Program:
        return Eager(stack)

    try:
        for structure, precision in itertools.product(STRUCTURES, ("float32", "bfloat16")):
            specs = lanes(structure, precision)
            replayed = written(train(specs, device))
            loop.program_for = eager
            called = written(train(specs, device))
            loop.program_for = real
            equal = sum(a == b for a, b in zip(replayed, called, strict=True))
            name = f"capture {' '.join(map(str, structure))} {precision}"
            rows.append({"check": name, "found": equal, "allowed": len(specs), "passed": equal == len(specs)})
    finally:
        loop.program_for = real
        torch.use_deterministic_algorithms(False)
    return rows


def naive_seconds(placement: str, depth: int, device: str) -> float:
    """Seconds a step of the plain loop: one run, torch.optim.Adam, the loss read every step as such loops do."""
    work = Naive(spec(placement, depth, "layernorm", 1e-3, 0), bare=True, device=device)

    def step() -> None:
        work.step()
        work.loss.item()

    for _ in range(10):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(NAIVE_STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / NAIVE_STEPS


def timing(device: str, steps: int, seeds: int = 5) -> dict[str, Any]:
    """Seconds of the whole table, ours (evaluations and records included) against the plain loop (steps only)."""
    started, runs = time.perf_counter(), 0
    for placement, depth in NETS:
        specs = [
            spec(placement, depth, "layernorm", lr, seed, steps=steps, eval_every=100)
            for lr in RATES
            for seed in range(seeds)
        ]
        runs += len(train(specs, device))
    ours = time.perf_counter() - started
    naive = sum(naive_seconds(placement, depth, device) for placement, depth in NETS) * len(RATES) * seeds * steps
    return {"runs": runs, "steps": steps, "seconds": ours, "naive_seconds": naive, "speedup": naive / ours}


def main() -> int:
    """Run the checks; print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write what was found there")
    parser.add_argument("--steps", type=int, default=3000, help="steps of the timed table")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device")
        return 0
    device = "cuda:0"
    card = torch.cuda.get_device_name(0)
    print(f"{card}, torch {torch.__version__}, {date.today()}", flush=True)
    rows = []
    for check in (agreement, company, capture):
        for row in check(device):
            print(
                f"{'pass' if row['passed'] else 'FAIL'}  {row['check']}: {row['found']:.3g} of {row['allowed']:g}",
                flush=True,
            )
            rows.append(row)
    timed = timing(device, options.steps)
    print("time  {runs} runs of {steps} steps: {seconds:.1f} s; plain loop {naive_seconds:.0f} s (extrapolated): "
          "{speedup:.0f} times".format(**timed))  # fmt: skip
    if options.json:
        found = {"card": card, "torch": torch.__version__, "date": str(date.today()), "checks": rows, "time": timed}
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)
    return 0 if all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
