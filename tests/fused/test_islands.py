"""A lane's bits are the same alone and in company, and a run's in one worker, in two, and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from nets import NETS, SIZES, pair, spec_of, steps

from normlab.cli import main
from normlab.config.engine import Engine
from normlab.config.schema import Thresholds
from normlab.fused.build import Library
from normlab.store import curve_csv, strict_json
from normlab.train.loop import train_stack

STUDY = """
question: Does it hang on who trains it?
base: {task: {vocab: 11, length: 5, val_size: 20}, model: {depth: 2, width: 20, hidden: 12}, train: {batch: 4}}
axes: {model.norm: [layernorm, none, scalenorm], optim.lr: [1e-2, 1e30]}
"""


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("net", NETS, ids=["-".join(net) for net in NETS])
def test_alone_and_in_company(net: tuple[str, str, str], precision: str, library: Library) -> None:
    for size in SIZES:
        specs = [spec_of(net, precision, size, seed, lr=1e-2 * (seed + 1)) for seed in range(3)]
        _, together = pair(specs, library, spread=0.0)
        _, alone = pair(specs[2:], library, spread=0.0)
        of_all, of_one = steps(together, 6, ruined=3), steps(alone, 6)
        assert torch.equal(together.params_SP[2], alone.params_SP[0])
        for mine, own in zip(of_all, of_one, strict=True):
            assert all(torch.equal(a[2], b[0]) for a, b in zip(mine, own, strict=True))


def test_whole_runs_in_company(library: Library) -> None:
    engine, specs = Engine(fused=library.name), [spec_of(("none", "pre", "mean"), lr=lr) for lr in (1e-2, 1e300, 3e-3)]
    together = train_stack(specs, thresholds=Thresholds(), engine=engine)
    assert [record.run["outcome"] for record in together][1] == "nan"
    for spec, record in zip(specs, together, strict=True):
        (alone,) = train_stack([spec], thresholds=Thresholds(), engine=engine)
        assert strict_json(alone.run) + curve_csv(alone.curve) == strict_json(record.run) + curve_csv(record.curve)


def contents(folder: Path) -> dict[str, bytes]:
    """What every run in a results folder holds, but for its timing."""
    files = [*folder.glob("runs/*/run.json"), *folder.glob("runs/*/curve.csv")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_workers_and_sittings_change_nothing(tmp_path: Path, library: Library) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    words = ["run", str(study), "train.steps=12", "train.eval_every=6", "-q"]
    one, two, resumed = (tmp_path / name for name in ("one", "two", "resumed"))
    assert main([*words, "-o", str(one), "--jobs", "1"]) == 0
    assert main([*words, "-o", str(two), "--jobs", "2", "--engine", "auto"]) == 0
    assert main([*words, "-o", str(resumed), "--shard", "1/2"]) == 0
    assert main([*words, "-o", str(resumed), "--resume"]) == 0
    assert len(contents(one)) == 12 and contents(one) == contents(two) == contents(resumed)
