"""What a record says beside the curve: the net as it was built, and the machine that it ran on."""

from __future__ import annotations

import platform
import resource
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

import normlab
from normlab.model.decoder import Block
from normlab.model.norms import Norm
from normlab.model.norms.base import Identity
from normlab.train.code import code_digest
from normlab.train.log import shortest
from normlab.train.stack import Stack
from normlab.train.subnormals import can_flush


def describe_built(stack: Stack, peak_rate_S: np.ndarray) -> list[dict[str, Any]]:
    """For each lane what was built and used, read back from the modules and the rates, not from the config."""
    model = stack.model
    norms = [m for m in model.blocks.modules() if isinstance(m, Norm) and not isinstance(m, Identity)]
    block = model.blocks[0]
    assert isinstance(block, Block)
    shared = {
        "parameters": stack.params_SP.shape[1],
        "depth": len(model.blocks),
        "placement": type(block.mixer_placement).__name__,
        "mixer": type(block.mixer).__name__,
        "norm": type(norms[0]).__name__ if norms else "Identity",
        "norms": len(norms),
        "options": built_options(stack),
        "final_norm": type(model.final_norm).__name__,
        "dtype": str(stack.params_SP.dtype).removeprefix("torch."),
        "product_dtype": str(model.head.low or stack.params_SP.dtype).removeprefix("torch."),
        "stream_dtype": str(model.stream_dtype).removeprefix("torch."),
        "optimizer": type(stack.optimizer).__name__,
    }
    # The peak of the rates that were really fed to the update; below the config's lr if a run ended during warm-up.
    return [{**shared, "lr": shortest(peak)} for peak in peak_rate_S]


def built_options(stack: Stack) -> dict[str, dict[str, Any]]:
    """The options that the entries of the net were built with, defaults included, by kind; those that have any."""
    spec, block = stack.specs[0], stack.model.blocks[0]
    assert isinstance(block, Block)
    parts = {"norm": next(iter(block.mixer_norms), None), "placement": block.mixer_placement, "mixer": block.mixer}
    found = {of: part.options.all() for of, part in parts.items() if part is not None}
    found |= {
        "init": spec.model.init_options.all(),
        "task": spec.task.options.all(),
        "optimizer": spec.optim.options.all(),
    }
    return {of: options for of, options in found.items() if options}


def reset_peak_memory(device: str) -> None:
    """Forget the largest memory so far, so that the next reading speaks of what follows (not everywhere possible)."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def describe_machine(device: str, seconds: float, lanes: int) -> dict[str, Any]:
    """Circumstances of a stack, for timing.json: a run's own seconds are its share of the stack's."""
    on_cuda = device.startswith("cuda")
    peak = torch.cuda.max_memory_allocated(device) / 1e6 if on_cuda else _peak_rss_mb()
    return {
        "seconds": seconds / lanes,
        "stack_seconds": seconds,
        "stack_lanes": lanes,
        "peak_memory_mb": peak,
        "device": device,
        "device_name": torch.cuda.get_device_name(device) if on_cuda else platform.machine(),
        "threads": torch.get_num_threads(),
        "flush_subnormals": can_flush(),
        "torch": torch.__version__,
        "normlab": normlab.__version__,
        "code": code_digest(),
        "host": platform.node(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _peak_rss_mb() -> float:
    """Largest resident memory of this process since `reset_peak_memory`, in megabytes; since its start where the system
    cannot forget."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1.024e-3 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1.024e-3
