from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from rich.console import Console
from tiny import axis, tiny_study

from normlab.config.plan import expand
from normlab.execute.display import Board, Lines, duration
from normlab.execute.events import Advanced, Event, Failed, Finished, Retried, Started
from normlab.execute.live import LiveTable, sparkline

PLAN = expand(tiny_study(seeds=range(20)))
IDS = [run.id for run in PLAN]
LABELS = {run.id: run.label for run in PLAN}
EVENTS: list[Event] = [
    Started((IDS[0], IDS[1])),
    Started((IDS[2], IDS[3])),
    Advanced((IDS[0], IDS[1]), 4, 10, (2.0, 3.0), (True, True)),
    Advanced((IDS[0], IDS[1]), 8, 10, (1.0, math.nan), (True, False)),
    Finished(IDS[0], "trained", 0.1234567890123456, None),
    Finished(IDS[1], "nan", None, 7),
    Retried((IDS[2], IDS[3]), "worker died (signal 9)"),
    Failed(IDS[2], "worker died (signal 9)"),
]


def test_the_board_follows_the_events() -> None:
    board = Board()
    board.begin(PLAN)
    for event in EVENTS[:3]:
        board.see(event)
    assert (board.count("running"), board.count("waiting")) == (4, 36)
    assert board.fraction == pytest.approx(2 * 0.4 / 40)
    for event in EVENTS[3:]:
        board.see(event)
    assert (board.ended, board.count("running"), board.count("failed")) == (3, 0, 1)
    assert board.fraction == pytest.approx(3 / 40)


def test_lines_give_numbers_in_full_and_failures_even_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        lines = Lines(Path("out"), quiet=quiet)
        lines.begin(PLAN, len(PLAN) + 2, 2)
        for event in EVENTS:
            lines.see(event)
    out, err = capsys.readouterr()
    assert not out
    assert f"[1/40] {LABELS[IDS[0]]}: trained, final loss 0.1234567890123456" in err
    assert f"[2/40] {LABELS[IDS[1]]}: nan, at step 7" in err and "2 already there" in err
    failed = f"FAILED {LABELS[IDS[2]]}: worker died (signal 9) (out/failed/{IDS[2]}/error.txt)\n"
    assert err.count(failed) == 2 and err.endswith(failed) and err.count("trained") == 1


@pytest.mark.parametrize("height", [8, 14, 60])
def test_the_live_table_fits_the_terminal_and_shows_running_runs_first(height: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=110, height=height, force_terminal=True, color_system=None)
    table = LiveTable(Path("out"), console)
    table.board.begin(PLAN)
    for event in EVENTS[:5]:
        table.board.see(event)
    with console.capture() as capture:
        console.print(table.render())
    lines = capture.get().rstrip("\n").split("\n")
    assert len(lines) < height or height > len(PLAN)
    assert LABELS[IDS[1]] in lines[1] and "8/10" in lines[1] and "running" in lines[1]
    assert "1 of 40 runs ended, 3 running, 36 waiting" in capture.get()
    assert ("not shown" in capture.get()) == (height < 40)


GRID = expand(tiny_study(axes=(axis("model.depth", [12, 30]), axis("optim.lr", [3e-4, 1e-3])), seeds=range(3)))


@pytest.mark.parametrize(
    ("width", "bar", "spark"), [(50, False, False), (60, False, False), (80, False, False), (120, True, True)]
)
def test_the_live_table_says_which_run_stands_where_at_every_width(width: int, bar: bool, spark: bool) -> None:
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    table = LiveTable(Path("out"), console)
    table.board.begin(GRID)
    ids = [run.id for run in GRID]
    for event in (
        Started(tuple(ids[:4])),
        *(Advanced(tuple(ids[:4]), step, 10_000, (2.87 + 1 / step, 4.5, 4.5, 4.5), (True,) * 4) for step in (1, 9_000)),
        Finished(ids[1], "unsteady", 2.8712345, None),
        Finished(ids[2], "nan", None, 312),
        Failed(ids[3], "RuntimeError: a long reason that would push everything else from the screen"),
    ):
        table.board.see(event)
    with console.capture() as capture:
        console.print(table.render())
    lines = capture.get().rstrip("\n").split("\n")
    assert all(len(line) <= width for line in lines) and len(lines) == 1 + len(GRID) + 2
    running, unsteady, nan, failed = lines[1:5]
    assert ["2.870", "9000/10000"] == sorted(set(running.split()) & {"9000/10000", "2.870"})
    states = [line.rstrip() for line in (running, unsteady, nan, failed)]
    assert [text.split("  ")[-1] for text in states] == ["running", "unsteady 2.87", "nan@312", "failed"]
    assert all(line.split("  ")[0].endswith(run.label[-12:]) for run, line in zip(GRID, lines[1:], strict=False))
    assert width == 50 or all(line.startswith(run.label) for run, line in zip(GRID, lines[1:], strict=False))
    assert ("━" in running, "▁" in running) == (bar, spark)


def test_one_run_is_not_runs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(Path("out"))
    lines.begin(PLAN[:1], 1, 1)
    lines.begin(PLAN, 41, 2)
    assert capsys.readouterr().err == "1 run on 1 worker -> out\n40 runs on 2 workers, 1 already there -> out\n"


def test_the_live_table_prints_a_failure_when_it_happens() -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, height=20, force_terminal=True, color_system=None)
    table = LiveTable(Path("out"), console)
    table.begin(PLAN, len(PLAN), 2)
    for event in EVENTS:
        table.see(event)
    shown = out.getvalue()
    table.end()
    assert f"FAILED {LABELS[IDS[2]]}: worker died (signal 9) (out/failed/{IDS[2]}/error.txt)" in shown


def test_sparkline() -> None:
    assert sparkline([]) == "" and sparkline([1.0]) == "▁"
    assert sparkline([0.0, 7.0, math.inf, 3.5], 4) == "▁█x▅"
    assert sparkline(list(range(1000)), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([math.nan] * 3) == "xxx"


@pytest.mark.parametrize(
    ("seconds", "text"), [(42.3, "42 s"), (420, "7 min"), (4980, "1 h 23 min"), (3600, "1 h 00 min")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
