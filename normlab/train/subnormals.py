"""Subnormal numbers (below 1.2e-38 in float32) count as zero wherever a net is computed.

A CPU takes a hundred times as long for one of them, and the moments of a net that has stopped learning decay into them:
its steps would take up to 15 times as long for good. The setting belongs to a thread; it is on while a net is computed
and put back afterwards, so that data, files and whoever called are not touched. A GPU keeps its subnormals, at no cost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from normlab.catalogue.lazy import Lazy

if TYPE_CHECKING:
    import torch
else:
    torch = Lazy("torch")

# What manifest.json says of all workers; timing.json says whether the CPU of a run could.
SETTING = {"flush_subnormals": True}


@contextmanager
def flushing() -> Iterator[None]:
    """Flush subnormal numbers to zero in this thread meanwhile, if its CPU can."""
    before = flushes()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def flushes() -> bool:
    """Whether this thread flushes now, seen from a number."""
    return sys.float_info.min / 2 == 0.0


def can_flush() -> bool:
    """Whether this CPU flushes when it is told to."""
    with flushing():
        return flushes()
