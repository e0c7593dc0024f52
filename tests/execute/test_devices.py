"""Devices and the switches of their arithmetic."""

from __future__ import annotations

import pytest

from normlab.analysis.provenance import machine_text
from normlab.config.engine import Engine
from normlab.execute import devices
from normlab.execute.devices import Device
from normlab.execute.target import Refused

CPU, GPU = Device("cpu", "a cpu"), Device("cuda:0", "a gpu")


def test_switches_are_facts_of_the_environment_where_they_are_on() -> None:
    assert "compiled" not in CPU.environment() and "tf32" not in GPU.environment()
    env = GPU.switched(compiled=True, tf32=True).environment()
    assert env["compiled"] is env["tf32"] is True
    assert machine_text(env).startswith("a gpu, ") and machine_text(env).endswith("blocks compiled, products in TF32")


def test_tf32_is_refused_on_the_cpu() -> None:
    with pytest.raises(Refused, match="--tf32: expected a CUDA device, got cpu"):
        CPU.switched(compiled=False, tf32=True)


def test_compiling_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.shutil, "which", lambda name: None)
    monkeypatch.setenv("CXX", "my-c++")
    with pytest.raises(Refused, match="--compile needs a C\\+\\+ compiler on the CPU; none of my-c"):
        CPU.switched(compiled=True, tf32=False)
    assert CPU.switched(compiled=False, tf32=False).engine == Engine()
