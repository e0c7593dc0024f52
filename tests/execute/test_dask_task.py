"""What a worker of a dask cluster makes of a stack: records with facts, a crash, or nothing once nobody waits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import fakes
import pytest
from tiny import tiny_study

from normlab.config.plan import expand
from normlab.config.schema import Thresholds
from normlab.execute import dask_task
from normlab.execute.worker import Crashed, Setup

SPECS = [run.spec for run in expand(tiny_study())]
PROGRESS = SimpleNamespace(step=10, steps=10, losses=[1.5], alive=[True])


def worker(state: str = "executing", status: str = "running", key: str = "mine") -> Any:
    """A worker that has one task, and keeps what is said."""
    said: list[Any] = []
    tasks = {key: SimpleNamespace(state=state)}
    here = SimpleNamespace(state=SimpleNamespace(tasks=tasks), status=SimpleNamespace(name=status), said=said)
    here.log_event = lambda topic, message: said.append((topic, message))
    return here


def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, here: Any, error: Exception | None = None) -> Any:
    def trainer(specs: Any, on_progress: Any, **_: Any) -> Any:
        on_progress(PROGRESS)
        if error:
            raise error
        return fakes.quick(specs)

    monkeypatch.setattr(fakes, "quick_with_progress", trainer, raising=False)
    monkeypatch.setattr(distributed, "get_worker", lambda: here)
    setup = Setup(tmp_path, Thresholds(), trainer="fakes:quick_with_progress")
    return dask_task.train_stack(setup, SPECS, "mine", "topic")


def test_records_come_back_with_the_facts_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = worker()
    records = train(monkeypatch, tmp_path, here)
    assert [record.id for record in records] == [spec.id for spec in SPECS] and not list(tmp_path.iterdir())
    assert all({"commit", "dirty", "device_name"} <= record.timing.keys() for record in records)
    assert here.said == [("topic", {"key": "mine", "step": 10, "steps": 10, "losses": [1.5], "alive": [True]})]


@pytest.mark.parametrize(
    "changed",
    [{"key": "another"}, {"state": "cancelled"}, {"status": "closing"}, {"status": "closed"}, {"status": "failed"}],
)
def test_a_stack_that_nobody_waits_for_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: dict[str, str]
) -> None:
    here = worker(**changed)
    assert train(monkeypatch, tmp_path, here) is None and here.said == []


def test_an_exception_comes_back_as_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    crash = train(monkeypatch, tmp_path, worker(), ValueError("no such luck"))
    assert isinstance(crash, Crashed) and crash.reason == "ValueError: no such luck" and not crash.leaving
    assert "Traceback" in crash.text
