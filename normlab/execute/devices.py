"""Which device the runs use; torch is imported only where there may be a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normlab.config.engine import PLAIN, Engine
from normlab.config.plan import PlannedRun
from normlab.execute.display import counted
from normlab.execute.manifest import cpu_name, environment
from normlab.execute.target import Refused
from normlab.fused.build import CannotCompile, load
from normlab.fused.cover import gap

ENGINES = ("auto", "fused", "plain")
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True)
class Device:
    """`name` as torch wants it, `title` as people call it, and how the arithmetic is done on it."""

    name: str
    title: str
    engine: Engine = PLAIN

    def environment(self) -> dict[str, Any]:
        """Where and with what runs are made on it; for manifest.json."""
        return environment(self.name, self.title) | self.engine.facts()

    def switched(self, engine: str, tf32: bool, say: Callable[[str], None]) -> Device:
        """The same with these switches; raise `Refused` if they cannot be had. `say` is told, in a line, what takes a
        while and what an engine `auto` has to do without."""
        on_cpu = self.name == "cpu"
        if tf32 and on_cpu:
            raise Refused(f"--tf32: expected a CUDA device, got {self.name}; products on the CPU are float32")
        if engine not in ENGINES:
            raise Refused(f"--engine: expected {', '.join(ENGINES)}, got '{engine}'")
        if engine == "fused" and not on_cpu:
            raise Refused(f"--engine fused: it is compiled for CPUs, got {self.name}; leave the option out")
        fused = "" if engine == "plain" or not on_cpu else self._fused(engine, say)
        return replace(self, engine=Engine(fused, tf32))

    def _fused(self, engine: str, say: Callable[[str], None]) -> str:
        try:
            return load(lambda: say("compiling the fused step, once on this machine: some seconds")).name
        except CannotCompile as reason:
            if engine == "fused":
                raise Refused(f"--engine fused: {reason}") from None
            say(f"engine plain, which takes about twice as long: {reason}")
            return ""

    def check_nets(self, engine: str, runs: Sequence[PlannedRun], say: Callable[[str], None]) -> None:
        """Tell how many of the runs an engine `auto` trains without the fused step, and why; `fused` refuses them."""
        gaps = [why for run in runs if (why := gap(run.spec))] if self.engine.fused else []
        if not gaps:
            return
        reasons = list(dict.fromkeys(gaps))
        more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
        what = f"the fused step does not know {', '.join(reasons[:3])}{more}"
        count = f"{len(gaps)} of {counted(len(runs), 'run')}"
        if engine == "fused":
            raise Refused(
                f"--engine fused: {what} ({count}); with --engine auto these are trained by torch's operations"
            )
        say(f"engine plain for {count}: {what}")


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
