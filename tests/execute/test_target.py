"""Nothing is overwritten, mixed or deleted that the user did not ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import TINY, Runner, axis, tiny_study

from normlab.config.plan import expand
from normlab.config.schema import Outputs, Study, Thresholds
from normlab.execute.target import Refused
from normlab.manifests import read_manifest
from normlab.store import finished_ids

STUDY = tiny_study(seeds=[0])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder that the tests below must leave as it is."""
    return tmp_path_factory.mktemp("target") / "results"


@pytest.fixture(autouse=True)
def _made_and_unchanged(done: Path, fake_run: Runner) -> object:
    if not done.exists():
        fake_run(STUDY, done, jobs=1)
    before = contents(done)
    yield
    assert contents(done) == before


def test_results_are_neither_mixed_nor_overwritten_without_a_flag(done: Path, fake_run: Runner) -> None:
    with pytest.raises(Refused, match="--resume .* --overwrite"):
        fake_run(STUDY, done)


def test_both_flags_contradict_each_other(done: Path, fake_run: Runner) -> None:
    with pytest.raises(Refused, match="--resume and --overwrite"):
        fake_run(STUDY, done, resume=True, overwrite=True)


@pytest.mark.parametrize("flag", ["resume", "overwrite"])
def test_a_folder_of_the_users_is_refused(tmp_path: Path, fake_run: Runner, flag: str) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    before = contents(tmp_path)
    with pytest.raises(Refused, match="no normlab results: choose another folder with -o"):
        fake_run(STUDY, tmp_path, **{flag: True})
    assert contents(tmp_path) == before


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path, fake_run: Runner) -> None:
    (tmp_path / "r").write_text("mine")
    with pytest.raises(Refused, match="is not a folder"):
        fake_run(STUDY, tmp_path / "r")


def test_a_second_resume_runs_nothing(done: Path, fake_run: Runner) -> None:
    summary, watcher = fake_run(STUDY, done, resume=True)
    assert (summary.todo, summary.done, watcher.events) == (0, 0, [])


@pytest.mark.parametrize(
    ("study", "key"),
    [
        (
            tiny_study([0], base=TINY.model_copy(update={"task": TINY.task.model_copy(update={"a": 3})})),
            "task.a: 5 -> 3",
        ),
        (tiny_study([0], thresholds=Thresholds(spike_margin=1.0)), "thresholds.spike_margin: 0.5 -> 1"),
        (tiny_study([1]), "seeds"),
        (tiny_study([0], axes=(axis("optim.lr", [1e-3]),)), "axes.optim.lr"),
    ],
)
def test_resume_with_another_question_is_refused_key_by_key(
    done: Path, fake_run: Runner, study: Study, key: str
) -> None:
    with pytest.raises(Refused, match=key.replace(".", r"\.")) as caught:
        fake_run(study, done, resume=True)
    assert len(str(caught.value).splitlines()) == 3  # what it needs, the one key, what is allowed


def test_seeds_axes_and_outputs_may_change_on_resume(tmp_path: Path, fake_run: Runner) -> None:
    fake_run(STUDY, tmp_path / "r", jobs=1)
    axes = (axis("optim.lr", [1e-4, 1e-3, 1e-2]),)
    wider = tiny_study([0, 1], axes=axes, outputs=Outputs(steps=(0, 5)), question="Wider?")
    old = contents(tmp_path / "r")
    _, watcher = fake_run(wider, tmp_path / "r", jobs=1, resume=True)
    assert len(watcher.todo) == 4 and finished_ids(tmp_path / "r") == {run.id for run in expand(wider)}
    now = contents(tmp_path / "r")
    assert all(now[name] == data for name, data in old.items() if name.startswith("runs/"))
    # Outputs alone: nothing to run, yet the manifest that the tables are made from follows.
    fake_run(wider.model_copy(update={"outputs": Outputs(steps=(0,))}), tmp_path / "r", resume=True)
    manifest = read_manifest(tmp_path / "r")
    assert manifest and manifest["study"]["outputs"]["steps"] == [0] and len(manifest["sessions"]) == 2


def test_overwrite_deletes_what_normlab_wrote_and_nothing_else(tmp_path: Path, fake_run: Runner) -> None:
    folder = tmp_path / "r"
    fake_run(tiny_study(seeds=[0, 1]), folder, "raises_for_seed_1", jobs=1)
    (folder / "tables").mkdir()
    (folder / "tables" / "outcome.csv").write_text("old")
    mine = [folder / "notes.txt", folder / "tables" / "talk.pptx", folder / "runs" / "readme"]
    for path in mine:
        path.write_text("mine")
    fake_run(tiny_study(seeds=[7]), folder, jobs=1, overwrite=True, derived=[folder / "tables" / "outcome.csv"])
    assert finished_ids(folder) == {run.id for run in expand(tiny_study(seeds=[7]))}
    assert all(path.read_text() == "mine" for path in mine)
    assert not (folder / "failed").exists() and not (folder / "tables" / "outcome.csv").exists()


def test_overwrite_stops_before_a_strange_file_in_a_runs_folder(tmp_path: Path, fake_run: Runner) -> None:
    fake_run(STUDY, tmp_path / "r", jobs=1)
    run = sorted(finished_ids(tmp_path / "r"))[0]
    (tmp_path / "r" / "runs" / run / "notes.txt").write_text("mine")
    before = contents(tmp_path / "r")
    with pytest.raises(Refused, match=f"{run}/notes.txt was not written by normlab"):
        fake_run(STUDY, tmp_path / "r", jobs=1, overwrite=True)
    assert contents(tmp_path / "r") == before


def test_leftovers_of_a_killed_sitting_are_swept_and_a_refused_start_leaves_no_folder(
    tmp_path: Path, fake_run: Runner
) -> None:
    (tmp_path / "r" / "runs" / ".tmp-0123456789ab-00ff").mkdir(parents=True)
    (tmp_path / "r" / ".lock").touch()
    (tmp_path / "r" / "runs" / ".tmp-0123456789ab-00ff" / "run.json").write_text("{")
    (tmp_path / "r" / "manifest.json").write_text('{"runs": [], "study": {}}')
    broken = tmp_path / "new"
    with pytest.raises(Refused, match="contradict"):
        fake_run(STUDY, broken, resume=True, overwrite=True)
    assert not broken.exists()
    fake_run(STUDY, tmp_path / "r", jobs=1, overwrite=True)
    assert not list((tmp_path / "r").rglob(".*"))


def test_an_edited_plugin_is_refused_on_resume_and_a_moved_one_is_not(tmp_path: Path, fake_run: Runner) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text("x = 1\n")
    here, there = (tiny_study(seeds=[0], plugins=(str(tmp_path / name / "mine.py"),)) for name in ("a", "b"))
    fake_run(here, tmp_path / "r", jobs=1)
    fake_run(there, tmp_path / "r", jobs=1, resume=True)  # the project has moved; its code is the same
    (tmp_path / "b" / "mine.py").write_text("x = 2\n")
    with pytest.raises(Refused, match=r"plugins: mine\.py: sha256 \w{12} -> \w{12}"):
        fake_run(there, tmp_path / "r", jobs=1, resume=True)
