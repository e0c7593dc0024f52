"""Compiled blocks train the same net: equal up to rounding, and a lane is still an island."""

from __future__ import annotations

import shutil

import pytest
import torch
from tiny_nets import tiny

from normlab.config.engine import Engine
from normlab.config.schema import Thresholds
from normlab.execute.devices import compilers
from normlab.model import decoder
from normlab.store import curve_csv, strict_json
from normlab.train.loop import train_stack

COMPILED = Engine(compiled=True)


@pytest.mark.skipif(not any(map(shutil.which, compilers())), reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("default")  # what torch's own compiler warns of is not ours
def test_compiled_blocks_train_the_same_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "GROUP", 2)
    torch._dynamo.utils.counters.clear()
    specs = [tiny(seed=seed, model__depth=4, model__width=16, model__hidden=32) for seed in (0, 1)]
    plain = train_stack(specs, thresholds=Thresholds())
    compiled = train_stack(specs, thresholds=Thresholds(), engine=COMPILED)
    graphs = torch._dynamo.utils.counters["stats"]
    assert graphs["unique_graphs"] == 1  # one program for both groups of blocks
    for ours, theirs in zip(compiled, plain, strict=True):
        assert ours.timing["compiled"] is True and "compiled" not in theirs.timing
        for name in ("train_loss", "grad_norm"):
            torch.testing.assert_close(
                torch.tensor(ours.curve[name][1:]), torch.tensor(theirs.curve[name][1:]), rtol=1e-4, atol=0
            )
    (alone,) = train_stack(specs[1:], thresholds=Thresholds(), engine=COMPILED)
    written = [strict_json(record.run) + curve_csv(record.curve) for record in (alone, compiled[1])]
    assert written[0] == written[1] and graphs["unique_graphs"] == 2


@pytest.mark.parametrize(("depth", "sizes"), [(20, [5] * 4), (6, [3, 3]), (7, [1] * 7), (3, [3]), (1, [1])])
def test_groups_are_of_one_size_and_keep_the_order(depth: int, sizes: list[int]) -> None:
    blocks = [torch.nn.Identity() for _ in range(depth)]
    found = decoder.groups(blocks)
    assert [len(group) for group in found] == sizes
    assert [block for group in found for block in group] == blocks
