"""Every flag that a message names exists, and every command takes those that any message may name."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import typer

import normlab
from normlab.cli import app, main


def messages() -> str:
    """Every text of the commands and of what they call first: what they may ever tell the user."""
    root = Path(normlab.__file__).parent
    files = [file for layer in ("execute", "cli", "config") for file in root.glob(f"{layer}/*.py")]
    texts = [
        node.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return "\n".join(texts)


RUN_WITH = {"--resume": ["--resume"], "--overwrite": ["--overwrite"], "-o": ["-o", "RESULTS", "--resume"]}
RUN_WITH |= {"--device": ["--device", "cpu"], "--seeds": ["--seeds", "0"], "--jobs": ["--jobs", "2"]}
RUN_WITH |= {name: [name] for name in ("--json", "--quiet", "--verbose", "--fail-fast", "--dry-run", "-q", "-v")}
RUN_WITH |= {"--output": ["--output", "RESULTS", "--resume"], "--reuse": ["--reuse", "RESULTS"]}
OF_COLLAPSE = {"--layers": "2", "--norms": "none", "--lr": "1e-3", "--steps": "5"}
OF_PYTHON = {"-c", "-m"}
OF_ROOT = ("-h", "--help", "--version")
COMMANDS = [["status", "RESULTS"], ["verify", "RESULTS"], ["compare", "RESULTS", "RESULTS"]]
COMMANDS += [["tables", "RESULTS"], ["env"], ["list", "configs"], ["config", "schema"]]
COMMANDS += [["config", "check", "smoke"], ["config", "show", "smoke"]]
RUN_WITH |= {"--shard": ["--shard", "1/2"]}
OF_SLURM = {"--array"}
OF_DASK = {"--dashboard-address", "--death-timeout", "--host", "--idle-timeout", "--local-directory", "--memory-limit"}
OF_DASK |= {"--no-nanny", "--nthreads", "--port", "--resources"}
IN_WORDS = {"-of-", "-th"}  # `shard-1-of-4`, `10-th`: the number stands between two texts
ON_GPU = {"--tf32"}  # refused on a CPU
OF_GIT = {"--short", "--porcelain", "--untracked-files", "--"}
OF_OTHERS = OF_PYTHON | OF_GIT | OF_SLURM | OF_DASK | IN_WORDS


def of_others() -> set[str]:
    """The flags of the commands that do not train a study."""
    commands = typer.main.get_command(app).commands
    others = [command for name, command in commands.items() if name not in ("run", "sweep-lr", "collapse")]
    return {
        flag
        for command in others
        for parameter in command.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }


def test_every_flag_that_a_message_names_runs(
    study: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], no_calibration: None
) -> None:
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", messages())) - OF_OTHERS - ON_GPU
    unknown = named - RUN_WITH.keys() - OF_COLLAPSE.keys() - set(OF_ROOT) - of_others()
    assert not unknown
    for flag, words in RUN_WITH.items():
        words = [str(results) if word == "RESULTS" else word for word in words]
        target = [] if flag in ("-o", "--output") else ["-o", str(results if flag.startswith("--res") else tmp_path)]
        assert main(["run", str(study), *words, *target, "--dry-run"]) == 0, flag
    for flag, value in OF_COLLAPSE.items():
        assert main(["collapse", flag, value, "--dry-run", "-o", str(tmp_path)]) == 0, flag
    for flag in OF_ROOT:
        assert main([flag]) == 0, flag
    capsys.readouterr()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_takes_the_flags_that_any_message_may_name(
    results: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    words = [str(results) if word == "RESULTS" else word for word in command]
    assert main([*words, "-v", "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
