"""The C++ step of scripts/fused against the package's own: gradients, twenty steps, lanes in company, and its speed.

    python scripts/check_fused.py [--speed]

A trial: nothing in the package uses the C++ step yet. Needs a C++ compiler and a CPU with AVX2; compiling takes some
seconds once and leaves a library in the user's cache. --speed times whole steps at 20 layers (CPU time of this process,
fastest of interleaved tries, so a busy machine matters little): the plain script, the package, the C++ step. Exit code
1 if something differs.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from bench.flops import run_step_flops
from bench.sizes import FULL
from bench.work import Gemm, Lanes, Naive, lane_specs
from fused.build import built
from fused.fused import MIXERS, NORMS, PLACEMENTS
from fused.stack import FusedStack

from normlab.config.schema import RunSpec
from normlab.execute.worker import keep_freed_memory
from normlab.train.optim import rate
from normlab.train.stack import Stack
from normlab.train.tasks import TASKS, TrainingData

# Of the largest entry over all leaves. float64: rounding. float32: both have that error against float64.
GRADIENTS = {"float64": 1e-12, "float32": 3e-6}
STEPS = {"float64": 1e-10, "float32": 1e-3}
SIZES: tuple[dict[str, Any], ...] = (
    {"width": 12, "hidden": 20, "vocab": 13, "length": 7, "batch": 5},
    {"width": 64, "hidden": 128, "vocab": 64, "length": 16, "batch": 8},
    {"width": 17, "hidden": 33, "vocab": 5, "length": 2, "batch": 1},
    {"width": 35, "hidden": 70, "vocab": 31, "length": 40, "batch": 3, "loss_on": "last"},
)


def spec_of(net: tuple[str, str, str], precision: str, sizes: dict[str, Any], seed: int, **optim: Any) -> RunSpec:
    """A run of two layers with that norm, placement and mixer."""
    norm, placement, mixer = net
    task = {"vocab": sizes["vocab"], "length": sizes["length"], "loss_on": sizes.get("loss_on", "all"), "val_size": 16}
    model = {"depth": 2, "width": sizes["width"], "hidden": sizes["hidden"]}
    model |= {"norm": norm, "placement": placement, "mixer": mixer}
    train = {"steps": 50, "batch": sizes["batch"], "precision": precision}
    return RunSpec.model_validate({"task": task, "model": model, "train": train, "optim": optim, "seed": seed})


def gradients_differ(specs: list[RunSpec]) -> float:
    """Largest difference of loss or gradient, of the largest entry, at weights away from the start."""
    plain, fused = Stack(specs), FusedStack(specs)
    generator = torch.Generator().manual_seed(1)
    noise_SP = 0.1 * torch.randn(plain.params_SP.shape, generator=generator, dtype=torch.float64)
    for stack in (plain, fused):
        stack.params_SP.add_(noise_SP.to(stack.params_SP.dtype))
    s = specs[0]
    tokens_SBT = torch.randint(0, s.task.vocab, (len(specs), s.train.batch, s.task.length + 1), generator=generator)
    pairs = zip(plain.gradients(tokens_SBT), fused.gradients(tokens_SBT), strict=True)
    return max(float((one - two).abs().max() / one.abs().max()) for one, two in pairs)


def trained(kind: type[Stack], specs: list[RunSpec], steps: int = 20, ruined: int | None = 10) -> tuple[Any, Any]:
    """Parameters and statistics of some steps; lane 1 gets a NaN before step `ruined`."""
    stack = kind(specs)
    task = TASKS[specs[0].task.name](specs[0].task)
    data, stats = [TrainingData(task, spec) for spec in specs], []
    for step in range(1, steps + 1):
        if step == ruined:
            stack.params_SP[1, 5] = float("nan")
        rates = np.array([[rate(spec, step) for spec in specs]])
        inputs = stack.inputs(step, np.stack([[lane.next() for lane in data]]), rates)
        stats.append(torch.stack([torch.as_tensor(x).double() for x in stack.step(inputs.at(0))]))
    return stack.params_SP, torch.stack(stats)


def steps_differ(specs: list[RunSpec]) -> float:
    """The same of parameters after twenty steps, in the lanes that live; infinite if a flag is another one."""
    (plain_SP, plain_KNS), (fused_SP, fused_KNS) = (trained(kind, specs) for kind in (Stack, FusedStack))
    if not torch.equal(plain_KNS[:, 2:], fused_KNS[:, 2:]):
        return float("inf")
    live = [0, 2]
    return float((plain_SP - fused_SP)[live].abs().max() / plain_SP[live].abs().max())


def company_differs(specs: list[RunSpec]) -> bool:
    """Whether a lane's bits are others beside two more than alone."""
    alone, _ = trained(FusedStack, specs[:1], ruined=None)
    together, _ = trained(FusedStack, specs, ruined=10)
    return not torch.equal(alone[0], together[0])


def check() -> int:
    """All nets; the number of those that differ."""
    bad = 0
    for precision in GRADIENTS:
        worst = {"gradients": 0.0, "steps": 0.0}
        for net in itertools.product(NORMS, PLACEMENTS, MIXERS):
            for sizes in SIZES:
                found = gradients_differ([spec_of(net, precision, sizes, seed) for seed in (0, 1)])
                worst["gradients"] = max(worst["gradients"], found)
                bad += not found < GRADIENTS[precision]
            for optim in ({"name": "adam"}, {"name": "adamw", "clip": 0.5, "weight_decay": 0.1}):
                lanes = [spec_of(net, precision, SIZES[0], seed, lr=1e-3 * (seed + 1), **optim) for seed in range(3)]
                found = steps_differ(lanes)
                worst["steps"] = max(worst["steps"], found)
                bad += (not found < STEPS[precision]) + company_differs(lanes)
        gradients, steps = (f"{worst[what]:.1e}" for what in ("gradients", "steps"))
        print(f"{precision}: largest difference of {gradients} in gradients, {steps} after steps")
    print(f"{bad} differ" if bad else "all agree, and a lane's bits are the same alone and in company")
    return bad


def fastest(call: Callable[[], object], tries: int, best: float) -> float:
    """CPU seconds of the fastest of some calls, or `best`."""
    for _ in range(tries):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def speed(lanes: int, rounds: int = 6) -> None:
    """Whole steps without evaluations, as shares of the matrix product."""
    spec, gemm = FULL.spec, Gemm(384)
    works: dict[str, Any] = {"plain script": Naive(spec), "package": Lanes(Stack(lane_specs(spec, lanes)))}
    works["C++ step"] = Lanes(FusedStack(lane_specs(spec, lanes)))
    best, product = dict.fromkeys(works, float("inf")), float("inf")
    for _ in range(rounds):
        product = fastest(gemm.step, 40, product)
        for name, work in works.items():
            best[name] = fastest(work.step, 10, best[name])
    peak = 2 * 384**3 / product
    for name, seconds in best.items():
        each = seconds / (1 if name == "plain script" else lanes)
        share, ratio = run_step_flops(spec) / each / peak, best["plain script"] / each
        took = f"{each * 1e3:.1f} ms a run-step, {share:.0%} of {peak / 1e9:.0f} GFLOP/s"
        print(f"{lanes} lanes, {name}: {took}, {ratio:.2f} times the plain script")


def main() -> int:
    """Read the options, check, time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true", help="time whole steps at 20 layers too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    if built().library is None:
        print(built().why_not, file=sys.stderr)
        return 1
    print(f"{built().compiler}, {built().level}")
    bad = check()
    for lanes in (1, 3) if options.speed else ():
        speed(lanes)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
