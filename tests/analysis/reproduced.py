"""A reproduction made without training: the studies that feed the article's tables, small, each run a story."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import synthetic

from normlab.analysis.article_tables import ArticleTable, Cell, article_tables
from normlab.analysis.evidence import Evidence
from normlab.analysis.verdicts import Judged
from normlab.config.plan import PlannedRun
from normlab.config.schema import Axis, Point
from normlab.measures import Measure, write_measure
from normlab.store import strict_json, write_file

ENVIRONMENT = {"commit": "abc1234", "dirty": False, "device": "cpu", "threads": 1, "torch": "2.13", "cpu": "A CPU"}
NORMS = synthetic.axis("model.norm", "none", "layernorm", "rmsnorm")
RATES = synthetic.axis("optim.lr", "1e-4", "3e-4", "1e-3", "3e-3", "1e-2")
SHAPES = ("4x128x512", "8x256x1024", "16x512x2048", "32x1024x4096")


def _placed(placement: str, warmup: int) -> dict[str, Any]:
    return {"model.placement": placement, "optim.warmup": warmup}


VARIANTS = Axis(
    name="variant",
    points=(
        Point(label="post", settings=_placed("post", 0)),
        Point(label="pre", settings=_placed("pre", 0)),
        Point(label="post, warm-up 1000", settings=_placed("post", 30)),
    ),
)
TRAINING: dict[str, tuple[tuple[Axis, ...], Callable[[PlannedRun], str]]] = {
    "collapse": (
        (NORMS, synthetic.axis("optim.lr", "1e-3", "1e-4")),
        lambda run: f"nan@{30 + run.spec.seed}" if run.spec.model.norm == "none" else "trained",
    ),
    "depth": (
        (synthetic.axis("model.depth", "6", "12", "20"), NORMS),
        lambda run: ("nan@37" if run.spec.seed == 0 else "trained") if run.spec.model.norm == "none" else "better",
    ),
    "warmup": ((VARIANTS,), lambda run: "trained"),
    "postln": (
        (synthetic.axis("model.depth", "12", "30"), RATES),
        lambda run: "stalled" if run.spec.optim.lr > 2e-3 else "trained",
    ),
    "preln": ((synthetic.axis("model.depth", "12", "30"), RATES), lambda run: "better"),
}
MEASURES: dict[str, dict[str, Any]] = {
    "params": {
        "norm-parameters": {"ln_one": 8192, "rms_one": 4096, "ln_model": 524288, "rms_model": 262144, "saved": 262144},
        "reductions": {"ln_per_norm": 2, "rms_per_norm": 1, "ln_per_layer": 4, "rms_per_layer": 2, "saving": 0.5},
    },
    "speed": {
        "norm-speed": {
            "cells": [
                {"shape": shape, "implementation": made, "norm": norm, "pass": "forward", "median_us": 60.25 * times,
                 "low_us": 60.0 * times, "high_us": 61.0 * times, "n": 200}
                for shape in SHAPES
                for norm, made, times in (("layernorm", "native", 1), ("rmsnorm", "handwritten", 2))
            ],
            "ratio": {shape: {"median": -1.0, "low": -1.1, "high": -0.9, "n": 20} for shape in SHAPES},
        }
    },
    "numerics": {
        "block-exit-norms": {"post": 8.0, "pre": 8.3924},
        "stack-explode": {"norms": [8.0, 76.0, 700.0, 6.0e3, 4.0e4],
                          "nearest": {"setting": "randn * 1.2 < & |", "distance": 0.5, "tried": 3}},
    },
}  # fmt: skip


def make_reproduction(root: Path, *, quick: bool = False, training: tuple[str, ...] = tuple(TRAINING)) -> Path:
    """A reproduction with every measure and those training studies, seeds 0-2."""
    studies = []
    for name in training:
        axes, story = TRAINING[name]
        of = synthetic.study(*axes, seeds=(0, 1, 2)).model_copy(update={"name": name})
        synthetic.make_results(root / "studies" / name, of, story)
        studies.append({"name": name, "kind": "training", "folder": f"studies/{name}"})
    for name, values in MEASURES.items():
        measure = Measure(name, f"What of {name}?", f"normlab {name}", quick, {}, values, ENVIRONMENT, "2026", 1.0)
        write_measure(root / "studies" / name, measure)
        studies.append({"name": name, "kind": "measure", "folder": f"studies/{name}"})
    studies.append({"name": "lr_wide", "kind": "training", "folder": "studies/lr_wide"})  # planned, not there
    manifest = {
        "format": 1,
        "kind": "reproduction",
        "command": "normlab reproduce --seeds 0-2",
        "quick": quick,
        "shortened": ["3000 steps -> 60"] if quick else [],
        "seeds": [0, 1, 2],
        "studies": studies,
        **ENVIRONMENT,
        "sessions": [],
    }
    write_file(root / "manifest.json", strict_json(manifest))
    return root


def make_pictured(root: Path) -> Path:
    """A reproduction one of whose measures has drawn a figure of its own."""
    make_reproduction(root)
    own = root / "studies" / "numerics" / "figures"
    own.mkdir()
    own.joinpath("growth.png").write_bytes(b"\x89PNG not one")
    return root


# The last tables that were filled, with what they were filled from: many tests ask for one after another of them.
_last: tuple[Evidence, list[Judged], str, list[ArticleTable]] | None = None


def article_table(evidence: Evidence, judged: list[Judged], name: str, lang: str = "en") -> ArticleTable:
    """The article's table `name` with its cells filled."""
    global _last
    if _last is None or _last[0] is not evidence or _last[1] is not judged or _last[2] != lang:
        _last = (evidence, judged, lang, article_tables(evidence, judged, lang))
    return next(table for table in _last[3] if table.layout.id == name)


def article_cell(of: ArticleTable, row: str, column: str) -> Cell:
    """A cell by the keys of its row and column."""
    rows, columns = [r.key for r in of.layout.rows], [c.key for c in of.layout.columns]
    return of.cells[rows.index(row)][columns.index(column)]
