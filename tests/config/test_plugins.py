"""A user's module may add a norm; its name is legal then, and only then."""

import pytest
from registered import only_here


@pytest.fixture(autouse=True)
def known():
    """Keep what plugins register out of the other tests."""
    with only_here():
        yield


MINE = """
from normlab.model.norms import NORMS, Field, Norm


class Mine(Norm):
    class Options(Norm.Options):
        power: float = Field(2.0, gt=0, description="which mean")

    def normalise(self, x_SBTD):
        return x_SBTD / x_SBTD.abs().pow(self.options.power).mean(-1, keepdim=True).pow(1 / self.options.power)


NORMS["mynorm"] = Mine
"""


def test_a_file_is_found_beside_the_config_from_any_folder(write, monkeypatch, tmp_path):
    from normlab.config.load import load_study, study_yaml

    write(MINE, "mine.py")
    write("question: q\nbase: {model: {norm: mynorm}}\nplugins: [mine.py]\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    study = load_study(tmp_path / "study.yaml")
    assert study.base.model.norm == "mynorm"
    (tmp_path / "elsewhere" / "copy.yaml").write_text(study_yaml(study))
    assert load_study(tmp_path / "elsewhere" / "copy.yaml").plugins == study.plugins


@pytest.mark.parametrize("place", ["beside", "here"])
def test_a_path_of_another_machine_falls_back_to_the_name(write, monkeypatch, tmp_path, place):
    from normlab.config.load import load_study

    for folder in ("beside", "here"):
        (tmp_path / folder).mkdir()
    config = tmp_path / "beside" / "config.yaml"
    config.write_text("question: q\nbase: {model: {norm: mynorm}}\nplugins: [/no/such/machine/mine.py]\n")
    (tmp_path / place / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path / "here")
    assert load_study(config).plugins == (str(tmp_path / place / "mine.py"),)


def test_a_relative_path_is_sought_beside_the_config_only(write, problems):
    write("", "mine.py")
    (line,) = problems("question: q\nplugins: [below/mine.py]\n")
    assert "below/mine.py; a copy beside the config" in line


def test_without_the_plugin_the_name_is_unknown(problems):
    assert "expected one of none" in problems("question: q\nbase: {model: {norm: mynorm}}\n")[0]


def test_a_plugin_that_fails_is_one_line(write, problems):
    write("raise RuntimeError('boom\\nmore')\n", "broken.py")
    write("import sys; sys.exit(3)\n", "exits.py")
    lines = problems("question: q\nplugins: [broken.py, exits.py, no_such_module_here, none.py]\n")
    assert [line.partition(": plugins: ")[0] for line in lines] == [f"study.yaml:2:{c}" for c in (11, 22, 32, 53)]
    assert lines[0].endswith("cannot be imported: RuntimeError: boom")
    assert "no module 'no_such_module_here'" in lines[2]
    assert "FileNotFoundError" in lines[3]


def test_a_digest_follows_the_source_and_not_the_folder(tmp_path):
    from normlab.config.plugins import plugin_digests

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("x = 1\n")
    first, moved = (plugin_digests([str(tmp_path / folder / "mine.py")]) for folder in ("a", "b"))
    assert first == moved and list(first) == ["mine.py"]
    (tmp_path / "b" / "mine.py").write_text("x = 2\n")
    assert plugin_digests([str(tmp_path / "b" / "mine.py")]) != first
    assert list(plugin_digests(["json.tool"])) == ["json.tool"]


def test_an_override_may_name_a_plugin_and_set_an_option_of_its_entry(write, load):
    write(MINE, "mine.py")
    words = ("model.norm_options.power=1,3", "model.norm=mynorm", "plugins=mine.py")
    study = load("question: q\n", *words)
    assert [point.settings["model.norm_options.power"] for point in study.axes[0].points] == [1.0, 3.0]
    assert study.base.model.norm == "mynorm"
