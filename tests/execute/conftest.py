from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny import Recorder, Runner
from tiny_plan import CPU, HERE, Run, tiny_plan

from normlab.config.plan import expand
from normlab.config.schema import Study
from normlab.execute import estimate
from normlab.execute.display import Lines
from normlab.execute.overall import Overall
from normlab.execute.parts import Plan
from normlab.execute.reproduce import Tally, reproduce
from normlab.execute.signals import catching
from normlab.execute.sweep import Job, Options, Summary, run_study


@pytest.fixture
def fake_run(monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Run a study with one of the trainers of `fakes.py`."""
    monkeypatch.syspath_prepend(str(HERE))

    def go(study: Study, folder: Path, trainer: str = "quick", **options: Any) -> tuple[Summary, Recorder]:
        watcher = Recorder()
        chosen = Options(folder, trainer=f"fakes:{trainer}", **options)
        with catching() as interrupts:
            job = Job(study, expand(study), chosen, CPU, "normlab run")
            summary = run_study(job, interrupts, watcher)
        return summary, watcher

    return go


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Reproduce the tiny plan with one of the trainers of `fakes.py`."""
    return _runner(monkeypatch)


def _runner(patch: pytest.MonkeyPatch) -> Run:
    patch.syspath_prepend(str(HERE))
    patch.setattr(estimate, "calibrate", lambda *_: {1.0: 1e-9})

    def go(folder: Path, plan: Plan | None = None, trainer: str = "here_and_now", **options: Any) -> Tally:
        chosen = Options(folder, jobs=1, trainer=f"fakes:{trainer}", **options)
        with catching() as interrupts:
            return reproduce(plan or tiny_plan(), chosen, CPU, interrupts, Overall(Lines(folder)))

    return go


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two reproductions, made once: `whole`, and `part`, whose measure `before` has failed."""
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        run = _runner(patch)
        run(root / "whole")
        run(root / "part", tiny_plan(mode="fails"), reuse=[root / "whole"])
    return root


@pytest.fixture
def whole(_made: Path, tmp_path: Path) -> Path:
    """A copy of a complete reproduction of the tiny plan."""
    return Path(shutil.copytree(_made / "whole", tmp_path / "whole"))


@pytest.fixture
def part(_made: Path, tmp_path: Path) -> Path:
    """A copy of one in which the measure `before` has failed."""
    return Path(shutil.copytree(_made / "part", tmp_path / "part"))
