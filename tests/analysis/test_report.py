"""The report: one row a claim, everything that a reader needs to check it, and nothing from outside."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import reproduced
import synthetic
from markdown_it import MarkdownIt

from normlab.analysis.article import write_article
from normlab.analysis.evidence import Evidence
from normlab.analysis.ledger import load_ledger
from normlab.analysis.report import make_report
from normlab.analysis.report_html import report_html
from normlab.analysis.report_markdown import report_markdown
from normlab.analysis.verdicts import VERDICTS, judge_all
from normlab.cli import main
from normlab.config.schema import Axis, Point

IDS = [entry.id for entry in load_ledger().entries]


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    page = Page()
    page.feed((written / "report.html").read_text(encoding="utf-8"))
    return page


@pytest.fixture(scope="module")
def text(written: Path) -> str:
    return (written / "REPORT.md").read_text(encoding="utf-8")


class Page(HTMLParser):
    """What a page holds: rows of the verdict table, ids, links, images, addresses, badges by claim."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.entries: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str]] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        values = dict(attributes)
        self.tags.append(tag)
        self.ids += [values["id"]] if "id" in values else []
        self.entries += [values["data-entry"]] if "data-entry" in values else []
        self.links += [values["href"]] if tag == "a" else []
        self.images += [values] if tag == "img" else []
        self.addresses += [values[key] for key in ("src", "href", "srcset", "action", "data") if key in values]


