"""What must stay equal between pyproject.toml, the package, the README and CI."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import normlab
from normlab.manifests import read_object

ROOT = Path(__file__).parents[1]
INSTALL = "pip install -e . && normlab sweep-lr configs/postln.yaml"
TEST = "pip install -e '.[test]' && pytest -n 2"


@pytest.fixture
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_version_is_the_packages(project: dict[str, Any]) -> None:
    assert project["project"]["version"] == normlab.__version__


def test_wheel_ships_the_configs(project: dict[str, Any]) -> None:
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert shipped["configs"] == "normlab/configs"
    assert list((ROOT / "configs").glob("*.yaml")), "an empty folder would be shipped"


def test_committed_results_hold_every_run_that_their_manifests_plan() -> None:
    """And git sees every file below them: a renamed folder must not drop out unseen."""
    shipped = [
        ROOT / "results" / name for name in ("article", "readings", "readings_long", "readings_tables", "reference")
    ]
    manifests = [path for folder in shipped for path in folder.rglob("manifest.json")]
    planned = {path.parent / "runs" / run["id"] for path in manifests for run in read_object(path).get("runs", [])}
    assert len(planned) == 771 and not [path for path in planned if not (path / "run.json").is_file()]
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert all(f"!results/{folder.name}/" in ignored for folder in shipped)


def test_console_script_points_at_the_cli(project: dict[str, Any]) -> None:
    module, _, function = project["project"]["scripts"]["normlab"].partition(":")
    source = (ROOT / module.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    assert re.search(rf"^def {function}\(", source, re.MULTILINE)


@pytest.mark.parametrize("command", [INSTALL, TEST])
def test_readme_has_the_command_on_a_fenced_line_of_its_own(command: str) -> None:
    fences = re.findall(r"^```[a-z]*\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert command in [line for fence in fences for line in fence.splitlines()]


def test_ci_runs_the_first_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    # The pattern is CI's own; what it finds in the README is the promised command.
    found = re.search(r"sed -n '/(\S.*?)/\{p;q;\}' README\.md", script)
    assert found and 'eval "$test_command"' in script
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert next(line for line in lines if re.search(found[1], line)) == TEST


def test_pre_commit_runs_what_ci_runs() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    entries = [hook["entry"].replace(" --force-exclude", "") for repo in config["repos"] for hook in repo["hooks"]]
    steps = re.findall(r"^step ((?:ruff|mypy).*)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert entries == steps
