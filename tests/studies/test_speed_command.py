"""The command `normlab speed`, on shapes that take no time."""

import json

import pytest
import torch
from tiny_speed import PACE, TINY

from normlab.cli import main
from normlab.measures import read_measure
from normlab.studies import speed, speed_model, speed_norms
from normlab.studies.speed_norms import LN, RMS
from normlab.studies.speed_shapes import Shape


@pytest.fixture
def tiny_study(monkeypatch, no_compiler):
    monkeypatch.setattr(speed, "SHAPES", (TINY, Shape(2, 4, 8, (63, 54))))
    monkeypatch.setattr(speed, "SINGLE", Shape(2, 5, 8, (96, 78)))
    for name in ("FULL", "QUICK", "MODEL_FULL", "MODEL_QUICK"):
        monkeypatch.setattr(speed, name, PACE)
    shallow = {norm: _with_depth(spec, 1) for norm, spec in speed_model.specs().items()}
    monkeypatch.setattr(speed_model, "specs", lambda: shallow)


def _with_depth(spec, depth):
    return spec.model_copy(update={"model": spec.model.model_copy(update={"depth": depth})})


def test_the_command_writes_what_the_ledger_reads(tiny_study, tmp_path, capsys):
    out = tmp_path / "speed"
    assert main(["speed", "-o", str(out), "-q"]) == 0
    text = capsys.readouterr().out
    assert "| 2x3x8 " in text and "RMSNorm faster by" in text
    made = read_measure(out)
    assert made.command == "normlab speed" and not made.quick
    values = made.values
    assert values["norm-speed"]["ratio"].keys() == {"2x3x8", "2x4x8"}
    for share in (
        values["norm-speed"]["ratio"]["2x3x8"],
        values["rms-speed-single"]["faster_by"],
        values["model-speed"]["faster_by"],
        values["norm-runtime-share"]["time_share"],
        values["dyt-speed"]["faster_by_than_layernorm"]["2x4x8"],
    ):
        assert share.keys() == {"median", "low", "high", "n"} and share["low"] <= share["median"] <= share["high"]
    assert 0 < values["norm-runtime-share"]["flops_share"] < 0.1
    assert made.settings["threads"] == 1 and not made.settings["compile"]["works"]
    tables = {path.stem for path in (out / "tables").glob("*.md")}
    assert tables == {"speed", "speed_cells", "speed_bandwidth", "speed_model"}
    cells = (out / "tables" / "speed_cells.md").read_text()
    assert "no C++ compiler (27 cells)" in cells and "torch.nn has no such norm (18 cells)" in cells
    assert "2x5x8 clone" in cells
    last = {line.split("|")[1].strip(): line.split("|")[-2].strip() for line in cells.splitlines() if "|" in line}
    assert last["2x3x8 DyT forward"] == "–" and last["2x3x8 RMSNorm forward"] in ("handwritten", "native", "no winner")


def test_quick_says_what_it_shortened(tiny_study, tmp_path, capsys):
    assert main(["speed", "--quick", "--json", "-q", "-o", str(tmp_path / "out")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["command"] == "normlab speed --quick"
    assert {row["shape"] for row in answer["tables"]["speed"]} == {"2x3x8", "2x4x8", "2x5x8"}
    assert "shortened by --quick" in (tmp_path / "out" / "tables" / "speed.md").read_text().lower()


def test_quick_leaves_cells_out_by_the_size_of_the_shape():
    small, second, third, largest = (speed.quick_cells(shape) for shape in speed.SHAPES)
    assert {c.norm for c in small if c.implementation == "compiled"} == {"layernorm", "rmsnorm"}
    assert {c.direction for c in second} == {"forward", "backward", "both"}
    assert set(third) == set(speed.quick_cells(speed.SINGLE)) == {LN, RMS, speed_norms.DYT}
    assert set(largest) == {LN, RMS}


def test_a_device_that_is_not_there_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["speed", "--device", "cuda", "-o", str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "--device cuda" in said
    assert not (tmp_path / "x").exists()
