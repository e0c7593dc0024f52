from __future__ import annotations

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
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setattr(estimate, "calibrate", lambda *_: {1.0: 1e-9})

    def go(folder: Path, plan: Plan | None = None, trainer: str = "here_and_now", **options: Any) -> Tally:
        chosen = Options(folder, jobs=1, trainer=f"fakes:{trainer}", **options)
        with catching() as interrupts:
            return reproduce(plan or tiny_plan(), chosen, CPU, interrupts, Overall(Lines(folder)))

    return go
