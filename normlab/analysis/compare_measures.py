"""Two measures value by value, joined by path."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from normlab.analysis.compare_cells import (
    DIFFERENT,
    EQUAL,
    ONLY_A,
    ONLY_B,
    SPEED,
    Compared,
    numbers_agree,
    seeds_agree,
    times_agree,
)
from normlab.analysis.samples import short
from normlab.measures import Measure

TIMES = ("median", "low", "high")
# Whole numbers that say which row it is, not what was measured.
LABELS = ("depth", "layer", "step", "width")
# Ends of names of rates and times that have no interval of their own.
SPEEDS = ("us", "ms", "seconds", "gbps", "mb", "per_s")


def compare_measures(study: str, a: Measure, b: Measure) -> Iterator[Compared]:
    """Every value of both; in the measure of times, and wherever a value is a time, the worst is `other speed`."""
    one, two = dict(leaves(a.values)), dict(leaves(b.values))
    for path in [*one, *(path for path in two if path not in one)]:
        if path not in two or path not in one:
            text = _text(one[path] if path in one else two[path])
            side = (ONLY_A, text, "") if path in one else (ONLY_B, "", text)
            yield Compared(study, path, *side)
            continue
        verdict, reason = _agree(path, one[path], two[path])
        if verdict == DIFFERENT and (a.name == "speed" or _timed(path)):
            verdict = SPEED
        yield Compared(study, path, verdict, _text(one[path]), _text(two[path]), reason)


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of every leaf: a number, a text, `{"by_seed": ...}` or `{"median": ..., "low": ..., "high": ...}`.

    A row of a list is named by its texts and by the whole numbers that count layers, steps and the like; the seeds of
    rows that differ in nothing else become one value by seed."""
    if isinstance(tree, Mapping) and ("by_seed" in tree or set(TIMES) <= tree.keys()):
        yield path, {"by_seed": tree["by_seed"]} if "by_seed" in tree else {key: tree[key] for key in TIMES}
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            if key != "n":
                yield from leaves(value, f"{path}.{key}" if path else key)
    elif isinstance(tree, list) and any(isinstance(row, Mapping) for row in tree):
        yield from _rows(tree, path)
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from leaves(value, f"{path}[{number}]")
    else:
        yield path, tree


def _rows(rows: list[Any], path: str) -> Iterator[tuple[str, Any]]:
    named: dict[str, Any] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            named[f"{path}[{number}]"] = row
            continue
        labels = [f"{key}={_text(value)}" for key, value in row.items() if _labels(key, value)]
        name = f"{path}[{', '.join(labels) or number}]"
        values = {key: value for key, value in row.items() if not _labels(key, value) and key not in ("seed", "n")}
        values = _times_of(values)
        for key, value in values.items():
            # Again the same labels: told apart by what number they are.
            at, again = f"{name}.{key}", 2
            while at in named and not ("seed" in row and str(row["seed"]) not in named[at]["by_seed"]):
                at, again = f"{name}#{again}.{key}", again + 1
            if "seed" in row and not isinstance(value, (list, Mapping)):
                named.setdefault(at, {"by_seed": {}})["by_seed"][str(row["seed"])] = value
            else:
                named[at] = value
    for at, value in named.items():
        yield from leaves(value, at)


def _labels(key: str, value: Any) -> bool:
    return isinstance(value, (str, bool)) or (isinstance(value, int) and key in LABELS)


def _times_of(values: dict[str, Any]) -> dict[str, Any]:
    """`median_us`, `low_us` and `high_us` of a row as one time, `us`."""
    for unit in [key.removeprefix("median_") for key in values if key.startswith("median_")]:
        names = [f"{kind}_{unit}" for kind in TIMES]
        if all(name in values for name in names):
            time = dict(zip(TIMES, (values[name] for name in names), strict=True))
            values = {key: value for key, value in values.items() if key not in names} | {unit: time}
    return values


def _agree(path: str, a: Any, b: Any) -> tuple[str, str]:
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
        if "by_seed" in a:
            return seeds_agree(a["by_seed"], b["by_seed"])
        if all(_number(side[key]) for side in (a, b) for key in TIMES):
            return times_agree(a, b)
    if _number(a) and _number(b):
        return numbers_agree(path.rpartition(".")[2], a, b)
    return (EQUAL, "") if a == b and type(a) is type(b) else (DIFFERENT, "")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _timed(path: str) -> bool:
    last = path.rpartition(".")[2]
    return any(last == unit or last.endswith(f"_{unit}") for unit in SPEEDS)


def _text(value: Any) -> str:
    """A leaf for a reader."""
    if isinstance(value, Mapping) and "by_seed" in value:
        return ", ".join(_text(item) for item in value["by_seed"].values())
    if isinstance(value, Mapping):
        return f"{_text(value['median'])} [{_text(value['low'])}, {_text(value['high'])}]"
    if _number(value):
        return short(value) if isinstance(value, int) else f"{value:.6g}"
    return "null" if value is None else str(value)
