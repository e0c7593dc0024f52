"""Counts of parameters and reductions, against the article's printed ones and against a net that is built."""

import json
import subprocess
import sys

import pytest

from normlab.cli import main
from normlab.config.schema import ModelSpec, RunSpec
from normlab.measures import read_measure
from normlab.model.decoder import build
from normlab.model.norms import Norm
from normlab.studies import params
from normlab.studies.params import ARTICLE, PRESETS, Shape, article_values, count


def test_the_articles_setting_gives_the_articles_counts():
    values = article_values()
    printed = {"ln_one": 8192, "rms_one": 4096, "ln_model": 524288, "rms_model": 262144, "saved": 262144}
    assert values["norm-parameters"] == printed
    assert values["reductions"] == {
        "ln_per_norm": 2,
        "rms_per_norm": 1,
        "ln_per_layer": 4,
        "rms_per_layer": 2,
        "saving": 0.5,
    }


@pytest.mark.parametrize("norm", list(params.REDUCTIONS))
def test_the_toy_counts_as_it_is_built(norm):
    decoder = build([RunSpec(model=ModelSpec(norm=norm))])
    built = sum(p.numel() for m in decoder.modules() if isinstance(m, Norm) for p in m.parameters())
    assert count(PRESETS["toy"], norm)["model"] == built
    whole = sum(p.numel() for p in decoder.parameters())
    if norm == RunSpec().model.norm:
        assert PRESETS["toy"].total == whole
    assert count(PRESETS["toy"], norm)["share"] == built / whole


def test_a_final_norm_counts_once_and_of_its_own_kind():
    same, other = Shape(8, 3, 2, "same"), Shape(8, 3, 2, "layernorm")
    assert count(same, "rmsnorm")["model"] == 3 * 2 * 8 + 8
    assert count(other, "rmsnorm")["model"] == 3 * 2 * 8 + 16
    assert count(other, "rmsnorm")["reductions_model"] == 3 * 2 + 2
    assert count(same, "dyt")["model"] == 7 * 17


def test_gpt2_norms_are_a_known_share():
    row = count(PRESETS["gpt2"], "layernorm")
    assert row["model"] == 25 * 2 * 768 and row["share"] == row["model"] / 124_439_808


def test_the_command_prints_and_writes_only_where_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["params"]) == 0
    text = capsys.readouterr().out
    assert "524,288" in text and "262,144" in text
    assert not list(tmp_path.iterdir())


def test_the_json_answer_follows_the_options(capsys):
    assert main(["params", "--width", "10", "--depth", "3", "--norms-per-layer", "4", "--final-norm", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = {row["norm"]: row for row in answer["values"]["counts"]["rows"]}
    assert rows["layernorm"]["model"] == 13 * 20 and rows["rmsnorm"]["per_layer"] == 40
    assert answer["values"]["norm-parameters"]["ln_model"] == 524288  # the article's, whatever is asked for
    assert answer["command"] == "normlab params --width 10 --depth 3 --norms-per-layer 4 --final-norm"


def test_a_changed_preset_has_no_known_whole(capsys):
    assert main(["params", "--preset", "gpt2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["model_parameters"] == 124_439_808
    assert main(["params", "--preset", "gpt2", "--width", "8", "--no-final-norm", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["model_parameters"] is None and settings["final_norm"] == "none" and settings["depth"] == 12


def test_a_folder_of_counts_can_be_read_back(tmp_path, capsys):
    assert main(["params", "--preset", "llama-2-7b", "-o", str(tmp_path / "out")]) == 0
    made = read_measure(tmp_path / "out")
    assert made.command == "normlab params --preset llama-2-7b" and made.settings["final_norm"] == "same"
    assert "266,240" in (tmp_path / "out" / "tables" / "params.md").read_text()
    assert main(["params", "-o", str(tmp_path / "out")]) == 2
    assert "--overwrite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--width", "0"], "--width: expected 1 to 1,000,000,000, got 0"),
        (["--depth", "-3"], "--depth: expected 1"),
        (["--norms-per-layer", "-1"], "--norms-per-layer: expected 0"),
        (["--preset", "gpt3"], "--preset: expected one of llama-2-7b, gpt2, toy, got 'gpt3'"),
        (["--width", "wide"], "--width"),
    ],
)
def test_bad_numbers_are_one_line(words, told, capsys):
    assert main(["params", *words]) == 2
    said = capsys.readouterr()
    assert told in said.err and said.err.count("\n") == 1 and not said.out


def test_counting_needs_no_torch():
    code = "import sys; from normlab.cli import main; main(['params']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert ARTICLE.check() is ARTICLE
