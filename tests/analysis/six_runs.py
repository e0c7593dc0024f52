"""A study of six runs, one for each way to end, and what `normlab verify` finds in a damaged copy of it."""

from __future__ import annotations

from pathlib import Path

import folders
import synthetic

from normlab.analysis.verify import verify
from normlab.config.plan import expand

STUDY = synthetic.study(synthetic.axis("optim.lr", "1e-3", "1e-2"), seeds=(0, 1, 2))
IDS = [run.id for run in expand(STUDY)]
ENDS = ["trained", "better", "unsteady", "nan@37", "stalled", "diverged"]
FIRST = f"runs/{IDS[0]}"


def make_six_runs(root: Path) -> Path:
    """The study with tables and hashes, as a sitting leaves it."""
    synthetic.make_results(root, STUDY, lambda run: ENDS[IDS.index(run.id)])
    folders.write_tables(root)
    folders.record_hashes(root)
    return root


def found(root: Path) -> list[str]:
    return [finding.line() for finding in verify(root).findings]


def files(root: Path) -> set[str]:
    return {finding.file for finding in verify(root).findings}


def rehash(root: Path) -> None:
    """Cover the traces: the manifest gets the hashes of what lies there now, and the tables follow."""
    folders.write_tables(root)
    folders.record_hashes(root)
