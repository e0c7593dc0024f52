"""One new entry of each kind from a user's module: found by `list`, `params`, `run`, `collapse` and in every table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from registered import only_here

from normlab.cli import main
from normlab.manifests import read_manifest
from normlab.store import read_run, run_folders

MINE = '''
import torch

from normlab.catalogue import INITS, MIXERS, NORMS, OPTIMIZERS, PLACEMENTS, TASKS, Field, Options
from normlab.model.inits import Init
from normlab.model.mixers import Mixer
from normlab.model.norms import Norm
from normlab.model.placements import Placement
from normlab.train.optim import SGD
from normlab.train.tasks import Affine


class PowerNorm(Norm):
    """Divide by a power mean."""

    title = "PowerNorm"
    reductions = 1
    operations = (3, 5)

    class Options(Norm.Options):
        power: float = Field(2.0, gt=0, description="which mean")

    def start(self, width):
        self.gain = self.vector(width, 1.0)

    def normalise(self, x_SBTD):
        p = self.options.power
        return self.gain * x_SBTD / ((x_SBTD.abs() + 1e-6) ** p).mean(-1, keepdim=True) ** (1 / p)


class Fading(Placement):
    """x + f(norm(x)) / layer."""

    final_norm = True
    ramped = True

    class Options(Options):
        strength: float = 1.0

    def forward(self, x_SBTD, sublayer, norms):
        return x_SBTD + self.ramp(sublayer(norms[0](x_SBTD))) * self.options.strength / self.layer


class Previous(Mixer):
    """A linear map of the token before."""

    def start(self, width):
        self.linear = self.make_linear(width, width, "mix")

    def forward(self, x_SBTD, inner=None):
        return self.linear(torch.nn.functional.pad(x_SBTD, (0, 0, 1, 0))[:, :, :-1])


class Scaled(Init):
    """Uniform, times a scale."""

    class Options(Options):
        scale: float = 0.1

    def draw(self, plain, role, depth):
        for parameter in plain.parameters():
            torch.nn.init.uniform_(parameter, -self.options.scale, self.options.scale)


class Shifted(Affine):
    """The affine rule, all tokens one further."""

    def draw(self, rng, count):
        return (super().draw(rng, count) + 1) % self.spec.vocab


class Sign(SGD):
    """Steps of one size."""

    class Options(Options):
        size: float = 1.0

    def update(self, params_SP, grad_SP, rate_S1, corrections_2):
        super().update(params_SP, grad_SP.sign() * self.spec.options.size, rate_S1, corrections_2)


NORMS["powernorm"] = PowerNorm
PLACEMENTS["fading"] = Fading
MIXERS["previous"] = Previous
INITS["scaled"] = Scaled
TASKS["shifted"] = Shifted
OPTIMIZERS["sign"] = Sign
'''
STUDY = """
question: Do entries of my own work everywhere?
plugins: [mine.py]
base:
  task: {name: shifted, vocab: 8, length: 4, val_size: 8}
  model: {depth: 2, width: 8, hidden: 8, norm: powernorm, placement: fading, mixer: previous, init: scaled}
  optim: {name: sign}
  train: {batch: 4, steps: 6, eval_every: 2}
axes:
  model.norm_options.power: [1, 2]
  model.placement_options.strength: [0.5]
  optim.lr: [1e-3, 1e-2]
