"""normlab: learning-rate windows, NaN onset and stability of norms and placements in a toy decoder."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    # pandas is imported only by those who read results.
    if name == "load":
        from normlab.analysis import load

        return load
    raise AttributeError(f"module 'normlab' has no attribute '{name}'")
