"""The memory that a stack is said to take does not include what was there and gone before it."""

from __future__ import annotations

import mmap
import sys

import pytest

from normlab.train.circumstances import describe_machine, reset_peak_memory

MEGABYTES = 200


def touch(megabytes: int) -> None:
    """Use so much memory, page by page, and give it back to the system."""
    with mmap.mmap(-1, megabytes << 20) as block:
        for page in range(0, megabytes << 20, mmap.PAGESIZE):
            block[page] = 1


def peak() -> float:
    return describe_machine("cpu", 1.0, 1)["peak_memory_mb"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget the largest resident memory")
def test_peak_memory_starts_anew() -> None:
    reset_peak_memory("cpu")
    before = peak()
    touch(MEGABYTES)
    assert peak() > before + 0.9 * MEGABYTES
    reset_peak_memory("cpu")
    assert peak() < before + 0.5 * MEGABYTES