"""
NAMES = {
    "norms": "powernorm",
    "placements": "fading",
    "mixers": "previous",
    "inits": "scaled",
    "tasks": "shifted",
    "optimizers": "sign",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "mine.yaml").write_text(STUDY)
    with only_here():
        yield tmp_path


def test_run_tables_and_the_record(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep-lr", "mine.yaml", "-o", "r", "--jobs", "1"]) == 0
    manifest = read_manifest(here / "r")
    assert {kind: list(names) for kind, names in manifest["entries"].items()} == {
        kind: [name] for kind, name in NAMES.items()
    }
    runs = [read_run(folder) for folder in run_folders(here / "r")]
    assert len(runs) == 4 and {run["outcome"] for run in runs} <= {"trained", "stalled", "unsteady", "diverged"}
    built = runs[0]["built"]
    assert built["norm"] == "PowerNorm" and built["placement"] == "Fading" and built["mixer"] == "Previous"
    assert built["options"]["placement"] == {"strength": 0.5} and built["options"]["init"] == {"scale": 0.1}
    assert {run["built"]["options"]["norm"]["power"] for run in runs} == {1.0, 2.0}
    capsys.readouterr()

    outcome = (here / "r" / "tables" / "outcome.md").read_text()
    assert "power=1" in outcome and "power=2" in outcome and "strength" not in outcome.split("\n\n")[0]
    table = (here / "r" / "tables" / "runs.csv").read_text()
    for name in (*NAMES.values(), "model.norm_options.power", "model.placement_options.strength"):
        assert name in table
    for file in sorted((here / "r" / "tables").glob("*.csv")):
        assert "power" in file.read_text(), file.name


def test_the_results_are_read_and_verified_where_the_module_is_gone(here: Path) -> None:
    assert main(["run", "mine.yaml", "-o", "r", "--jobs", "1", "-q"]) == 0
    (here / "mine.py").unlink()
    with only_here():
        pass  # Forget the module's entries, as another process would.
    from normlab.catalogue import CATALOGUES

    for catalogue in CATALOGUES.values():
        for name in catalogue.added:
            del catalogue[name]
    assert main(["verify", "r"]) == 0
    assert main(["tables", "r"]) == 0
    assert main(["status", "r"]) == 0


def test_list_and_params(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, name in NAMES.items():
        assert main(["list", kind, "--plugins", "mine.py"]) == 0
        assert name in capsys.readouterr().out
    assert main(["params", "--plugins", "mine.py", "-o", "params"]) == 0
    assert "PowerNorm" in capsys.readouterr().out
    values = json.loads((here / "params" / "measure.json").read_text())["values"]["counts"]["rows"]
    (row,) = [row for row in values if row["norm"] == "powernorm"]
    assert row["per_norm"] == 4096 and row["reductions_per_norm"] == 1


def test_collapse_takes_it(here: Path) -> None:
    small = ["model.width=8", "model.hidden=8", "task.val_size=8", "train.batch=4", "plugins=mine.py"]
    words = ["collapse", "--layers", "2", "--norms", "powernorm,none", "--steps", "4", "--lr", "1e-3", *small]
    assert main([*words, "-o", "c", "--jobs", "1", "-q"]) == 0
    assert {read_run(folder)["built"]["norm"] for folder in run_folders(here / "c")} == {"PowerNorm", "Identity"}


def test_an_option_that_is_wrong_is_told_with_its_place(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine.yaml").write_text(STUDY.replace("power: [1, 2]", "power: [1, -2]"))
    assert main(["config", "check", "mine.yaml"]) == 2
    line = capsys.readouterr().err.strip()
    assert line == "mine.yaml:10:33: model.norm_options.power: expected more than 0, got -2"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("(-1, keepdim=True)", "(keepdim=True, dim=(0, 3))", "norm 'powernorm': moving one lane moved another"),
        (
            "    def start(self, width):",
            "    def __init__(self, width, p):",
            "norm 'powernorm' cannot be built: TypeError",
        ),
        ("super().draw(rng, count) + 1", "super().draw(rng)", "task 'shifted' cannot be drawn from: TypeError"),
    ],
)
def test_what_must_not_be_trained_is_an_error_of_the_check(
    here: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str
) -> None:
    (here / "mine.py").write_text(MINE.replace(old, new, 1))
    for command in (["config", "check", "mine.yaml"], ["run", "mine.yaml", "-o", "r"]):
        assert main(command) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.removeprefix("normlab: error: ").startswith(f"mine.yaml:3:10: plugins: {words}")
    assert not (here / "r").exists()
