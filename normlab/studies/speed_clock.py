"""How a call is timed on each kind of device, and how times are summed up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils.benchmark import Timer

Call = Callable[[], object]
LOW, HIGH = 20, 80  # percentiles


def times(call: Call, seconds: float, device: str) -> list[float]:
    """Seconds a call, one value a block of calls, for about `seconds` in all and at least one block."""
    return cuda_times(call, seconds, device) if device.startswith("cuda") else cpu_times(call, seconds)


def cpu_times(call: Call, seconds: float) -> list[float]:
    """With torch's Timer, which finds the number of calls that makes its own overhead small; one thread."""
    timer = Timer("call()", globals={"call": call}, num_threads=1)
    return [float(t) for t in timer.blocked_autorange(min_run_time=seconds).times]


def cuda_times(call: Call, seconds: float, device: str) -> list[float]:
    """With events on the device's own clock, so that the host's time counts only where the device waits for it."""
    calls, spent = 1, 0.0
    found: list[float] = []
    with torch.cuda.device(device):
        while spent < seconds:
            block = _cuda_block(call, calls)
            spent += block
            if block < seconds / 20 and calls < 10_000:  # Too short to be read; the next one is longer.
                calls *= 10
            else:
                found.append(block / calls)
    return found


def _cuda_block(call: Call, calls: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3  # It gives milliseconds.


def wait_for(device: str) -> None:
    """Until the device has done what it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def summary(values: Sequence[float]) -> dict[str, float | int]:
    """Median, 20th and 80th percentile (linear between neighbours), and how many values there were."""
    low, median, high = np.percentile(values, [LOW, 50, HIGH])
    return {"median": float(median), "low": float(low), "high": float(high), "n": len(values)}


def saved(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float | int]:
    """By which share `ours` is faster than `theirs`, paired by round; negative where it is slower."""
    return summary([1 - a / b for a, b in zip(ours, theirs, strict=True)])


def free_memory(device: str) -> int | None:
    """Bytes that can be had now; None where the system does not say."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
