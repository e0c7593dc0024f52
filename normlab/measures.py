"""Results of studies that are no training sweep: one `measure.json` a folder, strict JSON, written by one rename."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normlab.store import FORMAT, strict_json, write_file

NAME = "measure.json"


@dataclass(frozen=True)
class Measure:
    """What one study measured.

    name         the study, `numerics`
    question     one sentence
    command      the canonical command
    quick        whether it was shortened (`--quick`); `settings` then says how
    settings     what was measured, as plain values
    values       by ledger id: a tree whose leaves are a number, a list of numbers, `{"by_seed": {"0": x, ...}}`, or
                 `{"median": x, "low": x, "high": x, "n": k}` (20th and 80th percentile) for times; null where a value
                 was not finite
    environment  commit, dirty, device, device_name, threads, torch, normlab, python, platform, cpu
    """

    name: str
    question: str
    command: str
    quick: bool
    settings: Mapping[str, Any]
    values: Mapping[str, Any]
    environment: Mapping[str, Any]
    started: str
    seconds: float


def write_measure(folder: Path, measure: Measure) -> None:
    """Write `folder/measure.json`, whole or not at all; null stands for what is not finite."""
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / NAME, strict_json({"format": FORMAT, "kind": "measure", **vars(measure)}))


def read_measure(folder: Path) -> Measure:
    """The measure in `folder`; ValueError, one line that names the file, if there is none or it cannot be read."""
    path = folder / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT or content.pop("kind") != "measure":
            raise ValueError(f"expected a measure of format {FORMAT}")
        return Measure(**content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: cannot be read as a measure: {error}") from error
