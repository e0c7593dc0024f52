"""The tables of `normlab speed`: the article's layout here, the others in the modules beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from normlab.analysis.measured_speed_cells import bandwidth_table, by_key, cells_table
from normlab.analysis.measured_speed_model import model_table
from normlab.analysis.speed_text import ABSENT, digits, faster_text, interval_text, share_text
from normlab.analysis.table import Table
from normlab.catalogue import NORMS
from normlab.measures import Measure


def tables(measure: Measure) -> list[Table]:
    """The article's layout first, then every cell, the bandwidth that the printed times need, and the whole net."""
    return [article_table(measure), cells_table(measure), bandwidth_table(measure), model_table(measure)]


def article_table(measure: Measure) -> Table:
    """Section 6.4's layout: forward of torch's LayerNorm and of a handwritten RMSNorm, and section 3.4's shape."""
    cells, values = by_key(measure), measure.values["norm-speed"]
    ratios = dict(values["ratio"])
    single = measure.values["rms-speed-single"]
    rows, data = [], []
    for shape in measure.settings["shapes"]:
        pair = {
            "layernorm": cells.get((shape, "layernorm", "forward", "native")),
            "rmsnorm": cells.get((shape, "rmsnorm", "forward", "handwritten")),
        }
        timed = {NORMS.title(norm): cell for norm, cell in pair.items() if cell}
        share = ratios.get(shape) or (single.get("faster_by") if len(timed) == 2 else None)
        printed = values["printed_us"].get(shape) or {}
        faster = faster_text(timed)
        told = [interval_text(cell) if cell else ABSENT for cell in pair.values()]
        rows.append([shape, *told, share_text(share), faster, *_printed(printed)])
        data.append(_article_data(shape, pair, share, faster, printed))
    header = ["shape", "nn.LayerNorm (us)", "handwritten RMSNorm (us)", "RMSNorm faster by", "faster"]
    header += ["printed LayerNorm", "printed RMSNorm", "printed faster by"]
    note = (
        "Forward call (recorded for a backward pass, as in training): median [20th, 80th percentile] over n blocks of"
        " calls. Faster by: share of LayerNorm's time, a value a round"
        f" ({measure.settings['rounds']} interleaved rounds); negative where RMSNorm is slower. Faster: the one whose"
        " whole interval lies below the other's. The article prints the last row's times in section 3.4."
    )
    return Table("speed", "LayerNorm and RMSNorm by shape", header, rows, pd.DataFrame(data), note + _noise(measure))


def _article_data(
    shape: str, pair: Mapping[str, Any], share: Mapping[str, Any] | None, faster: str, printed: Mapping[str, float]
) -> dict[str, Any]:
    row: dict[str, Any] = {"shape": shape}
    for norm, cell in pair.items():
        row |= {f"{norm}_{key}": (cell or {}).get(key) for key in ("median_us", "low_us", "high_us", "n")}
    row |= {f"faster_by_{key}": (share or {}).get(key) for key in ("median", "low", "high", "n")}
    row |= {"faster": faster}
    return row | {f"printed_{norm}_us": printed.get(norm) for norm in pair}


def _printed(printed: Mapping[str, float]) -> list[str]:
    if not printed:
        return [ABSENT] * 3
    ln, rms = printed["layernorm"], printed["rmsnorm"]
    return [digits(ln), digits(rms), f"{100 * (1 - rms / ln):.0f} %"]


def _noise(measure: Measure) -> str:
    load, cores = measure.settings["load_average_at_start"], measure.settings["cores"]
    if load < 0.5:
        return f" Load average at the start: {load:.1f} on {cores} cores."
    return f" The machine was not idle: load average {load:.1f} at the start, on {cores} cores."
