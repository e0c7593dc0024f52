"""Compile `block.cpp` with the system's compiler, once a machine: into the user's cache, under a key of all that its
machine code hangs on. Imports no torch."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

SOURCES = ("block.cpp", "block.h", "frame.h", "norms.h", "products.h", "simd.h", "step.h")
# No flag here lets the compiler forget NaN and infinities or change the order of a sum.
FLAGS = (
    "-std=c++17",
    "-O2",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-fno-exceptions",
    "-fno-rtti",
    "-shared",
    "-fPIC",
)
COMPILERS = ("g++", "clang++", "c++")
LEVELS = {  # of x86-64, by the flags that they need in /proc/cpuinfo
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
}
SECONDS = 120  # that a compiler may take


@dataclass(frozen=True)
class Built:
    """The library, or the one-line reason why there is none; the CPU level that it is made for, and where it lies."""

    library: ctypes.CDLL | None
    why_not: str | None = None
    level: str | None = None
    path: Path | None = None
    compiler: str | None = None


@cache
def built() -> Built:
    """The library of this process, compiled if no process of this user has done so before."""
    try:
        return build()
    except (OSError, subprocess.SubprocessError) as error:
        return Built(None, f"the C++ part cannot be built: {' '.join(str(error).split())}")


def build() -> Built:
    """The same, asking the machine again."""
    level, compiler = cpu_level(), find_compiler()
    if level is None:
        return Built(None, f"the C++ part needs a CPU of level {' or '.join(LEVELS)}")
    if compiler is None:
        return Built(None, f"no C++ compiler: none of {', '.join(COMPILERS)} is installed, and CXX is not set")
    command = [*compiler, *FLAGS, f"-march={'native' if level.startswith('native') else level}"]
    told = subprocess.run([*compiler, "--version"], capture_output=True, text=True, timeout=SECONDS, check=True)
    made_by = told.stdout.splitlines()[0] if told.stdout else compiler[0]
    target = cache_folder() / f"block-{key(made_by, command, level)}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Workers that start together compile once.
            if not target.exists() and (why_not := compile_to(target, command)):
                return Built(None, why_not, level, compiler=made_by)
    return Built(ctypes.CDLL(str(target)), None, level, target, made_by)


def compile_to(target: Path, command: list[str]) -> str | None:
    """Compile and publish by one rename; the reason if that fails."""
    source = Path(__file__).with_name(SOURCES[0])
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        done = subprocess.run([*command, str(source), "-o", str(made)], capture_output=True, text=True, timeout=SECONDS)
        if done.returncode:
            said = next((line for line in done.stderr.splitlines() if "error" in line), f"exit code {done.returncode}")
            return f"{command[0]} cannot compile the C++ part: {said}"
        made.rename(target)
    return None


def key(made_by: str, command: list[str], level: str) -> str:
    """Changes with whatever may change the machine code, or what it is called with."""
    parts = [made_by, *command, level, version("torch")]
    parts += [Path(__file__).with_name(name).read_text() for name in SOURCES]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def cpu_level() -> str | None:
    """`x86-64-v4` or `-v3`, None for an older x86; elsewhere `native` and the CPU's name."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"native {platform.machine()} {platform.processor()}".strip()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next((line for line in lines if line.startswith("flags")), "").partition(":")[2].split())
    return next((name for name, needed in LEVELS.items() if needed | LEVELS["x86-64-v3"] <= flags), None)


def find_compiler() -> list[str] | None:
    """The command of CXX, or the first compiler that is installed."""
    if given := os.environ.get("CXX"):
        return given.split()
    return next(([name] for name in COMPILERS if shutil.which(name)), None)


def cache_folder() -> Path:
    """Where compiled code lies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "normlab"
