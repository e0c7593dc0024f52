"""What the user sees while runs train: plain lines here, the live table of a terminal in `live.py`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from normlab.config.plan import PlannedRun, cost_of
from normlab.execute.events import Advanced, Event, Failed, Finished, Measured, Retried, Started, Waited

# Seconds between two lines about progress: of runs, whose steps are seen, and of a measure, which is only waited for.
PROGRESS_EVERY, WAITED_EVERY = 10.0, 60.0


@dataclass
class Row:
    """One run (or measure) on the board; `state` is waiting, running, failed or the outcome, `losses` its training
    losses so far; `note` says how it ended, `brief` the same in a few characters. `waited` is the share that is done of
    what has no steps."""

    label: str
    cost: float
    state: str = "waiting"
    step: int = 0
    steps: int = 0
    losses: list[float] = field(default_factory=list)
    note: str = ""
    brief: str = ""
    kind: str = "run"
    waited: float = 0.0

    @property
    def share(self) -> float:
        """Part of the run that is done, 0 to 1."""
        if self.state in ("waiting", "running"):
            return self.step / self.steps if self.steps else self.waited
        return 1.0


class Board:
    """Where every run stands, kept from the executor's events; `now` names the study that is going on, of several."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.total = 0.0
        self.now = ""
        self.started = time.monotonic()

    def begin(self, todo: Sequence[PlannedRun]) -> None:
        self.rows = {run.id: Row(run.label, cost_of(run.spec)) for run in todo}
        self.add({})
        self.started = time.monotonic()

    def add(self, rows: Mapping[str, Row]) -> None:
        """Put more rows on the board, and weigh all by their cost."""
        self.rows |= rows
        self.total = sum(row.cost for row in self.rows.values()) or 1.0

    def see(self, event: Event) -> None:
        match event:
            case Started(ids):
                for run in ids:
                    self.rows[run].state = "running"
            case Advanced(ids, step, steps, losses, _):
                for run, loss in zip(ids, losses, strict=True):
                    row = self.rows[run]
                    row.step, row.steps = step, steps
                    row.losses.append(loss)
            case Finished(run, outcome, loss, onset):
                row = self.rows[run]
                row.state = outcome
                row.note = f"at step {onset}" if onset is not None else f"final loss {loss}"
                row.brief = f"@{onset}" if onset is not None else f" {loss:.3g}" if loss is not None else ""
            case Retried(ids):
                for run in ids:
                    row = self.rows[run]
                    row.state, row.step, row.losses = "waiting", 0, []
            case Failed(run, reason):
                self.rows[run].state, self.rows[run].note = "failed", reason
            case Waited(id, share):
                self.rows[id].waited = share
            case Measured(id, seconds):
                self.rows[id].state, self.rows[id].note = "measured", f"in {duration(seconds)}"

    def count(self, *states: str) -> int:
        """How many runs are in one of `states`."""
        return sum(row.state in states for row in self.rows.values())

    @property
    def ended(self) -> int:
        return len(self.rows) - self.count("waiting", "running")

    @property
    def size(self) -> str:
        """`12 runs`, `14 runs and measures`."""
        kinds = {row.kind for row in self.rows.values()}
        mixed = len(kinds) > 1
        return f"{len(self.rows)} runs and measures" if mixed else counted(len(self.rows), (kinds or {"run"}).pop())

    @property
    def fraction(self) -> float:
        """Part of the whole work that is done, 0 to 1."""
        return sum(row.cost * row.share for row in self.rows.values()) / self.total

    @property
    def left(self) -> float | None:
        """Seconds left at the pace so far, None before there is one."""
        done = self.fraction
        return (time.monotonic() - self.started) * (1 - done) / done if done > 0.002 else None


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def opening_line(todo: int, planned: int, workers: int, folder: Path) -> str:
    """What is about to be run, by how many workers, and where the results go."""
    kept = f", {planned - todo} already there" if planned > todo else ""
    return f"{counted(todo, 'run')} on {counted(workers, 'worker')}{kept} -> {folder}"


def duration(seconds: float) -> str:
    """`42 s`, `7 min`, `1 h 23 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def failure_line(label: str, run: str, reason: str, folder: Path) -> str:
    """One line for a run that crashed, with the place of the full text."""
    return f"FAILED {label}: {reason} ({folder / 'failed' / run / 'error.txt'})"


class Lines:
    """Plain lines on stderr: one a finished run, one every few seconds. `quiet` keeps the failures only."""

    def __init__(self, folder: Path, quiet: bool = False, verbose: bool = False) -> None:
        self.folder, self.quiet, self.verbose = folder, quiet, verbose
        self.board = Board()
        self.spoke = time.monotonic()

    def begin(self, todo: Sequence[PlannedRun], planned: int, workers: int) -> None:
        self.board.begin(todo)
        self.say(opening_line(len(todo), planned, workers, self.folder))

    def see(self, event: Event) -> None:
        self.board.see(event)
        board = self.board
        match event:
            case Finished(run) | Measured(run):
                row = board.rows[run]
                self.say(f"[{board.ended}/{len(board.rows)}] {row.label}: {row.state}, {row.note}")
            case Failed(run, reason):
                self.say(failure_line(board.rows[run].label, run, reason, self.folder), always=True)
            case Retried(ids, reason, alone):
                how = ", each alone" if alone else ""
                self.say(f"{reason}: trying {', '.join(board.rows[run].label for run in ids)} once more{how}")
            case Started(ids) if self.verbose:
                self.say(f"started {', '.join(board.rows[run].label for run in ids)}")
            case Advanced() | Waited() if time.monotonic() - self.spoke > self._pause(event):
                left = board.left
                eta = f", about {duration(left)} left" if left is not None else ""
                now = f" (now {board.now})" if board.now else ""
                self.say(f"{100 * board.fraction:.1f} % done, {board.ended} of {board.size}{eta}{now}")
            case _:
                pass

    def _pause(self, event: Event) -> float:
        return WAITED_EVERY if isinstance(event, Waited) else PROGRESS_EVERY

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}", always=True)

    def note(self, text: str) -> None:
        self.say(text)

    def end(self) -> None:
        pass

    def say(self, line: str, always: bool = False) -> None:
        if always or not self.quiet:
            print(line, file=sys.stderr, flush=True)
            self.spoke = time.monotonic()
