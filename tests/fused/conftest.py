"""The library, compiled once; without a compiler the tests that need it are skipped."""

from __future__ import annotations

import pytest

from normlab.fused.build import CannotCompile, Library, cpu_level, find_compiler, load


@pytest.fixture(scope="session")
def library() -> Library:
    """A machine that has what it takes and cannot compile the step fails; it is not skipped."""
    try:
        cpu_level(), find_compiler()
    except (CannotCompile, OSError) as reason:
        pytest.skip(str(reason))
    return load()
