"""Results folders made without training."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import reproduced
import synthetic
from six_runs import make_six_runs

from normlab.analysis.article import write_article
from normlab.analysis.evidence import Evidence
from normlab.analysis.verdicts import Judged, judge_all

ENDINGS = {
    ("6", "1e-4"): ["trained", "trained", "trained"],
    ("6", "3e-4"): ["better", "better", "better"],
    ("6", "1e-3"): ["nan@37", "trained", "trained"],
    ("6", "3e-3"): ["stalled", "stalled", "stalled"],
    ("6", "1e-2"): ["diverged", "diverged", "diverged"],
    ("12", "1e-4"): ["unsteady", "unsteady", "unsteady"],
    ("12", "3e-4"): ["trained", "trained", "trained"],
    ("12", "1e-3"): ["better", "better", "missing"],
    ("12", "3e-3"): ["nan@30", "nan@31", "nan@32"],
    ("12", "1e-2"): ["stalled", "failed", "failed"],
}


@pytest.fixture
def every_ending(tmp_path: Path) -> Path:
    """Depths 6 and 12, five learning rates, three seeds; every outcome occurs, and seeds that disagree."""
    of = synthetic.study(
        synthetic.axis("model.depth", "6", "12"),
        synthetic.axis("optim.lr", "1e-4", "3e-4", "1e-3", "3e-3", "1e-2"),
        seeds=(0, 1, 2),
    )
    ends = lambda run: ENDINGS[run.cell["model.depth"], run.cell["optim.lr"]][run.spec.seed]  # noqa: E731
    return synthetic.make_results(tmp_path / "toy", of, ends)


@pytest.fixture(scope="session")
def article(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reproduction with all that feeds the article's tables; only to be read."""
    return reproduced.make_reproduction(tmp_path_factory.mktemp("results") / "article")


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a reproduction with a picture of its own, written up; only to be read."""
    root = reproduced.make_pictured(tmp_path_factory.mktemp("written") / "article")
    write_article(root)
    return root


@pytest.fixture(scope="session")
def evidence(article: Path) -> Evidence:
    return Evidence.open(article)


@pytest.fixture(scope="session")
def judged(evidence: Evidence) -> list[Judged]:
    return judge_all(evidence)


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of six runs, one for each way to end, with tables and hashes; only to be read."""
    return make_six_runs(tmp_path_factory.mktemp("verify") / "toy")


@pytest.fixture
def results(untouched: Path, tmp_path: Path) -> Path:
    """A copy of the six runs, to be damaged."""
    return Path(shutil.copytree(untouched, tmp_path / "toy"))
