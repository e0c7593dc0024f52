"""The live table of a terminal: a row a run, as many and as wide as fit, and the time left."""

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
from normlab.execute.display import Board, Row, counted, duration, failure_line, opening_line
from normlab.execute.events import Event, Failed, Retried

TICKS = "▁▂▃▄▅▆▇█"
COLOURS = {
    "trained": "green",
    "unsteady": "yellow",
    "stalled": "yellow",
    "running": "cyan",
    "measured": "green",
    "waiting": "dim",
}
BAR, SPARK, GAP = 16, 20, 2
# A label of up to this many characters counts for more than bar and sparkline.
LABEL = 48
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
        self.console.print(Text(opening_line(len(todo), planned, workers, self.folder)))
        self.live.start()
        self._draw()

    def see(self, event: Event) -> None:
        self.board.see(event)
        if isinstance(event, Failed):
            line = failure_line(self.board.rows[event.id].label, event.id, event.reason, self.folder)
            self.live.console.print(Text(line, style="red"))
        elif isinstance(event, Retried):
            text = f"{event.reason}: trying {counted(len(event.ids), 'run')} once more"
            self.live.console.print(Text(text, style="yellow"))
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
        board, width = self.board, self.console.width
        parts = [f"now {board.now}"] if board.now else []
        parts.append(f"{board.ended} of {board.size} ended")
        parts += [f"{board.count(state)} {state}" for state in ("running", "waiting", "failed") if board.count(state)]
        if hidden:
            parts.append(f"{hidden} not shown")
        left = board.left
        eta = "" if left is None else f"  {duration(left)} left"
        total = Table.grid(padding=(0, 1))
        bar = ProgressBar(1.0, board.fraction, width=max(4, min(40, width - 24)))
        total.add_row(bar, Text(f"{100 * board.fraction:.0f} %{eta}"))
        summary = Text(", ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(_table(shown, width), summary, total)

    def _fitting(self) -> tuple[list[Row], int]:
        """Running runs first, then those that ended, then those that wait; as many as the terminal is high."""
        order = {"running": 0, "waiting": 2}
        ranked = sorted(self.board.rows.values(), key=lambda row: order.get(row.state, 1))
        room = max(1, self.console.size.height - FRAME)
        return ranked[:room], max(0, len(ranked) - room)


def _table(rows: Sequence[Row], width: int) -> Table:
    """Label, step, loss and state always; sparkline and bar where `width` has room for them beside whole labels."""
    labels = [row.label for row in rows]
    steps = [f"{row.step}/{row.steps}" if row.steps else "" for row in rows]
    losses = [f"{row.losses[-1]:.3f}" if row.losses else "" for row in rows]
    states = [row.state + row.brief for row in rows]
    needed = sum(max(map(len, [name, *cells])) + GAP for name, cells in (("step", steps), ("loss", losses)))
    needed += max(map(len, ["state", *states])) + GAP
    room = width - needed
    spare = room - min(LABEL, max(map(len, ["run", *labels])))
    spark, bar = spare >= SPARK + GAP, spare >= SPARK + BAR + 2 * GAP
    room -= spark * (SPARK + GAP) + bar * (BAR + GAP)
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, expand=False)
    for name in ("run", *[""] * bar, "step", "loss", *[""] * spark, "state"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for row, label, step, loss, state in zip(rows, labels, steps, losses, states, strict=True):
        bars = [ProgressBar(1.0, row.share, width=BAR)] if bar else []
        sparks = [Text(sparkline(row.losses, SPARK))] if spark else []
        style = COLOURS.get(row.state, "red")
        table.add_row(Text(_cut(label, room)), *bars, Text(step), Text(loss), *sparks, Text(state, style=style))
    return table


def _cut(label: str, width: int) -> str:
    """The end of a label that is too long: its last parts, such as the seed, tell neighbours apart."""
    width = max(width, 8)
    return label if len(label) <= width else f"…{label[-(width - 1) :]}"
