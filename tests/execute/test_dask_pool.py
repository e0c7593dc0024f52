"""What the dask pool decides, told by a line without a cluster: who gets what, who is tried again, who fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_line import FakeLine, Trainer, facts, lose, train
from fakes import quick
from tiny import tiny_study

from normlab.config.plan import expand
from normlab.config.schema import RunSpec, Thresholds
from normlab.execute import dask_pool
from normlab.execute.children import CannotStart
from normlab.execute.cluster import Cluster, SchedulerLost
from normlab.execute.dask_crew import Crew
from normlab.execute.dask_line import Gone, Left, Returned, Roster
from normlab.execute.dask_pool import DaskPool
from normlab.execute.dask_task import Greeting, versions
from normlab.execute.events import Advanced, Event, Failed, Finished, Retried, Started
from normlab.execute.signals import catching
from normlab.execute.stacks import Stack
from normlab.execute.worker import Crashed, Setup
from normlab.store import failed_ids, finished_ids, publish

PLAN = expand(tiny_study())
IDS = [run.id for run in PLAN]
SEED_1 = {run.id for run in PLAN if run.spec.seed == 1}

Run = Callable[..., tuple[list[Event], list[str], FakeLine]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Drive the pool over all runs, `lanes` a stack; gives its events, its warnings and the line."""
    monkeypatch.setattr(dask_pool, "Line", FakeLine)
    monkeypatch.setattr(dask_pool, "need_dask", lambda: None)
    monkeypatch.setattr(dask_pool, "WAIT", 0.01)
    with catching() as interrupts:

        def go(trainer: Trainer = train, lanes: int = 3, device: str = "cpu", **workers: Any) -> Any:
            FakeLine.trainer = staticmethod(trainer)  # type: ignore[assignment]
            FakeLine.roster = workers.pop("roster", {"a": facts()})
            FakeLine.greetings = workers
            warnings: list[str] = []
            setup = Setup(tmp_path, Thresholds(), device=device)
            stacks = [Stack(tuple(PLAN[i : i + lanes])) for i in range(0, len(PLAN), lanes)]
            with DaskPool(setup, 1, interrupts, Cluster(scheduler="tcp://s:1"), warnings.append) as pool:
                return list(pool.events(stacks)), warnings, pool.line

        yield go


