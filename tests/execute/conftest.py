from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny import Recorder, Runner

from normlab.config.plan import expand
from normlab.config.schema import Study
from normlab.execute.devices import Device
from normlab.execute.signals import catching
from normlab.execute.sweep import Job, Options, Summary, run_study


@pytest.fixture
def fake_run(monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Run a study with one of the trainers of `fakes.py`."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    def go(study: Study, folder: Path, trainer: str = "quick", **options: Any) -> tuple[Summary, Recorder]:
        watcher = Recorder()
        chosen = Options(folder, trainer=f"fakes:{trainer}", **options)
        with catching() as interrupts:
            job = Job(study, expand(study), chosen, Device("cpu", "a cpu"), "normlab run")
            summary = run_study(job, interrupts, watcher)
        return summary, watcher

    return go
