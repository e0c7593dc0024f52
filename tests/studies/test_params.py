"""Counts of parameters and reductions, against the article's printed ones and against a net that is built."""

import json
from dataclasses import replace

import pytest
from registered import only_here

from normlab.analysis.measured_params import tables
from normlab.catalogue import NORMS
from normlab.cli import main
from normlab.config.plugins import load_plugins
from normlab.config.schema import ModelSpec, RunSpec
from normlab.measures import read_measure
from normlab.model.decoder import build
from normlab.model.norms import Norm
from normlab.studies.params import (
    ARTICLE,
    PRESETS,
    Shape,
    article_values,
    count,
    final_norm,
    norm_parameters,
    preset,
)


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


@pytest.mark.parametrize("norm", list(NORMS))
def test_the_toy_counts_as_it_is_built(norm):
    decoder = build([RunSpec(model=ModelSpec(norm=norm))])
    built = sum(p.numel() for m in decoder.modules() if isinstance(m, Norm) for p in m.parameters())
    assert count(preset("toy"), norm)["model"] == built
    whole = sum(p.numel() for p in decoder.parameters())
    if norm == RunSpec().model.norm:
        assert preset("toy").total == whole
    assert count(preset("toy"), norm)["share"] == built / whole


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


PLUGIN = """
from normlab.model.norms import NORMS, Norm

class Halved(Norm):
    \"\"\"A gain for every other entry.\"\"\"

    title = "half a norm"
    source = "a test"
    reductions = 3
    final = "rmsnorm"

    def start(self, width):
        self.gain = self.vector(width // 2, 1.0)

class Odd(Norm):
    def start(self, width):
        raise ValueError("an even width, please")

NORMS["halved"] = Halved
"""


@pytest.fixture
def plugin(tmp_path):
    file = tmp_path / "halved.py"
    file.write_text(PLUGIN)
    with only_here():
        yield file


def test_a_users_norm_is_counted_and_keeps_its_title(plugin, tmp_path, capsys):
    assert main(["params", "--width", "8", "--depth", "3", "--plugins", str(plugin), "-o", str(tmp_path / "out")]) == 0
    assert "| half a norm |" in capsys.readouterr().out
    del NORMS["halved"]  # as another process would read the folder
    made = read_measure(tmp_path / "out")
    assert made.command == f"normlab params --width 8 --depth 3 --plugins {plugin}"
    rows = {row["norm"]: row for row in made.values["counts"]["rows"]}
    assert list(rows) == [*NORMS, "halved"]
    assert (rows["halved"]["model"], rows["halved"]["reductions_model"]) == (3 * 2 * 4, 3 * 2 * 3)
    assert "halved" not in NORMS and tables(made)[0].rows[-1][0] == "half a norm"


def test_the_norm_before_the_head_is_the_one_that_placement_and_norm_ask_for(plugin):
    load_plugins([str(plugin)])
    auto = replace(ARTICLE, width=8, final_norm="auto")
    assert final_norm(auto, "halved") == "rmsnorm" and final_norm(auto, "dyt") == "layernorm"
    assert final_norm(replace(auto, placement="post"), "halved") == "none"
    assert final_norm(replace(auto, final_norm="same"), "halved") == "halved"


def test_a_norm_that_cannot_be_built_is_one_line(plugin, capsys):
    plugin.write_text(PLUGIN + 'NORMS["odd"] = Odd\n')
    assert main(["params", "--plugins", str(plugin)]) == 2
    said = capsys.readouterr().err
    assert said == "norm 'odd' cannot be built: ValueError: an even width, please\n"


def test_a_norm_of_any_width_takes_no_memory():
    assert norm_parameters("layernorm", 10**9) == 2 * 10**9
