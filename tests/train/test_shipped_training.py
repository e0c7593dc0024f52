"""Every shipped config can be trained: its last run, cut to three steps and a small validation set."""

from __future__ import annotations

from pathlib import Path

import pytest

from normlab.config.load import load_study, shipped_configs
from normlab.config.plan import expand
from normlab.config.schema import RunSpec
from normlab.train.loop import train_stack


def shortened(spec: RunSpec) -> RunSpec:
    tree = spec.model_dump()
    tree["train"] |= {"steps": 3, "eval_every": 3, "batch": 2}
    tree["task"]["val_size"] = 4
    tree["optim"]["warmup"] = min(spec.optim.warmup, 2)
    return RunSpec.model_validate(tree)


@pytest.mark.parametrize("path", shipped_configs(), ids=lambda path: path.stem)
def test_the_last_run_of_each_trains(path: Path) -> None:
    study = load_study(path)
    spec = shortened(expand(study)[-1].spec)
    (record,) = train_stack([spec], thresholds=study.thresholds)
    assert record.run["spec"] == spec.model_dump(mode="json")
    assert record.curve["step"] == [0, 1, 2, 3]
    assert record.run["built"]["depth"] == spec.model.depth
    # Other start values give logits of another size.
    if spec.model.init == "small_normal" and spec.model.init_options.all() == {"std": 0.02}:
        assert record.curve["train_loss"][1] == pytest.approx(record.run["task"]["uniform"], rel=0.1)
