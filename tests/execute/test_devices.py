"""Devices and the switches of their arithmetic."""

from __future__ import annotations

import pytest

from normlab.analysis.provenance import machine_text
from normlab.config.engine import Engine
from normlab.config.plan import PlannedRun
from normlab.config.schema import RunSpec
from normlab.execute.devices import Device
from normlab.execute.target import Refused
from normlab.fused.build import LEVEL

CPU, GPU = Device("cpu", "a cpu"), Device("cuda:0", "a gpu")


def silent(text: str) -> None:
    pytest.fail(f"told: {text}")


def test_switches_are_facts_of_the_environment_where_they_are_on() -> None:
    assert "fused" not in CPU.environment() and "tf32" not in GPU.environment()
    env = GPU.switched("auto", True, silent).environment()
    assert env["tf32"] is True and "fused" not in env
    assert machine_text(env).startswith("a gpu, ") and machine_text(env).endswith("products in TF32")
    fused = Device("cpu", "a cpu", Engine(fused="x86-64-v3, g++ 12")).environment()
    assert machine_text(fused).endswith("fused step (x86-64-v3, g++ 12)")


def test_what_a_device_has_not_is_refused() -> None:
    with pytest.raises(Refused, match="--tf32: expected a CUDA device, got cpu"):
        CPU.switched("auto", True, silent)
    with pytest.raises(Refused, match="--engine fused: it is compiled for CPUs, got cuda:0"):
        GPU.switched("fused", False, silent)
    with pytest.raises(Refused, match="--engine: expected auto, fused, plain, got 'fast'"):
        CPU.switched("fast", False, silent)


def test_without_a_compiler_auto_says_so_and_fused_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEVEL, "x86-64-v9")
    told: list[str] = []
    assert CPU.switched("auto", False, told.append).engine == Engine()
    assert len(told) == 1 and told[0].startswith("engine plain, which takes about twice as long: NORMLAB_CPU_LEVEL")
    with pytest.raises(Refused, match="--engine fused: NORMLAB_CPU_LEVEL: expected one of"):
        CPU.switched("fused", False, silent)
    assert CPU.switched("plain", False, silent).engine == Engine()


def test_nets_that_the_fused_step_does_not_know_are_counted_and_named() -> None:
    specs = [RunSpec(), RunSpec.model_validate({"model": {"norm": "scalenorm"}})]
    runs = [PlannedRun(spec, {}, "") for spec in (*specs, specs[1])]
    fused, told = Device("cpu", "a cpu", Engine(fused="x86-64-v3, g++ 12")), list[str]()
    fused.check_nets("auto", runs, told.append)
    assert told == ["engine plain for 2 of 3 runs: the fused step does not know norm 'scalenorm'"]
    with pytest.raises(Refused, match="fused step does not know norm 'scalenorm' \\(2 of 3 runs\\)"):
        fused.check_nets("fused", runs, silent)
    fused.check_nets("fused", runs[:1], silent), CPU.check_nets("auto", runs, silent)
