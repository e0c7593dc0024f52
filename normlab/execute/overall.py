"""One progress display for a whole reproduction: it begins once, and every study tells its events to the same board."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from normlab.config.plan import PlannedRun, cost_of
from normlab.execute.display import Board, Row, counted, duration
from normlab.execute.events import Event
from normlab.execute.sweep import Watcher


class Display(Watcher, Protocol):
    """A watcher that shows a board: `Lines` or `LiveTable`."""

    board: Board
    folder: Path


class Overall:
    """The watcher that every study of a reproduction gets; what is shown goes on from one to the next."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.open = False

    def start(
        self, todo: Mapping[str, Sequence[PlannedRun]], measures: Mapping[str, float], planned: int, workers: int
    ) -> None:
        """Show all that is to be done: runs by study, and measures with the seconds that each is thought to take."""
        runs = [_named(name, run) for name, group in todo.items() for run in group]
        self.display.begin(runs, planned, workers)
        self.open = True
        self.display.board.add({name: Row(name, seconds, kind="measure") for name, seconds in measures.items()})

    def promise(self, training: float, stated: Sequence[str]) -> None:
        """Say how long all will take: the runs together `training` seconds, the measures as `start` was told, of which
        those in `stated` have not been measured here. From now on the time left is weighed by these."""
        board = self.display.board
        runs = [row for row in board.rows.values() if row.kind == "run"]
        whole = sum(row.cost for row in runs)
        for row in runs:
            row.cost *= training / whole
        board.add({})
        board.started = time.monotonic()  # The estimate took time that no run will take.
        sizes = [(len(runs), "run"), (len(board.rows) - len(runs), "measure")]
        what = " and ".join(counted(number, noun) for number, noun in sizes if number)
        self.display.note(f"{what}: {time_text(board.total, stated)}")

    def turn_to(self, name: str, place: str, folder: Path, runs: int = 0, taken: int = 0) -> None:
        """Say which study is next; its failures will be told with their place in `folder`."""
        self.display.board.now, self.display.folder = f"{name}, {place}", folder
        told = [f"{runs} to train"] if runs else []
        told += [f"{counted(taken, 'run')} taken from other results"] if taken else []
        if told:
            self.display.note(f"{name} ({place}): {', '.join(told)}")

    def close(self) -> None:
        """Show the end."""
        if self.open:
            self.open = False
            self.display.end()

    def begin(self, todo: Sequence[PlannedRun], planned: int, workers: int) -> None:
        """A study begins. Runs that are on the board and have ended (failed) are tried anew."""
        board, name = self.display.board, self.display.board.now.partition(",")[0]
        fresh = {run.id: run for run in todo if run.id not in board.rows or board.rows[run.id].state != "waiting"}
        known = next((row.cost / cost_of(run.spec) for run in todo if (row := board.rows.get(run.id))), 1.0)
        board.add({id: Row(_named(name, run).label, known * cost_of(run.spec)) for id, run in fresh.items()})

    def see(self, event: Event) -> None:
        self.display.see(event)

    def warn(self, text: str) -> None:
        self.display.warn(text)

    def note(self, text: str) -> None:
        pass  # What was reused is told by `turn_to`.

    def end(self) -> None:
        pass


def _named(study: str, run: PlannedRun) -> PlannedRun:
    return PlannedRun(run.spec, run.cell, f"{study} {run.label}")


def time_text(seconds: float, stated: Sequence[str]) -> str:
    """`about 2 h 10 min`, and of which measures the time is a stated one and not yet measured here."""
    text = f"about {duration(seconds)}"
    return f"{text} (of {', '.join(stated)} as stated, not measured here yet)" if stated else text
