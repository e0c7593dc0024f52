"""`normlab mechanism`: the 20-layer nets of configs/collapse.yaml trained again and watched from inside.

The training is the one of `normlab run configs/collapse.yaml`, step by step and bit by bit; between updates a fixed
part of the validation set is sent through the net and looked at.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from normlab.config.load import load_study, shipped_configs
from normlab.config.schema import RunSpec
from normlab.studies.mechanism_watch import Watched, watch

QUESTION = "What happens inside the 20-layer net without norm: do forward norms jump, does the GELU saturate?"
NORMS = ("none", "layernorm")
SEEDS = (0, 1, 2)
QUICK_STEPS = 300
RULES = [
    "Watched before the first update, after every 10th to step 500 and after every 50th from there, on the first 64"
    " sequences of the validation set",
    "Forward norm: mean over tokens of the L2 norm of the residual stream, the largest over embedding and blocks",
    "Saturated: inputs x of the GELU with |x| > 3, where its slope is within 0.012 of 0 or 1, so that it is as good as"
    " switched off or linear; off: those below -3 alone, which pass no gradient",
    "Gradient norm: of the training loss, whole net, at the weights of that step",
    "Growth a layer: last forward norm over that of the embedding, to the power of 1 over the number of layers, less 1",
]


def collapse_spec() -> RunSpec:
    """The base run of the shipped collapse study at its first learning rate."""
    path = next(path for path in shipped_configs() if path.stem == "collapse")
    study = load_study(path)
    rate = next(axis.points[0].settings["optim.lr"] for axis in study.axes if axis.name == "optim.lr")
    return changed(study.base, optim={"lr": rate})


def changed(spec: RunSpec, seed: int | None = None, **sections: dict[str, Any]) -> RunSpec:
    """`spec` with some fields of its sections replaced."""
    tree = spec.model_dump()
    for section, fields in sections.items():
        tree[section] |= fields
    return RunSpec.model_validate(tree | ({} if seed is None else {"seed": seed}))


def measure(
    quick: bool, say: Callable[[str], None], base: RunSpec | None = None, seeds: Sequence[int] = SEEDS
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and values by ledger id; a process of one thread a condition. `quick`: 300 steps of seed 0."""
    base = base or collapse_spec()
    full = base.train.steps
    if quick:
        steps = min(QUICK_STEPS, full)
        seeds, base = seeds[:1], changed(base, train={"steps": steps, "eval_every": min(base.train.eval_every, steps)})
    conditions = {
        norm: [changed(base, seed, model={"norm": norm, "placement": "pre"}) for seed in seeds] for norm in NORMS
    }
    found = _in_processes(conditions, say)
    shortened = [f"{full} steps -> {base.train.steps}", f"seed {seeds[0]} only"] if quick else []
    settings: dict[str, Any] = {"seeds": list(seeds), "steps": base.train.steps, "rules": RULES, "shortened": shortened}
    settings["spec"] = conditions["layernorm"][0].model_dump(mode="json")
    return settings, _values(found, list(seeds))


def _values(found: dict[str, Watched], seeds: list[int]) -> dict[str, Any]:
    rows = [{"norm": norm, **row} for norm, watched in found.items() for row in watched.rows]
    mechanism: dict[str, Any] = {
        "rows": rows,
        "profiles": [{"norm": norm, **profile} for norm, watched in found.items() for profile in watched.profiles],
        "largest_forward_norm": {norm: _peak(rows, norm, seeds, "largest_forward_norm") for norm in found},
        "largest_token_norm": {norm: _peak(rows, norm, seeds, "largest_token_norm") for norm in found},
        "largest_grad_norm": {norm: _by_seed(seeds, watched.largest_grad_norm) for norm, watched in found.items()},
        "onset_step": {norm: _by_seed(seeds, watched.onset) for norm, watched in found.items()},
    }
    for share in ("saturated_share", "off_share"):
        mechanism[share] = {}
        for norm in found:
            mechanism[share][f"{norm}_start"] = _at(rows, norm, seeds, share, first=True)
            mechanism[share][f"{norm}_peak"] = _peak(rows, norm, seeds, share)
            mechanism[share][f"{norm}_end"] = _at(rows, norm, seeds, share, first=False)
    growth = {
        f"at_{when}": _at(rows, "layernorm", seeds, "growth_per_layer", first=when == "start")
        for when in ("start", "end")
    }
    return {"collapse-mechanism": mechanism, "growth-in-training": growth}


def _of(rows: list[dict[str, Any]], norm: str, seed: int, key: str) -> list[float | None]:
    return [row[key] for row in rows if row["norm"] == norm and row["seed"] == seed]


def _peak(rows: list[dict[str, Any]], norm: str, seeds: list[int], key: str) -> dict[str, Any]:
    """The largest finite value that was seen, by seed."""
    finite = [[value for value in _of(rows, norm, seed, key) if value is not None] for seed in seeds]
    return _by_seed(seeds, [max(values, default=None) for values in finite])


def _at(rows: list[dict[str, Any]], norm: str, seeds: list[int], key: str, first: bool) -> dict[str, Any]:
    return _by_seed(seeds, [_of(rows, norm, seed, key)[0 if first else -1] for seed in seeds])


def _by_seed(seeds: list[int], values: Sequence[float | None]) -> dict[str, Any]:
    return {"by_seed": {str(seed): value for seed, value in zip(seeds, values, strict=True)}}


def _in_processes(conditions: dict[str, list[RunSpec]], say: Callable[[str], None]) -> dict[str, Watched]:
    """Watch every condition in a spawned process of its own, side by side. A child that dies is a RuntimeError."""
    context = multiprocessing.get_context("spawn")
    pipes: dict[Connection, str] = {}
    children = []
    try:
        for norm, specs in conditions.items():
            ours, theirs = context.Pipe(duplex=False)
            child = context.Process(target=_child, args=(theirs, specs), daemon=True)
            child.start()
            theirs.close()
            children.append(child)
            pipes[ours] = norm
        return _collect(pipes, say)
    finally:
        for child in children:
            child.terminate()
            child.join()


def _collect(pipes: dict[Connection, str], say: Callable[[str], None]) -> dict[str, Watched]:
    found: dict[str, Watched] = {}
    order = list(pipes.values())
    while pipes:
        for pipe in wait(list(pipes)):
            assert isinstance(pipe, Connection)
            norm = pipes[pipe]
            try:
                message = pipe.recv()
            except EOFError:
                raise RuntimeError(f"the watched run with norm {norm} died") from None
            if isinstance(message, Watched):
                found[norm] = message
                del pipes[pipe]
            else:
                say(f"norm {norm}: {message}")
    return {norm: found[norm] for norm in order}


def _child(pipe: Connection, specs: list[RunSpec]) -> None:
    # Ctrl-C reaches the whole group; the parent ends its children itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    pipe.send(watch(specs, pipe.send))
