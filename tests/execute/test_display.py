from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from rich.console import Console
from tiny import tiny_study

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
