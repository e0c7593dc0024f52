"""The library is compiled once, under a key of all that it hangs on; what goes wrong is one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from normlab.config.engine import Engine
from normlab.fused import build
from normlab.fused.build import CannotCompile, Library


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: Library) -> Path:
    """A compiler that notes each call in `calls` and gives a library that was made before; an empty cache."""
    script = tmp_path / "my-c++"
    lines = ["#!/bin/sh", 'if [ "$1" = --version ]; then echo "my-c++ 7.8.9"; exit; fi']
    lines += [f"echo call >> {tmp_path}/calls", "sleep 0.5", "for last; do :; done", f'cp {library.path} "$last"']
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return script


def calls(compiler: Path) -> int:
    """How often it was called."""
    noted = compiler.with_name("calls")
    return len(noted.read_text().splitlines()) if noted.exists() else 0


def test_processes_that_start_together_compile_once(compiler: Path) -> None:
    words = [sys.executable, "-c", "from normlab.fused.build import load; print(load().name)"]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[0] for process in started]
    assert calls(compiler) == 1
    assert set(said) == {f"{build.cpu_level()}, my-c++ 7.8.9\n"}
    told: list[str] = []
    build.load(lambda: told.append("compiling"))
    assert calls(compiler) == 1 and not told


def test_the_key_is_of_all_that_the_machine_code_hangs_on(
    compiler: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sources = tmp_path / "cpp"
    shutil.copytree(build.SOURCES, sources)
    monkeypatch.setattr(build, "SOURCES", sources)
    command = ["g++", *build.FLAGS]
    keys = [build.key("g++ 12", command, "x86-64-v3"), build.key("g++ 13", command, "x86-64-v3")]
    keys += [build.key("g++ 12", [*command, "-g"], "x86-64-v3"), build.key("g++ 12", command, "x86-64-v4")]
    for path in sorted(sources.iterdir()):
        path.write_text(path.read_text() + "// changed\n")
        keys.append(build.key("g++ 12", command, "x86-64-v3"))
    monkeypatch.setattr(build, "version", lambda package: "2.99")
    keys.append(build.key("g++ 12", command, "x86-64-v3"))
    assert len(set(keys)) == len(keys) == 5 + len(list(sources.iterdir()))


def test_what_a_killed_process_left_is_removed(compiler: Path, tmp_path: Path) -> None:
    left = tmp_path / "cache" / "normlab" / "making-abc"
    left.mkdir(parents=True)
    (left / "step.so").write_text("half")
    found = build.load()
    assert not left.exists() and [path.name for path in found.path.parent.glob("*.so")] == [found.path.name]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            'echo "net.cpp:1: fatal error: no such thing" >&2; exit 1',
            "the fused step: net.cpp:1: fatal error",
        ),
        ("exit 3", "cannot compile the fused step: exit code 3"),
        ('for last; do :; done; echo broken > "$last"', "the fused step cannot be compiled: .*step-"),
        ("true", "the fused step cannot be compiled"),
    ],
)
def test_a_compiler_that_is_broken_is_told_in_one_line(compiler: Path, body: str, words: str, tmp_path: Path) -> None:
    compiler.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "my-c++ 7.8.9"; exit; fi\n{body}\n')
    with pytest.raises(CannotCompile, match=words) as caught:
        build.load()
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache" / "normlab").glob("making-*"))


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(CannotCompile, match="no C\\+\\+ compiler: none of g\\+\\+, clang\\+\\+, c\\+\\+ is installed"):
        build.load()
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(CannotCompile, match="No such file or directory: '/nowhere/c\\+\\+'"):
        build.load()


def test_a_cache_that_cannot_be_written(compiler: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CannotCompile, match="Not a directory"):
        build.load()


def test_cpu_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    def levels(flags: set[str], wanted: str = "") -> str:
        monkeypatch.setattr(build.Path, "read_text", lambda self: f"flags\t\t: fpu {' '.join(flags)}\n")
        monkeypatch.setenv(build.LEVEL, wanted)
        return build.cpu_level()

    v3, v4 = build.LEVELS["x86-64-v3"], build.LEVELS["x86-64-v3"] | build.LEVELS["x86-64-v4"]
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    assert levels(v3) == "x86-64-v3" and levels(v4) == "x86-64-v4" and levels(v4, "x86-64-v3") == "x86-64-v3"
    for flags, wanted, words in (
        (v3 - {"fma"}, "", "needs a CPU of level x86-64-v4 or x86-64-v3"),
        (build.LEVELS["x86-64-v4"], "", "needs a CPU"),
        (v3, "x86-64-v4", "NORMLAB_CPU_LEVEL: expected one of x86-64-v3 on this CPU, got 'x86-64-v4'"),
    ):
        with pytest.raises(CannotCompile, match=words):
            levels(flags, wanted)


def test_an_engine_that_asks_for_nothing_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "library", lambda: pytest.fail("it was looked for"))
    assert build.library_for(Engine()) is None
    monkeypatch.setattr(build, "library", lambda: CannotCompile("no compiler"))
    assert build.library_for(Engine(fused="x86-64-v4, g++ 12")) is None


def test_no_flag_may_touch_finiteness_or_the_order_of_a_sum() -> None:
    unsafe = ("fast-math", "Ofast", "finite-math", "associative", "unsafe", "reciprocal", "no-signed-zeros")
    assert not [flag for flag in build.FLAGS if any(word in flag for word in unsafe)]
