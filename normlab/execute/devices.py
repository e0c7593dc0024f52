"""Which device the runs use; torch is imported only where there may be a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from normlab.execute.manifest import cpu_name
from normlab.execute.target import Refused

GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True)
class Device:
    """`name` as torch wants it, `title` as people call it."""

    name: str
    title: str


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
