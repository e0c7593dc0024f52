"""How the arithmetic of a run is done, where that may change the last digits of a result and never the question."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """`compiled`: blocks fused by torch.compile. `tf32`: matrix products of a GPU in TF32 (10 bits of mantissa)."""

    compiled: bool = False
    tf32: bool = False

    def facts(self) -> dict[str, bool]:
        """What manifest.json and timing.json say of it: that which is on."""
        return {name: True for name, on in vars(self).items() if on}


# The names of these circumstances in manifest.json and timing.json; absent means off.
SWITCHES = tuple(Engine.__dataclass_fields__)