def of(events: list[Event], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_every_stack_goes_to_a_free_worker_and_its_records_are_published(tmp_path: Path, run: Run) -> None:
    events, warnings, line = run(roster={"a": facts(), "b": facts()})
    assert finished_ids(tmp_path) == set(IDS) and sorted(event.id for event in of(events, Finished)) == sorted(IDS)
    assert [worker for worker, _ in line.stacks] == ["a", "b"] and not warnings
    assert of(events, Started)[0].ids == tuple(IDS[:3])
    assert of(events, Advanced)[0] == Advanced(tuple(IDS[:3]), 5, 10, (1.0,) * 3, (True,) * 3)


def test_a_run_that_somebody_has_published_is_not_sent(tmp_path: Path, run: Run) -> None:
    for record in quick([one.spec for one in PLAN[:4]]):
        publish(tmp_path, record)
    events, _, line = run()
    assert sorted(event.id for event in of(events, Finished)) == sorted(IDS)
    assert line.stacks == [("a", [run.spec.seed for run in PLAN[4:]])]


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_run_that_kills_its_workers_is_failed_alone(tmp_path: Path, run: Run, lanes: int) -> None:
    def deadly(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        guilty = any(spec.seed == 1 for spec in specs)
        lose(line, worker, expected=False) if guilty else train(line, worker, specs, key)

    events, _, line = run(deadly, lanes)
    assert finished_ids(tmp_path) == set(IDS) - SEED_1 and failed_ids(tmp_path) == SEED_1
    assert {event.id for event in of(events, Failed)} == SEED_1
    assert len(of(events, Retried)) == 2 and all(event.alone for event in of(events, Retried))
    assert [seeds for _, seeds in line.stacks].count([1]) == (4 if lanes == 1 else 2)
    text = (tmp_path / "failed" / min(SEED_1) / "error.txt").read_text()
    assert text.startswith("worker a") and "process 1 on host" in text and "seed=1" in text


def test_a_worker_that_says_that_it_leaves_costs_no_attempt_and_splits_no_stack(tmp_path: Path, run: Run) -> None:
    def leaving(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        lose(line, worker, expected=True) if len(line.stacks) <= 5 else train(line, worker, specs, key)

    events, _, line = run(leaving)
    assert finished_ids(tmp_path) == set(IDS) and not failed_ids(tmp_path)
    assert len(of(events, Retried)) == 5 and not any(event.alone for event in of(events, Retried))
    assert all(len(seeds) == 3 for _, seeds in line.stacks)


def test_a_worker_that_is_on_the_list_no_more_has_died(tmp_path: Path, run: Run) -> None:
    gone: list[str] = []

    def vanishing(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        if len(line.stacks) == 1:
            gone.append(key)
            line.inbox.put(Roster({"b": facts()}))
            line.inbox.put(Returned(key, quick(specs)))  # Too late: nobody listens to it.
        else:
            train(line, worker, specs, key)

    events, _, line = run(vanishing)
    assert [event.reason for event in of(events, Retried)] == ["worker a died"]
    assert sorted(event.id for event in of(events, Finished)) == sorted(IDS)
    assert [worker for worker, _ in line.stacks] == ["a"] + ["b"] * 4
    assert line.dropped == gone and len(gone) == 1  # or the scheduler would have another worker do it


def test_the_last_words_of_a_worker_of_our_own_are_kept(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = SimpleNamespace(end=lambda: "died (signal 9)", words=lambda: "last words")
    monkeypatch.setattr(Crew, "child", lambda self, worker: child)

    def deadly(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        guilty = any(spec.seed == 1 for spec in specs)
        lose(line, worker, expected=False) if guilty else train(line, worker, specs, key)

    events, _, _ = run(deadly)
    assert {event.reason for event in of(events, Failed)} == {"worker died (signal 9)"}
    assert (tmp_path / "failed" / min(SEED_1) / "error.txt").read_text().rstrip().endswith("last words")


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_exception_fails_its_run_and_keeps_the_traceback(tmp_path: Path, run: Run, lanes: int) -> None:
    def raising(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        guilty = any(spec.seed == 1 for spec in specs)
        line.inbox.put(Returned(key, Crashed("ValueError: no", "a traceback", False) if guilty else quick(specs)))

    events, _, line = run(raising, lanes)
    # Alone it would raise again.
    assert [seeds for _, seeds in line.stacks].count([1]) == 2
    assert failed_ids(tmp_path) == SEED_1 and [event.reason for event in of(events, Failed)] == ["ValueError: no"] * 2
    assert "a traceback" in (tmp_path / "failed" / min(SEED_1) / "error.txt").read_text()


class KilledWorker(Exception):
    """As dask names it."""


class NoValidWorkerError(Exception):
    """As dask names it."""


@pytest.mark.parametrize("kind", [KilledWorker, NoValidWorkerError])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_task_that_dask_takes_for_deadly_has_killed_its_worker(
    tmp_path: Path, run: Run, kind: type[Exception], lanes: int
) -> None:
    def deadly(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        if all(spec.seed != 1 for spec in specs):
            train(line, worker, specs, key)
            return
        line.inbox.put(Returned(key, None, kind("no more")))
        line.inbox.put(Roster({f"{worker}'": facts()}))

    events, _, line = run(deadly, lanes)
    assert finished_ids(tmp_path) == set(IDS) - SEED_1 and failed_ids(tmp_path) == SEED_1
    assert [seeds for _, seeds in line.stacks].count([1]) == (4 if lanes == 1 else 2)
    # Nothing more is sent to the worker before the list says that it is there.
    assert max(Counter(worker for worker, seeds in line.stacks if 1 in seeds).values()) == 1
    assert all(event.reason.startswith("worker a") and event.reason.endswith(" died") for event in of(events, Retried))


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_error_of_the_line_fails_a_run_that_is_alone(tmp_path: Path, run: Run, lanes: int) -> None:
    def torn(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        guilty = any(spec.seed == 1 for spec in specs)
        line.inbox.put(Returned(key, None, TypeError("no pickle")) if guilty else Returned(key, quick(specs)))

    events, _, line = run(torn, lanes)
    assert failed_ids(tmp_path) == SEED_1 and {event.reason for event in of(events, Failed)} == {"TypeError: no pickle"}
    assert [seeds for _, seeds in line.stacks].count([1]) == 2


def test_a_stack_that_was_given_up_is_sent_again_whole(tmp_path: Path, run: Run) -> None:
    def busy(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        line.inbox.put(Returned(key, None if len(line.stacks) <= 4 else quick(specs)))

    events, _, line = run(busy)
    assert finished_ids(tmp_path) == set(IDS)
    assert [event.alone for event in of(events, Retried)] == [False] * 4
    # At once, not after all others.
    assert [seeds for _, seeds in line.stacks] == [[run.spec.seed for run in PLAN[:3]]] * 5 + [
        [run.spec.seed for run in PLAN[3:]]
    ]


def test_a_task_that_was_cancelled_means_that_the_scheduler_is_gone(tmp_path: Path, run: Run) -> None:
    def cancelled(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        line.inbox.put(Returned(key, None, CancelledError()))

    with pytest.raises(SchedulerLost, match="lost the scheduler at tcp://s:1"):
        run(cancelled)
    assert not finished_ids(tmp_path) and not failed_ids(tmp_path)


def test_only_workers_that_offer_a_gpu_get_runs_for_one(run: Run) -> None:
    _, warnings, line = run(device="cuda:0", roster={"a": facts(), "b": facts(gpus=1)})
    assert {worker for worker, _ in line.stacks} == {"b"} and not warnings


def test_a_worker_whose_gpu_crashed_is_started_afresh(run: Run) -> None:
    def crashing(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        if len(line.stacks) > 1:
            train(line, worker, specs, key)
            return
        line.inbox.put(Returned(key, Crashed("CUDA error", "", True)))
        line.inbox.put(Left(worker, True))
        line.inbox.put(Roster({"b": facts(gpus=1)}))

    _, warnings, line = run(crashing, device="cuda:0", roster={"a": facts(gpus=1)})
    assert line.restarted == ["a"] and {worker for worker, _ in line.stacks[1:]} == {"b"}
    assert len(warnings) == 1 and "crashed on its GPU" in warnings[0]


def test_a_worker_that_cannot_train_is_left_out_and_told(run: Run) -> None:
    roster = {"a": facts(), "b": facts(threads=4)}
    there = versions() | {"torch": "0.1"}
    _, warnings, line = run(a=ValueError("no plugin"), b=Greeting(1, "host", there, {}), roster=roster)
    assert {worker for worker, _ in line.stacks} == {"b"}
    told = "\n".join(warnings)
    assert "worker a is not used: ValueError: no plugin" in told and "b has 4 threads" in told
    assert f"torch {versions()['torch']} -> 0.1" in told and len(warnings) == 3


def test_without_a_worker_that_can_train_the_sweep_does_not_begin(run: Run) -> None:
    with pytest.raises(CannotStart, match="a: ValueError: no plugin"):
        run(a=ValueError("no plugin"))
    with pytest.raises(CannotStart, match="a: plugins: their source differs"):
        run(a=Greeting(1, "host", versions(), {"p.py": "another"}))


def test_a_scheduler_that_is_gone_ends_the_sweep(tmp_path: Path, run: Run) -> None:
    def gone(line: FakeLine, worker: str, specs: list[RunSpec], key: str) -> None:
        train(line, worker, specs, key) if len(line.stacks) == 1 else line.inbox.put(Gone())

    with pytest.raises(SchedulerLost, match="lost the scheduler at tcp://s:1"):
        run(gone)
    assert finished_ids(tmp_path) == set(IDS[:3])


def test_without_a_worker_it_says_once_that_it_waits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = FakeLine.__init__

    def later(self: FakeLine, address: str, gpu: bool) -> None:
        opened(self, address, gpu)
        self.inbox.put(Roster({}))
        self.inbox.put(Roster({"a": facts()}))

    monkeypatch.setattr(FakeLine, "__init__", later)
    _, warnings, line = run(roster={})
    assert warnings == ["no worker at tcp://s:1 now: waiting for one"] and len(line.stacks) == 2
