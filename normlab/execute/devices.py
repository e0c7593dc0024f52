"""Which device the runs use; torch is imported only where there may be a GPU."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normlab.config.engine import Engine
from normlab.execute.manifest import cpu_name, environment
from normlab.execute.target import Refused

GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True)
class Device:
    """`name` as torch wants it, `title` as people call it, and how the arithmetic is done on it."""

    name: str
    title: str
    engine: Engine = Engine()

    def environment(self) -> dict[str, Any]:
        """Where and with what runs are made on it; for manifest.json."""
        return environment(self.name, self.title) | self.engine.facts()

    def switched(self, compiled: bool, tf32: bool) -> Device:
        """The same with these switches; raise `Refused` if they cannot be had."""
        if tf32 and not self.name.startswith("cuda"):
            raise Refused(f"--tf32: expected a CUDA device, got {self.name}; products on the CPU are float32")
        if compiled and self.name == "cpu" and not any(map(shutil.which, compilers())):
            raise Refused(f"--compile needs a C++ compiler on the CPU; none of {', '.join(compilers())} is here")
        return replace(self, engine=Engine(compiled, tf32))


def compilers() -> list[str]:
    """Where torch.compile looks for a C++ compiler."""
    return [name for name in (os.environ.get("CXX"), "g++", "clang++") if name]


def check_name(wanted: str) -> None:
    """Refuse what is no name of a device."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", wanted):
        raise Refused(f"--device: expected auto, cpu, cuda or cuda:N, got '{wanted}'")


def resolve_device(wanted: str) -> Device:
    """The device for `auto`, `cpu`, `cuda` or `cuda:N`; raise `Refused` if it is not there."""
    check_name(wanted)
    if wanted == "cpu" or (wanted == "auto" and not any(Path(file).exists() for file in GPU_FILES)):
        return Device("cpu", cpu_name())
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto" and count == 0:
        return Device("cpu", cpu_name())
    index = int(wanted.partition(":")[2] or 0)
    if index >= count:
        raise Refused(f"--device {wanted}: torch {torch.__version__} sees {count} CUDA devices here; try --device cpu")
    return Device(f"cuda:{index}", torch.cuda.get_device_name(index))
