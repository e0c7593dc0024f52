"""The table of `normlab speed` on the whole net in training."""

from __future__ import annotations

import pandas as pd

from normlab.analysis.speed_text import ABSENT, digits, faster_text, interval_text, share_text
from normlab.analysis.table import Table
from normlab.catalogue import NORMS
from normlab.measures import Measure


def model_table(measure: Measure) -> Table:
    """One training step of the toy with each norm, and the norms' share of its time and its operations."""
    found = measure.values["model-speed"]["rows"]
    rows, data = [], []
    ln = next(row for row in found if row["norm"] == "layernorm")
    for row in found:
        own = row["norm"] == "layernorm"
        faster = ABSENT if own else faster_text({NORMS.title(of["norm"]): of for of in (row, ln)})
        gain, share = (ABSENT if none else share_text(row[key]) for none, key in _columns(row["norm"]))
        operations = sum(row[f"flops_{part}"] for part in ("products", "norms", "other"))
        flops = [f"{100 * row['flops_share']:.2g} %", f"{digits(operations / 1e6)} M"]
        rows.append([NORMS.title(row["norm"]), interval_text(row), gain, faster, share, *flops])
        data.append(
            {key: value for key, value in row.items() if not isinstance(value, dict)}
            | {f"faster_by_{key}": value for key, value in row["faster_by_than_layernorm"].items()}
            | {f"time_share_{key}": value for key, value in row["time_share"].items()}
            | {"faster": faster}
        )
    header = ["norm", "training step (us)", "faster than LayerNorm by", "faster", "norms' share of the time"]
    header += ["of the operations", "operations"]
    return Table("speed_model", "training step of the whole net", header, rows, pd.DataFrame(data), _note(measure))


def _columns(norm: str) -> tuple[tuple[bool, str], tuple[bool, str]]:
    """For each of the two shares whether this norm has none, since it would be compared with itself."""
    return (norm == "layernorm", "faster_by_than_layernorm"), (norm == "none", "time_share")


def _note(measure: Measure) -> str:
    shares = measure.values["norm-runtime-share"]["flops_share_by_width"]
    widths = ", ".join(f"{100 * share:.2g} % at width {width}" for width, share in shares.items())
    return (
        "The default net (20 layers, width 64, Pre-LN), one run, norms as the studies train them: torch's layer_norm"
        " without its affine part for LayerNorm, plain operations for the others; LayerNorm before the head of each,"
        " none at all in the last row. Median [20th, 80th percentile];"
        f" shares a value a round ({measure.settings['model_rounds']} interleaved rounds). Share of the time: by"
        " difference against the net without norms. Operations are counted by formula; LayerNorm's share of them with"
        f" the same net at other widths: {widths}."
    )
