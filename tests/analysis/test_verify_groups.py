"""What `normlab verify` prints: findings with one cause are told together, and cut after a few."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import folders
import pytest
from six_runs import FIRST, IDS

from normlab.analysis.verify import verify
from normlab.analysis.verify_findings import Finding
from normlab.analysis.verify_groups import Group, grouped
from normlab.cli import main

FIRST_TWO = f"{FIRST} (lr=1e-3 seed=0) and runs/{IDS[1]} (lr=1e-3 seed=1)"


def exchange(one: Path, two: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    two.rename(one)
    between.rename(two)


def told(root: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    assert main(["verify", str(root), *options]) == 3
    return capsys.readouterr().out.splitlines()


def groups(root: Path) -> list[Group]:
    report = verify(root)
    found = grouped(report.findings, report.labels)
    # Every finding is in one group, none in two.
    assert sorted(f.line() for g in found for f in g.findings) == sorted(f.line() for f in report.findings)
    return found


def test_a_swap_of_two_runs_is_one_cause(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exchange(results / FIRST, results / "runs" / IDS[1])
    swap, tables = groups(results)
    assert swap.cause == f"{FIRST_TWO} have changed places" and len(swap.findings) > 6
    assert tables.findings[0].file == "tables" and not tables.cause
    lines = told(results, capsys, "-q")
    assert lines[0] == swap.cause and lines[1] == f"  {FIRST}/run.json: id: expected {IDS[0]}, found {IDS[1]}"
    assert lines[4] == f"  and {len(swap.findings) - 3} more" and len(lines) == 6


def test_three_runs_in_a_ring(results: Path) -> None:
    one, two, three = (results / "runs" / run for run in IDS[:3])
    exchange(one, two)
    exchange(two, three)
    assert groups(results)[0].cause.endswith("have changed places") and IDS[2] in groups(results)[0].cause


def test_a_swap_of_two_files(results: Path) -> None:
    exchange(results / FIRST / "curve.csv", results / "runs" / IDS[1] / "curve.csv")
    swap, *_ = groups(results)
    assert swap.cause == f"curve.csv of {FIRST_TWO} have changed places"
    assert {finding.file.split("/")[1] for finding in swap.findings} == set(IDS[:2])


def test_one_run_copied_over_another_is_no_swap(results: Path) -> None:
    shutil.rmtree(results / FIRST)
    shutil.copytree(results / "runs" / IDS[1], results / FIRST)
    assert not any("changed places" in group.cause for group in groups(results))


def test_tables_follow_from_a_run_that_is_gone(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(results / FIRST)
    gone, tables = groups(results)
    assert gone == Group("", gone.findings) and len(gone.findings) == 1
    assert tables.cause == "18 files derived from these differ too"
    lines = told(results, capsys)
    assert len(lines) == 1 + 1 + 3 + 1 + 1 and lines[5] == f"  and {len(tables.findings) - 3} more"


def test_an_edited_table_alone_follows_from_nothing(results: Path) -> None:
    path = results / "tables" / "outcome.csv"
    path.write_text(path.read_text().replace("1", "7"))
    (edited,) = groups(results)
    assert edited.cause == f"tables/outcome.csv: {len(edited.findings)} differences"


def test_the_same_fault_of_many_runs_is_told_once(results: Path) -> None:
    folders.edit(results / "manifest.json", study__base__train__batch=99)
    causes = [group.cause for group in groups(results)]
    assert causes.count("6 runs with the same fault") == 2 and "manifest.json: 12 differences" in causes


def test_studies_of_a_reproduction_are_kept_apart() -> None:
    def swapped(study: str, one: str, two: str) -> list[Finding]:
        pairs = ((one, two), (two, one))
        return [Finding(f"studies/{study}/runs/{a}/run.json", "id", a, b) for a, b in pairs]

    cell = Finding("studies/b/tables/runs.csv", "row 1, column mean", "1", "2")
    other = Finding("studies/c/tables/runs.csv", "row 1, column mean", "1", "2")
    article = Finding("tables/article-x.en.md", "line 3", "`1`", "`2`")
    # The same ids lie in both studies: each swap is its own.
    findings = [*swapped("a", "x", "y"), other, *swapped("b", "x", "y"), cell, article]
    found = grouped(findings, {"studies/a/runs/x": "lr=1 seed=0"})
    assert [group.cause for group in found] == [
        "studies/a/runs/x (lr=1 seed=0) and studies/a/runs/y have changed places",
        "",
        "studies/b/runs/x and studies/b/runs/y have changed places",
        "2 files derived from these differ too",
    ]
    assert found[1].findings == (other,) and found[3].findings == (cell, article)


def test_all_of_it_with_verbose_and_in_json(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exchange(results / FIRST, results / "runs" / IDS[1])
    every = [finding.line() for finding in verify(results).findings]
    assert told(results, capsys, "-v")[:-1] == every
    answer = json.loads("\n".join(told(results, capsys, "--json")))
    assert len(answer["findings"]) == len(every)
    assert answer["causes"] == [{"cause": f"{FIRST_TWO} have changed places", "differences": len(every) - 1}]
