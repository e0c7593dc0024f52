"""From times by round to the values that the ledger reads: what is faster by how much, and what memory must give."""

from __future__ import annotations

from functools import partial
from typing import Any

from normlab.studies.speed_clock import saved, summary
from normlab.studies.speed_norms import DYT, LN, RMS, Cell
from normlab.studies.speed_shapes import AtShape, Shape, Timed


def shape_values(found: list[AtShape], single_name: str) -> dict[str, Any]:
    """The ledger's values of the norms by themselves: `norm-speed`, `rms-speed-single`, `dyt-speed`.

    `ratio` is the share of the time of torch's LayerNorm that a handwritten RMSNorm saves, by round; `single_name` is
    the shape of section 3.4, which stands outside the sweep."""
    swept = [at for at in found if at.shape.name != single_name and at.cells]
    largest = max(swept or found, key=lambda at: at.shape.bytes)
    single = [at for at in found if at.shape.name == single_name and {LN, RMS} <= at.cells.keys()]
    faster = partial(_faster_by, found)
    return {
        "norm-speed": {
            "cells": [_cell(at.shape, cell, timed) for at in found for cell, timed in at.cells.items()],
            "not_measured": [
                {"shape": at.shape.name, **_named(cell), "reason": why}
                for at in found
                for cell, why in at.absent.items()
            ],
            "ratio": _faster_by(swept, RMS, LN),
            "ratio_native": faster(RMS._replace(implementation="native"), LN),
            "ratio_compiled": faster(RMS._replace(implementation="compiled"), LN._replace(implementation="compiled")),
            "printed_us": {at.shape.name: _printed(at.shape) for at in found if at.shape.printed},
            "needed_gbps": {at.shape.name: needed_gbps(at.shape) for at in found if at.shape.printed},
            "copies": [
                {"shape": at.shape.name, "kind": kind, **_times(timed), "gbps": _copy_gbps(at, kind)}
                for at in found
                for kind, timed in at.copies.items()
            ],
            "copy_gbps": _copy_gbps(largest, "copy") if largest.copies else None,
        },
        "rms-speed-single": {
            "layernorm_us": summary(_us(single[0].cells[LN])),
            "rmsnorm_handwritten_us": summary(_us(single[0].cells[RMS])),
            "faster_by": _faster_by(single, RMS, LN)[single_name],
        }
        if single
        else {},
        "dyt-speed": {"faster_by_than_layernorm": _faster_by(swept, DYT, LN)},
    }


def _faster_by(found: list[AtShape], ours: Cell, theirs: Cell) -> dict[str, Any]:
    """By shape: 1 - our time / their time, round by round."""
    pairs = {
        at.shape.name: (at.cells[ours].medians, at.cells[theirs].medians)
        for at in found
        if {ours, theirs} <= at.cells.keys()
    }
    return {name: saved(a[: len(b)], b[: len(a)]) for name, (a, b) in pairs.items()}


def needed_gbps(shape: Shape) -> dict[str, float]:
    """GB/s at which x would have to be read and y written for the printed times."""
    return {norm: moved_bytes(shape, "forward") / us / 1e3 for norm, us in _printed(shape).items()}


def _printed(shape: Shape) -> dict[str, float]:
    assert shape.printed
    return dict(zip(("layernorm", "rmsnorm"), shape.printed, strict=True))


def moved_bytes(shape: Shape, direction: str) -> int:
    """The least that a pass moves between memory and processor; see PASS_TEXTS in speed.py."""
    return {"forward": 2, "backward": 3, "both": 5}[direction] * shape.bytes


def _copy_gbps(at: AtShape, kind: str) -> float:
    return moved_bytes(at.shape, "forward") / summary(at.copies[kind].all)["median"] / 1e9


def _cell(shape: Shape, cell: Cell, timed: Timed) -> dict[str, Any]:
    row: dict[str, Any] = {"shape": shape.name, **_named(cell), **_times(timed)}
    row["gbps"] = None if cell.norm == "none" else moved_bytes(shape, cell.direction) / row["median_us"] / 1e3
    return row | {"rounds": len(timed.by_round), "max_abs_error": timed.error}


def _named(cell: Cell) -> dict[str, str]:
    return {"implementation": cell.implementation, "norm": cell.norm, "pass": cell.direction}


def _times(timed: Timed) -> dict[str, float | int]:
    return {f"{key}_us" if key != "n" else key: value for key, value in summary(_us(timed)).items()}


def _us(timed: Timed) -> list[float]:
    return [1e6 * t for t in timed.all]
