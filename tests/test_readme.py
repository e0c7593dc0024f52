"""The README is true: its example trains, its tables are the committed ones, its pictures exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from normlab.config.names import KNOWN

from normlab.config.load import load_study
from normlab.config.plan import expand
from normlab.config.schema import RunSpec
from normlab.model.norms import NORMS
from normlab.model.placements import PLACEMENTS
from normlab.train.loop import train_stack

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fence(first_line: str) -> str:
    (text,) = re.findall(rf"^```\w+\n({re.escape(first_line)}\n.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return text


@pytest.fixture
def catalogues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the example's names out of the other tests."""
    for kind, catalogue in (("norms", NORMS), ("placements", PLACEMENTS)):
        monkeypatch.setitem(KNOWN, kind, list(KNOWN[kind]))
        for name in ("scalenorm", "reordered"):
            monkeypatch.delitem(catalogue, name, raising=False)


@pytest.mark.usefixtures("catalogues")
def test_the_example_of_a_norm_and_a_placement_of_ones_own_trains(tmp_path: Path) -> None:
    (tmp_path / "my_norms.py").write_text(fence("# my_norms.py"))
    (tmp_path / "my_study.yaml").write_text(fence("# my_study.yaml"))
    try:
        study = load_study(tmp_path / "my_study.yaml")
        plan = expand(study)
        assert len(plan) == 9
        tree = plan[0].spec.model_dump()
        tree["train"] |= {"steps": 3, "batch": 2, "eval_every": 3}
        tree["task"]["val_size"] = 4
        (record,) = train_stack([RunSpec.model_validate(tree)], thresholds=study.thresholds)
        built = record.run["built"]
        assert (built["norm"], built["placement"], built["final_norm"]) == ("ScaleNorm", "Reordered", "LayerNorm")
        assert built["norms"] == 24 and record.run["outcome"] in ("stalled", "trained")
    finally:
        NORMS.pop("scalenorm", None)
        PLACEMENTS.pop("reordered", None)


def test_every_file_that_is_shown_or_linked_exists() -> None:
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#:]+)\)", prose)
    assert links and all((ROOT / link).exists() for link in links)


def test_tables_are_the_committed_ones() -> None:
    shown = re.findall(r"^<!-- (results/\S+\.md) -->\n\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert shown
    for name, table in shown:
        assert table in (ROOT / name).read_text(encoding="utf-8"), name
