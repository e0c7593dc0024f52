"""What the benchmark measures on: the net of the article's tables, or a tiny one with `--quick`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from normlab.config.schema import ModelSpec, RunSpec, TaskSpec, TrainSpec

STEPS = 3000  # of a run of the tables
Kind = Literal["naive", "bare", "fused", "plain", "gemm"]
PARTS = 4  # an evaluation is spread: after a quarter of the steps between two, on a quarter of the sequences


@dataclass(frozen=True)
class Recipe:
    """One thing to run again and again: `naive` is a step of plain_toy, `bare` the same without its statistics, `fused`
    and `plain` one of a stack of `lanes` by that engine, `gemm` a product of two square matrices with `size` rows."""

    kind: Kind
    spec: RunSpec = RunSpec()
    lanes: int = 1
    size: int = 0


@dataclass(frozen=True)
class Sizes:
    """How large and how long. `seconds` is the window of one measurement in one round."""

    spec: RunSpec
    rounds: int
    seconds: float
    gemm: int  # rows of the matrices
    lanes: tuple[int, ...]  # of the fused step
    plain_lanes: tuple[int, ...]
    depths: tuple[int, ...]
    depth_rounds: int
    sweeps: tuple[int, int, int]  # numbers of runs
    sweep_steps: int
    sweep_tries: int
    overhead_rounds: int
    starts: int
    jobs: int | None = None  # workers of a sweep; None: what normlab takes
    long_runs: int = 1000
    long_steps: int = 50


def net(depth: int, width: int, hidden: int, batch: int, val_size: int) -> RunSpec:
    """Mean mixer, LayerNorm, Pre-LN, Adam with its defaults, evaluated every 100 steps."""
    return RunSpec(
        task=TaskSpec(val_size=val_size),
        model=ModelSpec(depth=depth, width=width, hidden=hidden),
        train=TrainSpec(steps=STEPS, batch=batch, eval_every=100),
    )


def changed(spec: RunSpec, depth: int | None = None, seed: int | None = None) -> RunSpec:
    """The spec with another depth or seed."""
    model = spec.model if depth is None else spec.model.model_copy(update={"depth": depth})
    return spec.model_copy(update={"model": model, "seed": spec.seed if seed is None else seed})


FULL = Sizes(
    spec=net(depth=20, width=64, hidden=128, batch=32, val_size=512),
    rounds=7,
    seconds=4.0,
    gemm=384,
    lanes=(1, 3, 8),
    plain_lanes=(3, 8),
    depths=(6, 12, 20, 30, 48),
    depth_rounds=3,
    sweeps=(30, 150, 450),
    sweep_steps=20,
    sweep_tries=2,
    overhead_rounds=10,
    starts=3,
)
QUICK = Sizes(
    spec=net(depth=2, width=16, hidden=32, batch=4, val_size=32),
    rounds=2,
    seconds=0.05,
    gemm=64,
    lanes=(1, 2),
    plain_lanes=(2,),
    depths=(1, 2, 4),
    depth_rounds=2,
    sweeps=(1, 3, 9),
    sweep_steps=4,
    sweep_tries=1,
    overhead_rounds=2,
    starts=1,
    jobs=1,
    long_runs=120,
    long_steps=4,
)
