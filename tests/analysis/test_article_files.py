"""The files of the article's tables and figures, and the command that prints the tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import reproduced

from normlab.analysis.article_heads import LAYOUTS
from normlab.cli import main

WRITE = "import sys; from normlab.analysis.article import write_article; write_article(sys.argv[1])"


def content(root: Path) -> dict[str, bytes]:
    files = [file for file in root.rglob("*") if file.is_file() and "studies" not in file.relative_to(root).parts]
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


def test_the_same_inputs_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    """In this process and in another: other hashes of strings, a window system, older files, a relative path."""
    root = reproduced.make_pictured(tmp_path / "article")
    (root / "tables").mkdir()
    (root / "figures").mkdir()
    (root / "figures" / "article-norm-speed.svg").write_text("an older one")
    environment = {**os.environ, "MPLBACKEND": "TkAgg", "PYTHONHASHSEED": "1"}
    environment.pop("DISPLAY", None)
    done = subprocess.run([sys.executable, "-W", "error", "-c", WRITE, "article"], cwd=tmp_path, env=environment,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = content(written), content(root)
    assert first == second
    names = {f"tables/article-{layout.id}.{lang}.{form}" for layout in LAYOUTS for lang in ("en", "zh")
             for form in ("md", "csv", "tex", "html")}  # fmt: skip
    drawn = ("warmup-curve", "collapse-20", "collapse-depth", "lr-sensitivity", "norm-speed")
    names |= {f"figures/article-{name}.{suffix}" for name in drawn for suffix in ("svg", "png")}
    assert set(first) == names | {"manifest.json", "verdicts.json", "REPORT.md", "report.html"}


def test_figures_of_studies_that_have_gone_are_removed(tmp_path: Path) -> None:
    from normlab.analysis.article import write_article

    root = reproduced.make_reproduction(tmp_path / "article", training=("depth",))
    (root / "figures").mkdir()
    (root / "figures" / "article-collapse-20.svg").write_text("an older one")
    (root / "figures" / "mine.svg").write_text("the user's")
    write_article(root)
    assert {file.name for file in (root / "figures").glob("*.svg")} == {
        "mine.svg", "article-collapse-depth.svg", "article-norm-speed.svg"
    }  # fmt: skip


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_the_command_prints_what_was_asked_for(article: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(article)
    assert "| 步数" in printed(capsys, "tables", str(article), "--lang", "zh")
    compared = printed(capsys, "tables", str(article), "--compare")
    assert "nan (NaN) ✓" in compared and "| no norm" not in compared.splitlines()[0]
    assert printed(capsys, "tables", str(article), "--format", "tex").count(r"\begin{table}") == 8
    assert "\\toprule" in printed(
        capsys, "tables", str(article / "studies" / "depth"), "--lang", "en", "--format", "tex"
    )
    assert content(article) == before  # nothing is written


def test_without_options_a_study_gives_its_own_tables(article: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "tables", str(article / "studies" / "depth"))
    assert text.startswith("depth: Does it train?") and "Section" not in text


def test_without_options_a_reproduction_writes_and_prints_english(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = reproduced.make_reproduction(tmp_path / "article", training=("depth",))
    assert "**Section 6.2, table 2" in printed(capsys, "tables", str(root))
    assert len(list((root / "tables").iterdir())) == 64


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--lang", "de"], "--lang: expected en or zh, got 'de'"),
        (["--format", "pdf"], "--format: expected md, csv, tex or html, got 'pdf'"),
    ],
)
def test_wrong_choices_are_one_line(
    article: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], what: str
) -> None:
    assert main(["tables", str(article), *arguments]) == 2
    assert capsys.readouterr().err == f"{what}\n"


def test_a_study_without_article_tables_says_so(article: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", str(article / "studies" / "numerics"), "--lang", "zh"]) == 2
    assert "numerics feeds none of the article's tables" in capsys.readouterr().err
