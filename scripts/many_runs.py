"""Make a results folder of very many runs out of a real one, to try the reading half at scale.

    python scripts/many_runs.py 10000 /tmp/many/postln
    python scripts/many_runs.py 10000 /tmp/many/cells --rates 500 --nan 0.05

THESE ARE COPIES, NOT MEASUREMENTS, and the folder's question says so. A run is a run of the source (at the rate that
lies nearest) whose validation losses and activations are multiplied by random factors; the factor of the losses is 1
at step 0 and grows away from it, so that copies part as seeds do. Training losses and gradient norms are the source's
own. With --nan a share of the copies is cut at a random step that passes for a NaN onset. Outcome, spikes and losses of
the record follow from the copied curve, and ids from the spec, so that `normlab tables`, `status`, `report` and
`verify` take the folder for one of their own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from normlab.config.dump import study_yaml
from normlab.config.plan import PlannedRun, expand
from normlab.config.scalars import show
from normlab.config.schema import Axis, Point, Study
from normlab.manifests import FORMAT, NAME, ResultsError, read_manifest, read_object, read_study
from normlab.outcome import count_spikes, judge
from normlab.store import curve_text, strict_json

LR = "optim.lr"
REAL = Path(__file__).resolve().parent.parent / "results" / "reference" / "postln"
_SPREAD = 0.03  # standard deviation of the logarithm of the losses' factor at the last step


@dataclass(frozen=True)
class Donor:
    """A real run: its record, its circumstances as they are written, the lines of its curve, and the rows among them
    that are evaluations, as numbers (NaN for an empty cell): step, train_loss, grad_norm, val_loss, activations."""

    run: dict[str, Any]
    timing: bytes
    lines: list[str]  # the header first, so that line s + 1 is step s of a complete curve
    evaluations: dict[int, np.ndarray]  # by line

    @classmethod
    def read(cls, folder: Path) -> Donor:
        """The run in `folder`."""
        lines = curve_text(folder).splitlines()
        nothing = "," * (lines[0].count(",") - 2)
        taken = {at: line for at, line in enumerate(lines) if at and not line.endswith(nothing)}
        rows = {at: np.array([float(cell or "nan") for cell in line.split(",")]) for at, line in taken.items()}
        return cls(read_object(folder / "run.json"), (folder / "timing.json").read_bytes(), lines, rows)


def widened(study: Study, runs: int, rates: int) -> Study:
    """The study with `runs` runs: `rates` learning rates between its lowest and highest (0: its own), more seeds."""
    axes = tuple(_rates(axis, rates) if axis.name == LR and rates else axis for axis in study.axes)
    cells = math.prod(len(axis.points) for axis in axes)
    if runs < cells or runs % cells:
        raise ValueError(
            f"expected a multiple of the {cells} settings, such as {max(1, runs // cells) * cells}: {runs}"
        )
    question = f"COPIES of real runs, not measurements: {study.question}"
    seeds = tuple(range(runs // cells))
    return study.model_copy(update={"axes": axes, "seeds": seeds, "question": question})


def _rates(axis: Axis, rates: int) -> Axis:
    ends = sorted(float(point.settings[LR]) for point in axis.points)
    values = [float(f"{rate:.6g}") for rate in np.geomspace(ends[0], ends[-1], rates)]
    return Axis(name=LR, points=tuple(Point(label=show(value), settings={LR: value}) for value in values))


def donors(source: Path) -> tuple[dict[str, Any], Study, list[Donor]]:
    """Manifest, study and runs of a real results folder."""
    manifest = read_manifest(source)
    study = read_study(source, manifest)
    found = []
    for run in manifest["runs"]:
        folder = source / "runs" / run["id"]
        if (folder / "run.json").is_file():
            found.append(Donor.read(folder))
    if not found:
        raise ValueError(f"{source}: expected at least one finished run")
    return manifest, study, found


def nearest(run: PlannedRun, found: Sequence[Donor]) -> list[Donor]:
    """The real runs whose setting is closest to that of `run`: fewest fields that differ, then the nearest rate."""
    spec = run.spec.model_dump(mode="json")

    def away(donor: Donor) -> tuple[int, float]:
        other = donor.run["spec"]
        fields = [(spec[part][name], other[part][name]) for part in other if part != "seed" for name in other[part]]
        rate = abs(math.log(spec["optim"]["lr"] / other["optim"]["lr"]))
        return sum(a != b for a, b in fields) - (rate > 0), round(rate, 9)

    closest = min(map(away, found))
    return [donor for donor in found if away(donor) == closest]


def copy(run: PlannedRun, donor: Donor, study: Study, cut: int | None, rng: np.random.Generator) -> dict[str, bytes]:
    """The files of one copy. `cut`: the line of the curve that passes for a NaN onset, None for the whole curve."""
    lines, taken = _shaken(donor, rng)
    given, spikes = donor.run["onset"], donor.run["spikes"]
    if cut is not None and given is None:
        lines, given = _cut(donor, lines, cut)
        taken = {step: loss for step, loss in taken.items() if step < given["step"]}
        train = [float(cell) for line in lines[1:] if (cell := line.split(",", 2)[1])]
        spikes = count_spikes(train, study.thresholds.spike_margin)
    outcome = judge(list(taken.values()), donor.run["task"]["guess"], given and given["step"], study.thresholds)
    best = None if outcome == "nan" else min(taken, key=lambda step: taken[step])
    losses = {"initial": taken.get(0), "final": None if best is None else taken[max(taken)]}
    record = {
        **donor.run,
        "id": run.id,
        "spec": run.spec.model_dump(mode="json"),
        "built": {**donor.run["built"], "lr": run.spec.optim.lr},
        "thresholds": study.thresholds.model_dump(mode="json"),
        "outcome": outcome,
        "onset": given,
        "steps": int(lines[-1].split(",", 1)[0]),
        "loss": {**losses, "best": None if best is None else taken[best], "best_step": best},
        "spikes": spikes,
    }
    text = "\n".join(lines) + "\n"
    return {"run.json": strict_json(record).encode(), "curve.csv": text.encode(), "timing.json": donor.timing}


def _shaken(donor: Donor, rng: np.random.Generator) -> tuple[list[str], dict[int, float]]:
    """The lines of the curve with other validation losses and activations, and these losses by step."""
    lines, taken = list(donor.lines), {}
    loss, activation = np.exp(_SPREAD * rng.standard_normal(2))
    for at, row in donor.evaluations.items():
        shaken = row[3:] * activation
        shaken[0] = row[3] * loss ** (row[0] / max(1, donor.run["steps"]))
        cells = ["" if value != value else str(value) for value in shaken.astype(np.float32)]
        lines[at] = ",".join([*lines[at].split(",", 3)[:3], *cells])
        if cells[0]:
            taken[int(row[0])] = float(cells[0])
    return lines, taken


def _cut(donor: Donor, lines: list[str], at: int) -> tuple[list[str], dict[str, Any]]:
    """The curve up to line `at`, or the next that is no evaluation, with a loss that is not finite there."""
    at = next((line for line in range(at, len(lines)) if line not in donor.evaluations), 0)
    if not at:
        raise ValueError("--nan: expected curves with steps between their evaluations")
    step = int(lines[at].split(",", 1)[0])
    onset = {"step": step, "kind": "loss", "phase": "forward", "producer": "made by many_runs.py", "nan": 1, "inf": 0}
    return [*lines[:at], f"{step},nan,nan" + "," * (lines[0].count(",") - 2)], onset


def make(source: Path, out: Path, runs: int, rates: int = 0, nan: float = 0.0, seed: int = 0) -> Path:
    """Write `runs` copies into the new folder `out`; ValueError or ResultsError says what does not fit."""
    manifest, old, found = donors(source)
    study = widened(old, runs, rates)
    plan = expand(study)
    out.mkdir(parents=True)  # FileExistsError: nothing is overwritten.
    (out / "config.yaml").write_text(study_yaml(study), encoding="utf-8")
    hashes = {"config.yaml": hashlib.sha256((out / "config.yaml").read_bytes()).hexdigest()}
    hashes |= dict(_copies(plan, found, study, out, nan, seed))
    command = f"python scripts/many_runs.py {runs} {out} --source {source}"
    command += (f" --rates {rates}" if rates else "") + (f" --nan {nan:g}" if nan else "")
    planned = [{"id": run.id, "label": run.label, "cell": run.cell, "seed": run.spec.seed} for run in plan]
    kept = {key: value for key, value in manifest.items() if key not in ("curves", "shortened")}
    facts = {"format": FORMAT, "study": study.model_dump(mode="json"), "command": command, "runs": planned}
    (out / NAME).write_text(strict_json({**kept, **facts, "sessions": [], "files": hashes}), encoding="utf-8")
    return out


def _copies(
    plan: Sequence[PlannedRun], found: Sequence[Donor], study: Study, out: Path, nan: float, seed: int
) -> Iterator[tuple[str, str]]:
    """Write all runs; name and SHA-256 of each file."""
    rng = np.random.default_rng(seed)
    usable: dict[str, list[Donor]] = {}
    for run in plan:
        cell = json.dumps(run.cell)
        if cell not in usable:
            usable[cell] = nearest(run, found)
        donor = usable[cell][run.spec.seed % len(usable[cell])]
        last = len(donor.lines) - 1
        cut = int(rng.integers(2, last)) if last > 3 and rng.random() < nan else None
        folder = out / "runs" / run.id
        folder.mkdir(parents=True)
        for name, content in copy(run, donor, study, cut, rng).items():
            (folder / name).write_bytes(content)
            yield f"runs/{run.id}/{name}", hashlib.sha256(content).hexdigest()


def main() -> int:
    """Command line; exit code 2 for what cannot be made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int, help="how many runs")
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--source", type=Path, default=REAL, help="results folder of real runs (default: postln)")
    parser.add_argument("--rates", type=int, default=0, help="learning rates (default: those of the source)")
    parser.add_argument("--nan", type=float, default=0.0, help="share of copies cut at a made-up NaN onset (default 0)")
    given = parser.parse_args()
    try:
        make(given.source, given.out, given.runs, given.rates, given.nan)
    except FileExistsError:
        print(f"{given.out}: expected a folder that does not exist yet", file=sys.stderr)
        return 2
    except (ValueError, ResultsError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{given.out}: {given.runs} copies of runs in {given.source}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
