"""The live table of a terminal: runs with bar, sparkline and state, at most as many as fit, and the time left."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from normlab.config.plan import PlannedRun
from normlab.execute.display import Board, Row, duration, failure_line
from normlab.execute.events import Event, Failed, Retried

TICKS = "▁▂▃▄▅▆▇█"
COLOURS = {"trained": "green", "unsteady": "yellow", "stalled": "yellow", "running": "cyan", "waiting": "dim"}
# Lines that are not runs: header and rule, summary, total bar, a blank one.
FRAME = 6
REDRAW_EVERY = 0.2


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """`values` in at most `width` ticks from the least to the greatest; what is not finite is a `x`."""
    count = min(width, len(values))
    picked = [values[(i + 1) * len(values) // count - 1] for i in range(count)]
    finite = [value for value in picked if math.isfinite(value)]
    if not finite:
        return "x" * count
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    return "".join(TICKS[round((v - low) / span * 7)] if math.isfinite(v) else "x" for v in picked)


class LiveTable:
    """The board as a table that is redrawn in place on `console`."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder, self.console = folder, console
        self.board = Board()
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.drawn = 0.0

    def begin(self, todo: Sequence[PlannedRun], planned: int, workers: int) -> None:
        self.board.begin(todo)
        already = planned - len(todo)
        kept = f", {already} already there" if already else ""
        self.console.print(f"{len(todo)} runs on {workers} workers{kept} -> {self.folder}", highlight=False)
        self.live.start()
        self._draw()

    def see(self, event: Event) -> None:
        self.board.see(event)
        if isinstance(event, Failed):
            line = failure_line(self.board.rows[event.id].label, event.id, event.reason, self.folder)
            self.live.console.print(Text(line, style="red"))
        elif isinstance(event, Retried):
            self.live.console.print(Text(f"{event.reason}: trying {len(event.ids)} runs once more", style="yellow"))
        if time.monotonic() - self.drawn > REDRAW_EVERY:
            self._draw()

    def warn(self, text: str) -> None:
        self.console.print(Text(f"warning: {text}", style="yellow"))

    def note(self, text: str) -> None:
        self.console.print(Text(text))

    def end(self) -> None:
        self._draw()
        self.live.stop()

    def _draw(self) -> None:
        self.live.update(self.render(), refresh=True)
        self.drawn = time.monotonic()

    def render(self) -> Group:
        """The table, the line about what does not fit, and the total bar."""
        shown, hidden = self._fitting()
        table = Table(box=None, pad_edge=False, expand=False)
        for name in ("run", "", "step", "train loss", "", "state"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for row in shown:
            table.add_row(*_cells(row))
        board = self.board
        parts = [f"{board.ended} of {len(board.rows)} runs ended"]
        parts += [f"{board.count(state)} {state}" for state in ("running", "waiting", "failed") if board.count(state)]
        if hidden:
            parts.append(f"{hidden} not shown")
        left = board.left
        eta = "" if left is None else f"  {duration(left)} left"
        total = Table.grid(padding=(0, 1))
        total.add_row(ProgressBar(1.0, board.fraction, width=40), Text(f"{100 * board.fraction:.0f} %{eta}"))
        return Group(table, Text(", ".join(parts), style="dim"), total)

    def _fitting(self) -> tuple[list[Row], int]:
        """Running runs first, then those that ended, then those that wait; as many as the terminal is high."""
        order = {"running": 0, "waiting": 2}
        ranked = sorted(self.board.rows.values(), key=lambda row: order.get(row.state, 1))
        room = max(1, self.console.size.height - FRAME)
        return ranked[:room], max(0, len(ranked) - room)


def _cells(row: Row) -> tuple[Text | ProgressBar, ...]:
    colour = COLOURS.get(row.state, "red")
    loss = f"{row.losses[-1]:.3f}" if row.losses else ""
    return (
        Text(row.label),
        ProgressBar(1.0, row.share, width=16),
        Text(f"{row.step}/{row.steps}" if row.steps else ""),
        Text(sparkline(row.losses)),
        Text(loss),
        Text(f"{row.state} {row.note}".strip(), style=colour),
    )
