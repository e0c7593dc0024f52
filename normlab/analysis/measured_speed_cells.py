"""Tables of `normlab speed`: every cell, and the bandwidth that the article's times need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from normlab.analysis.speed_text import ABSENT, digits, faster_text, interval_text
from normlab.analysis.table import Table
from normlab.catalogue import NORMS
from normlab.measures import Measure

IMPLEMENTATIONS = ("handwritten", "native", "compiled")


def by_key(measure: Measure) -> dict[tuple[str, str, str, str], dict[str, Any]]:
    """Every cell that was measured, by shape, norm, pass and implementation."""
    cells = measure.values["norm-speed"]["cells"]
    return {(cell["shape"], cell["norm"], cell["pass"], cell["implementation"]): cell for cell in cells}


def cells_table(measure: Measure) -> Table:
    """All implementations, norms and passes at each shape."""
    cells, copies = by_key(measure), _copies(measure)
    missing = {
        (row["shape"], row["norm"], row["pass"], row["implementation"]): row["reason"]
        for row in measure.values["norm-speed"]["not_measured"]
    }
    rows: list[list[str]] = []
    for shape, norm, direction in dict.fromkeys(key[:3] for key in (*cells, *missing)):
        timed = {
            name: cells[shape, norm, direction, name]
            for name in IMPLEMENTATIONS
            if (shape, norm, direction, name) in cells
        }
        told = [_cell_text(timed.get(name), copies.get((shape, "copy"))) for name in IMPLEMENTATIONS]
        rows.append([f"{shape} {NORMS.title(norm)} {direction}", *told, faster_text(timed)])
    for (shape, kind), row in copies.items():
        rows.append([f"{shape} {kind}", f"{interval_text(row)}; {digits(row['gbps'])} GB/s", ABSENT, ABSENT, ABSENT])
    data = pd.DataFrame([_data(cell, copies) for cell in cells.values()])
    note = (
        f"Microseconds: median [20th, 80th percentile] over n blocks of calls. {'. '.join(measure.settings['passes'])}."
        " GB/s, and percent of the bandwidth of a copy beside it (above"
        " 100: the processor's cache). Copy: into memory that is there; clone: into new memory, as a norm's output is."
        f" {NORMS.title('none')} (or identity): what calling and timing cost; nothing is subtracted. Fastest: the one"
        f" whose whole interval lies below the others'.{_reasons(missing)}"
    )
    header = ["shape, norm, pass", *IMPLEMENTATIONS, "fastest"]
    return Table("speed_cells", "every implementation, norm and pass", header, rows, data, note)


def _copies(measure: Measure) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["shape"], row["kind"]): row for row in measure.values["norm-speed"]["copies"]}


def _cell_text(cell: Mapping[str, Any] | None, copy: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ABSENT
    if cell["gbps"] is None or copy is None:
        return interval_text(cell)
    return f"{interval_text(cell)}; {digits(cell['gbps'])} GB/s, {100 * cell['gbps'] / copy['gbps']:.0f} %"


def _data(cell: Mapping[str, Any], copies: Mapping[tuple[str, str], Mapping[str, Any]]) -> dict[str, Any]:
    copy = copies[cell["shape"], "copy"]["gbps"]
    return {**cell, "copy_gbps": copy, "share_of_copy": None if cell["gbps"] is None else cell["gbps"] / copy}


def _reasons(missing: Mapping[tuple[str, str, str, str], str]) -> str:
    said = [f"{reason} ({_where(reason, missing)})" for reason in dict.fromkeys(missing.values())]
    return f" Not measured: {'; '.join(said)}." if said else ""


def _where(reason: str, missing: Mapping[tuple[str, str, str, str], str]) -> str:
    count = sum(why == reason for why in missing.values())
    return f"{count} cell{'s' if count != 1 else ''}"


def bandwidth_table(measure: Measure) -> Table:
    """What memory would have to give for the printed times, against the copy that was measured."""
    values, copies = measure.values["norm-speed"], _copies(measure)
    rows, data = [], []
    for shape, needed in values["needed_gbps"].items():
        copy = copies.get((shape, "copy"))
        got = copy["gbps"] if copy else None
        size = _megabytes(shape)
        times = [f"{needed[norm] / got:.1f}" if got else ABSENT for norm in ("layernorm", "rmsnorm")]
        told = [digits(needed["layernorm"]), digits(needed["rmsnorm"]), digits(got) if got else ABSENT]
        rows.append([shape, digits(size), *told, *times])
        data.append(
            {"shape": shape, "tensor_mb": size, "copy_gbps": got, **{f"needed_{k}": v for k, v in needed.items()}}
        )
    header = ["shape", "tensor (MB)", "printed LayerNorm needs (GB/s)", "printed RMSNorm needs (GB/s)"]
    header += ["copy measured (GB/s)", "LayerNorm needs / copy", "RMSNorm needs / copy"]
    note = "A forward pass must at least read x and write y once; the copy reads and writes as much, on one thread."
    return Table("speed_bandwidth", "bandwidth that the printed times need", header, rows, pd.DataFrame(data), note)


def _megabytes(shape: str) -> float:
    size = 4.0
    for part in shape.split("x"):
        size *= int(part)
    return size / 1e6
