"""Compile `cpp/net.cpp` with the system's compiler, once a machine: into the user's cache, under a key of all that its
machine code hangs on. Imports no torch."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from normlab.config.engine import Engine

SOURCES = Path(__file__).with_name("cpp")
# No flag here lets the compiler forget NaN and infinities or change the order of a sum.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-fno-exceptions",
    "-fno-rtti",
    "-shared",
    "-fPIC",
)
COMPILERS = ("g++", "clang++", "c++")
LEVELS = {  # of x86-64, best first, by the flags that they need in /proc/cpuinfo
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
}
LEVEL = "NORMLAB_CPU_LEVEL"  # environment variable that asks for a lower level than the CPU has
SECONDS = 120  # that a compiler may take


@dataclass(frozen=True)
class Library:
    """The compiled step. `name` says what it was made for and by, such as `x86-64-v3, g++ 12.2.0`."""

    name: str
    path: Path
    functions: ctypes.CDLL


class CannotCompile(Exception):
    """There is no library; one line that says why."""


@cache
def library() -> Library | CannotCompile:
    """The library of this process, compiled if no process of this user has done so before; or why there is none."""
    try:
        return load()
    except CannotCompile as reason:
        return reason


def library_for(engine: Engine) -> Library | None:
    """The library of this process, if an engine asks for one. Another machine than the one that the engine was chosen
    on (a worker of a cluster) uses its own, or none, and its records say so."""
    found = library() if engine.fused else None
    return found if isinstance(found, Library) else None


def load(about_to_compile: Callable[[], None] = lambda: None) -> Library:
    """The same, asking the machine again; raises CannotCompile. `about_to_compile` is called before some ten seconds of
    work, if there are any."""
    try:
        level, compiler = cpu_level(), find_compiler()
        made_by = said_by(compiler)
        command = [*compiler, *FLAGS, f"-march={'native' if level.startswith('native') else level}"]
        target = cache_folder() / f"step-{key(made_by, command, level)}.so"
        if not target.exists():
            about_to_compile()
            compile_to(target, command)
        return Library(f"{level}, {short(compiler, made_by)}", target, ctypes.CDLL(str(target)))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: there is no home folder.
        raise CannotCompile(f"the fused step cannot be compiled: {' '.join(str(error).split())}") from None


def compile_to(target: Path, command: list[str]) -> None:
    """Compile and publish by one rename; processes that start together compile once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        for left in target.parent.glob("making-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="making-", dir=target.parent) as folder:
            made = Path(folder) / target.name
            whole = [*command, str(SOURCES / "net.cpp"), "-o", str(made)]
            done = subprocess.run(whole, capture_output=True, text=True, timeout=SECONDS)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if "error" in line]
                said = lines[0] if lines else f"exit code {done.returncode}"
                raise CannotCompile(f"{command[0]} cannot compile the fused step: {said}")
            made.rename(target)


def key(made_by: str, command: list[str], level: str) -> str:
    """Changes with whatever may change the machine code, or what it is called with."""
    parts = [made_by, *command, level, version("torch")]
    parts += [f"{path.name}\0{path.read_text()}" for path in sorted(SOURCES.iterdir())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def cpu_level() -> str:
    """`x86-64-v4` or `-v3`, or a lower one that NORMLAB_CPU_LEVEL asks for; elsewhere `native` and the CPU's name.
    CannotCompile for an older x86."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"native {platform.machine()} {platform.processor()}".strip()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next((line for line in lines if line.startswith("flags")), "").partition(":")[2].split())
    here = [name for name, needed in LEVELS.items() if needed | LEVELS["x86-64-v3"] <= flags]
    if not here:
        raise CannotCompile(f"the fused step needs a CPU of level {' or '.join(LEVELS)}")
    wanted = os.environ.get(LEVEL) or here[0]
    if wanted not in here:
        raise CannotCompile(f"{LEVEL}: expected one of {', '.join(here)} on this CPU, got '{wanted}'")
    return wanted


def find_compiler() -> list[str]:
    """The command of CXX, or the first compiler that is installed."""
    if given := os.environ.get("CXX"):
        return given.split()
    found = next((name for name in COMPILERS if shutil.which(name)), None)
    if found is None:
        raise CannotCompile(f"no C++ compiler: none of {', '.join(COMPILERS)} is installed, and CXX is not set")
    return [found]


def said_by(compiler: list[str]) -> str:
    """The first line of what a compiler says of itself."""
    told = subprocess.run([*compiler, "--version"], capture_output=True, text=True, timeout=SECONDS, check=True)
    return told.stdout.splitlines()[0] if told.stdout else compiler[0]


def short(compiler: list[str], made_by: str) -> str:
    """`g++ 12.2.0`: the compiler and its version."""
    number = re.findall(r"\d+\.\d[\d.]*", made_by)
    return " ".join([Path(compiler[0]).name, *number[-1:]])


def cache_folder() -> Path:
    """Where compiled code lies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "normlab"
