"""One thread a process, as the package's workers have: more would only wait for each other on nets this small. The
fused step is compiled before the first test, so that no command says that it compiles."""

from __future__ import annotations

import os

import pytest

from normlab.fused.build import CannotCompile, Library, cpu_level, find_compiler, load

# Read when torch is first imported, which is after this file; processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def compiled() -> Library | CannotCompile:
    """The fused step, or why this machine has none. A machine that has what it takes and fails to compile is an error:
    nothing is skipped there."""
    try:
        cpu_level(), find_compiler()
    except (CannotCompile, OSError) as reason:
        return reason if isinstance(reason, CannotCompile) else CannotCompile(str(reason))
    return load()


@pytest.fixture(scope="session")
def library(compiled: Library | CannotCompile) -> Library:
    """The fused step; without a compiler the tests that need it are skipped."""
    if isinstance(compiled, CannotCompile):
        pytest.skip(str(compiled))
    return compiled
