"""A tiny study, its results, and no calibration, for the commands that train."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_study import STUDY

from normlab.cli import main
from normlab.execute import estimate


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "tiny.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="session")
def results(study: Path) -> Path:
    folder = study.parent / "results"
    assert main(["run", str(study), "-o", str(folder), "--jobs", "1", "-q"]) == 0
    return folder


@pytest.fixture
def no_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "estimate", lambda *_: 100.0)