def test_the_page_has_a_row_and_a_place_for_every_claim(page: Page) -> None:
    assert page.entries == IDS
    assert len(page.ids) == len(set(page.ids)) and set(IDS) <= set(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_the_page_needs_nothing_from_outside(page: Page, written: Path) -> None:
    assert all(address.startswith(("#", "data:image/")) for address in page.addresses)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    content = (written / "report.html").read_text(encoding="utf-8")
    assert "@import" not in content and "url(" not in content
    assert (
        "default-src &#39;none&#39;" in content
        and "prefers-color-scheme: dark" in content
        and "@media print" in content
    )


def test_every_figure_has_a_text(page: Page) -> None:
    # Five with printed points, one that a measure drew.
    assert len(page.images) == 6 and all(len(image["alt"]) > 20 for image in page.images)
    assert any("numerics" in image["alt"] for image in page.images)


def test_markdown_has_a_row_for_every_claim_and_its_figures_lie_there(text: str, written: Path) -> None:
    rows = re.findall(r"^\| \[([\w-]+)\]\(#\1\) \|", text, re.MULTILINE)
    assert rows == IDS == re.findall(r"^### (\S+)$", text, re.MULTILINE)
    images = re.findall(r"^!\[.+\]\((.+)\)$", text, re.MULTILINE)
    assert len(images) == 6 and all((written / image).is_file() for image in images)


def test_markdown_tables_survive_a_parser(text: str) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = [line for line in lines if re.fullmatch(r"[|: -]+", line)]
    assert sum(token.type == "tr_open" for token in tokens) == len(lines) - len(rules)
    assert sum(token.type == "table_open" for token in tokens) == len(rules)
    links = [child for token in tokens for child in token.children or [] if child.type == "link_open"]
    assert [link.attrs["href"] for link in links] == [f"#{name}" for name in IDS]


def test_a_claim_shows_all_that_is_needed_to_check_it(text: str) -> None:
    part = text.partition("### lr-warmup\n")[2].partition("\n### ")[0]
    for name in ("claim", "source", "their setting", "our setting", "published", "measured", "rule"):
        assert re.search(rf"^- {name}: .+", part, re.MULTILINE), name
    assert "```sh\nnormlab run configs/toy.yaml\n```" in part


def test_run_ids_of_a_claim_are_those_that_were_read(written: Path, text: str) -> None:
    for one in judge_all(Evidence.open(written)):
        part = text.partition(f"### {one.entry.id}\n")[2].partition("\n### ")[0]
        assert all(run_id in part for run_id in one.run_ids)
        assert f"**{one.verdict}**" in part


def test_errata_and_limitations(written: Path) -> None:
    content = (written / "report.html").read_text(encoding="utf-8")
    errata = content.partition('id="errata"')[2].partition("</section>")[0]
    assert errata.count("<tr>") == 1 + len(load_ledger().errata)
    limits = content.partition('id="limitations"')[2].partition("</section>")[0]
    for part in ("chosen by looking at the printed numbers", "a = 5, b = 3, c = 7", "4096", "one machine", "3 seeds"):
        assert part in limits


def test_counts_stand_on_top_and_add_up(written: Path) -> None:
    report = make_report(Evidence.open(written), judge_all(Evidence.open(written)))
    assert list(report.counts) == list(VERDICTS) and sum(report.counts.values()) == len(IDS)
    assert report.counts["reproduced"] and report.counts["contradicted"] and report.counts["not run"]
    content = report_html(report)
    counts = content.partition('class="counts"')[2].partition("</ul>")[0]
    assert [int(n) for n in re.findall(r"<strong>(\d+)</strong>", counts)] == list(report.counts.values())
    assert content.index('class="counts"') < content.index('id="verdicts"')


def test_a_shortened_run_has_a_banner(tmp_path: Path, text: str) -> None:
    evidence = Evidence.open(reproduced.make_reproduction(tmp_path / "quick", quick=True, training=("depth",)))
    report = make_report(evidence, judge_all(evidence))
    assert 'class="banner"' in report_html(report) and "3000 steps -&gt; 60" in report_html(report)
    assert "**Shortened run" in report_markdown(report) and "Shortened run" not in text


def test_a_measure_that_was_shortened_says_so_by_itself(tmp_path: Path) -> None:
    root = reproduced.make_reproduction(tmp_path / "article", quick=True, training=()) / "studies" / "params"
    evidence = Evidence.open(root)
    report = make_report(evidence, judge_all(evidence))
    assert report.banner == "--quick." and 'class="banner"' in report_html(report)


def test_readings_that_lie_beside_have_a_section(tmp_path: Path, text: str) -> None:
    assert "## Readings" not in text
    root = reproduced.make_reproduction(tmp_path / "article", training=("depth",))
    ways = Axis(name="reading", points=(Point(label="as | it", settings={}),))
    cells = Axis(name="cell", points=(Point(label="none 20, 1e-3", settings={"model.norm": "none"}),))
    synthetic.make_results(tmp_path / "readings", synthetic.study(ways, cells), lambda run: "nan@31")
    evidence = Evidence.open(root)
    report = make_report(evidence, judge_all(evidence))
    names = [table.name for table in report.readings]
    assert names == ["toy-claims", "toy-nearest", "toy-nan", "toy-readings"]
    content = report_html(report)
    assert 'id="readings"' in content and "as | it" in content and "blocks.1.ffn.out" in content
    assert "## Readings" in report_markdown(report)


def test_without_readings_beside_it_the_command_says_how_to_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = reproduced.make_reproduction(tmp_path / "my work" / "article", training=())
    monkeypatch.chdir(root.parent)
    # A folder of that name is not enough: this one asks for no readings.
    other = synthetic.make_results(root.parent / "readings_of_depth", synthetic.study(), lambda run: "trained")
    assert main(["report", "article"]) == 0
    (told,) = [line for line in capsys.readouterr().out.splitlines() if "no study of readings" in line]
    assert told.endswith("so the report tells of none; to make one: normlab run readings -o readings")
    monkeypatch.chdir(root)
    assert main(["report", "."]) == 0
    assert f"readings -o '{root.parent}/readings'\n" in capsys.readouterr().out
    shutil.rmtree(other)
    axes = [Axis(name=name, points=(Point(label="one", settings={}),)) for name in ("reading", "cell")]
    synthetic.make_results(root.parent / "readings", synthetic.study(*axes), lambda run: "trained")
    assert main(["report", str(root)]) == 0
    assert "no study of readings" not in capsys.readouterr().out
    assert "## Readings" in (root / "REPORT.md").read_text(encoding="utf-8")


def test_a_single_study_has_a_report_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = reproduced.make_reproduction(tmp_path / "article", training=("depth",)) / "studies" / "depth"
    assert main(["report", str(root)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1:] == [str(root / name) for name in ("report.html", "REPORT.md", "verdicts.json")]
    claims = {one["id"]: one for one in json.loads((root / "verdicts.json").read_text())["claims"]}
    assert claims["collapse-depth"]["verdict"] != "not run" and claims["collapse-20"]["verdict"] == "not run"
    assert not (root / "tables").exists()


def test_overwriting_a_study_takes_its_report_away(tmp_path: Path) -> None:
    from normlab.analysis.outputs import report_files

    root = reproduced.make_reproduction(tmp_path / "article", training=("depth",)) / "studies" / "depth"
    written = write_article(root)
    assert set(report_files(root)) == set(written) and len(written) == 5


def test_the_command_answers_in_json(written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(shutil.copytree(written / "studies" / "params", tmp_path / "params"))  # It has no figure to draw.
    assert main(["report", str(root), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert [claim["id"] for claim in answer["claims"]] == IDS
    assert str(root / "report.html") in answer["files"]
    assert main(["report", str(root), "-q"]) == 0 and capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_a_folder_that_is_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / "file").write_text("x")
    assert main(["report", str(tmp_path / name)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and str(tmp_path / name) in err


def test_verdict_words_are_classes_of_the_style_sheet() -> None:
    from normlab.analysis.html import environment, slug

    style = environment().loader.get_source(environment(), "page.css")[0]  # type: ignore[union-attr]
    assert all(f".badge.{slug(verdict)}" in style for verdict in VERDICTS)
