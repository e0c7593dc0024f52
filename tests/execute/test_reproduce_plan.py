"""The parts of the article's reproduction, and how `--quick` shortens them."""

from __future__ import annotations

from pathlib import Path

import pytest

from normlab.config.load import load_study, shipped_configs
from normlab.config.plan import expand
from normlab.execute import parts
from normlab.execute.parts import make_plan


@pytest.mark.parametrize("quick", [False, True])
def test_the_plan_of_the_article_is_whole(quick: bool) -> None:
    plan = make_plan(quick)
    assert [part.name for part in plan.parts] == [*parts.BEFORE, *parts.TRAINING, *parts.AFTER]
    assert plan.parts[-1].name == "speed" and plan.seeds == ((0,) if quick else (0, 1, 2))
    assert bool(plan.shortened) == quick
    assert make_plan(quick, "0-3").seeds == (0, 1, 2, 3)


@pytest.mark.parametrize("path", shipped_configs(), ids=lambda path: path.stem)
def test_every_shipped_study_can_be_shortened(path: Path) -> None:
    full = load_study(path)
    short = parts.shorten(full)
    runs, whole = expand(short), expand(full)
    assert len(runs) == len(whole)
    for one, other in zip(runs, whole, strict=True):
        assert (one.cell, one.spec.model) == (other.cell, other.spec.model)
        assert one.spec.train.steps == other.spec.train.steps // parts.PART
        assert one.spec.optim.warmup == other.spec.optim.warmup // parts.PART < one.spec.train.steps
    train = short.base.train
    assert all(step % train.eval_every == 0 and step <= train.steps for step in short.outputs.steps)
    assert len(short.outputs.steps) > 2


def test_the_commands_of_a_quick_plan_ask_the_same_questions() -> None:
    shipped = {path.stem: path for path in shipped_configs()}
    exact = [part for part in make_plan(True, "0,2").training if part.command.startswith("normlab run ")]
    assert {part.name for part in exact} == set(parts.TRAINING) - {"warmup"}
    for part in exact:
        words = part.command.split()
        seeds = words[words.index("--seeds") + 1]
        assert load_study(shipped[part.name], words[3:-2], seeds) == part.study
