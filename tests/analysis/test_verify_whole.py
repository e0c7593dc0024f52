"""`normlab verify` of a measure and of a reproduction: tables, verdicts, hashes of the parts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import folders
import pytest
import synthetic

from normlab.analysis.article import table_files
from normlab.analysis.evidence import Evidence
from normlab.analysis.verdicts import judge_all, verdicts_json
from normlab.analysis.verify import verify
from normlab.cli import main
from normlab.store import file_hashes, strict_json

STUDY = synthetic.study(synthetic.axis("optim.lr", "1e-3", "1e-2"), seeds=(0, 1))
PARTS = [
    {"name": "toy", "kind": "training", "folder": "studies/toy", "command": "normlab run configs/toy.yaml"},
    {"name": "params", "kind": "measure", "folder": "studies/params", "command": "normlab params"},
]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reproduction of one study and one measure."""
    root = tmp_path_factory.mktemp("verify") / "article"
    toy = synthetic.make_results(root / "studies" / "toy", STUDY, lambda run: "trained")
    folders.write_tables(toy)
    folders.record_hashes(toy)
    assert main(["params", "-o", str(root / "studies" / "params"), "-q"]) == 0
    files = file_hashes(root, ["studies/*/manifest.json", "studies/*/measure.json"])
    manifest = {"format": 1, "kind": "reproduction", "command": "normlab reproduce", "quick": False, "shortened": []}
    manifest |= {"seeds": [0, 1], "studies": PARTS, "commit": "abc1234", "dirty": False, "device": "cpu"}
    (root / "manifest.json").write_text(strict_json({**manifest, "files": files}))
    evidence = Evidence.open(root)
    judged = judge_all(evidence)
    (root / "verdicts.json").write_text(strict_json(verdicts_json(judged)))
    (root / "tables").mkdir()
    for name, text in table_files(evidence, judged).items():
        (root / "tables" / name).write_bytes(text.encode())
    return root


@pytest.fixture
def whole(untouched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untouched, tmp_path / "article"))


def found(root: Path) -> list[str]:
    return [finding.line() for finding in verify(root).findings]


def test_an_untouched_reproduction(untouched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(untouched)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"{untouched}: checked 4 runs, ") and last.endswith(": everything is as it should be")
    assert verify(untouched).checked["verdicts"] == len(judge_all(Evidence.open(untouched)))


def test_an_edited_verdict(whole: Path) -> None:
    content = json.loads((whole / "verdicts.json").read_text())
    claim = next(claim for claim in content["claims"] if claim["id"] == "norm-parameters")
    old, claim["verdict"] = claim["verdict"], "contradicted"
    (whole / "verdicts.json").write_text(json.dumps(content))
    assert found(whole) == [f"verdicts.json: claims[norm-parameters].verdict: expected {old}, found contradicted"]


def test_an_edited_value_of_a_measure(whole: Path) -> None:
    folders.edit(whole / "studies" / "params" / "measure.json", **{"values__norm-parameters__saved": 1})
    lines = found(whole)
    assert any(line.startswith("studies/params/measure.json: sha256: ") for line in lines)
    assert any(line.startswith("verdicts.json: claims[norm-parameters].") for line in lines)


def test_an_edited_table_of_the_article(whole: Path) -> None:
    path = next(path for path in sorted((whole / "tables").glob("*.en.csv")) if "Pre-LN" in path.read_text())
    path.write_text(path.read_text().replace("Pre-LN", "Per-LN", 1))
    (line,) = found(whole)
    assert line.startswith(f"tables/{path.name}: ") and "Per-LN" in line


def test_a_deleted_table_of_the_article_and_of_a_measure(whole: Path) -> None:
    (whole / "studies" / "params" / "tables" / "params.md").unlink()
    path = next((whole / "tables").glob("*.zh.html"))
    path.unlink()
    gone = "expected the file, found no such file"
    assert sorted(found(whole)) == [f"studies/params/tables/params.md: {gone}", f"tables/{path.name}: {gone}"]


def test_a_curve_changed_deep_inside(whole: Path) -> None:
    curve = next(whole.glob("studies/toy/runs/*/curve.csv"))
    curve.write_text(curve.read_text().replace("\n33,1.5", "\n33,1.4", 1))
    (line,) = found(whole)
    assert line.startswith(f"{curve.relative_to(whole).as_posix()}: sha256: expected ")


def test_a_study_that_was_made_again_elsewhere(whole: Path) -> None:
    folders.edit(whole / "studies" / "toy" / "manifest.json", command="normlab run mine.yaml")
    lines = found(whole)
    assert any(line.startswith("studies/toy/manifest.json: sha256: ") for line in lines)
    listed = "expected normlab run configs/toy.yaml, as manifest.json lists it, found normlab run mine.yaml"
    assert f"studies/toy: command: {listed}" in lines


def test_a_study_that_is_gone_and_one_that_is_too_much(whole: Path) -> None:
    (whole / "studies" / "params").rename(whole / "studies" / "other")
    lines = found(whole)
    assert "studies/params: expected the measure params, found no such folder" in lines
    assert "studies/other: expected only studies of the manifest, found something else" in lines
    assert not any("studies/params/measure.json" in line for line in lines)  # Said once.


def test_a_measure_by_itself(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = whole / "studies" / "params"
    assert main(["verify", str(params)]) == 0
    assert "`normlab params` measures them again" in capsys.readouterr().out
    path = params / "tables" / "params.csv"
    path.write_text(path.read_text().replace("524288", "524289", 1))
    (line,) = found(params)
    assert line.startswith("tables/params.csv: row 1 (") and line.endswith("expected 524288, found 524289")
    (params / "measure.json").write_text('{"format": 1, "kind": "measure"}')
    assert main(["verify", str(params)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_verdicts_beside_a_single_study(whole: Path) -> None:
    toy = whole / "studies" / "toy"
    (toy / "verdicts.json").write_text(strict_json(verdicts_json(judge_all(Evidence.open(toy)))))
    assert found(toy) == []
    folders.edit(toy / "verdicts.json", counts__undecided=99)
    assert [line.partition(":")[0] for line in found(toy)] == ["verdicts.json"]
