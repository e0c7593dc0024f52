"""How the arithmetic of a run is done, where that may change the last digits of a result and never the question."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """`fused`: the CPU level and compiler of the fused step, such as `x86-64-v3, g++ 12.2.0`; empty: torch's own
    operations. `tf32`: matrix products of a GPU in TF32 (10 bits of mantissa)."""

    fused: str = ""
    tf32: bool = False

    def facts(self) -> dict[str, str | bool]:
        """What manifest.json and timing.json say of it: that which is on."""
        return {name: value for name, value in vars(self).items() if value}


PLAIN = Engine()
# The names of these circumstances in manifest.json and timing.json; absent means off.
SWITCHES = tuple(Engine.__dataclass_fields__)
