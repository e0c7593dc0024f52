"""The page in a browser: every figure loads, nothing is asked of the network, nothing scrolls sideways."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import reproduced

from normlab.analysis.article import write_article
from normlab.analysis.ledger import load_ledger

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
pytestmark = pytest.mark.skipif(not BROWSER, reason="needs chromium or google-chrome")

# Runs in a copy of the page whose policy admits it. What the page asks for, and what it may not, is written down.
CHECKER = """
<script>
const faults = [];
addEventListener("error", e => faults.push(`error: ${e.message || e.target.outerHTML.slice(0, 80)}`), true);
document.addEventListener("securitypolicyviolation",
  e => faults.push(`policy: ${e.violatedDirective} ${e.blockedURI}`));
for (const level of ["error", "warn"]) {
  const old = console[level];
  console[level] = (...words) => { faults.push(`console: ${words.join(" ")}`); old.apply(console, words); };
}
</script>
"""
# Each width in a frame of its own: a browser's window cannot be narrower than it likes.
FRAME = """
<!doctype html><meta charset="utf-8"><title>checked</title>
<iframe id="page" style="border:0;width:%(width)dpx;height:900px" srcdoc="%(page)s"></iframe>
<script>
const frame = document.getElementById("page");
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  const boxes = [...page.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth + 1);
  const result = {
    width: frame.contentWindow.innerWidth,
    sideways: root.scrollWidth - root.clientWidth,
    scrolling_boxes: boxes.length,
    images: [...page.images].map(image => [image.complete, image.naturalWidth, image.getAttribute("alt")]),
    entries: [...page.querySelectorAll("tr[data-entry]")].map(row => row.dataset.entry),
    requests: frame.contentWindow.performance.getEntriesByType("resource").map(e => e.name)
      .filter(name => !name.startsWith("data:")),
    faults: frame.contentWindow.eval("faults"),
    background: getComputedStyle(page.body).backgroundColor,
    ink: getComputedStyle(page.body).color,
  };
  const out = document.createElement("pre");
  out.id = "result";
  out.textContent = JSON.stringify(result);
  document.body.append(out);
};
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = reproduced.make_reproduction(tmp_path_factory.mktemp("results") / "article")
    write_article(root)
    return root / "report.html"


def browse(address: Path, *options: str) -> tuple[str, str]:
    """The document after loading, and what the browser logged."""
    profile = address.parent / f"profile-{address.stem}"
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr",
        "--virtual-time-budget=20000", *options, "--dump-dom", address.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, done.stderr


def checked(page: Path, where: Path, width: int, *options: str, insert: str = "") -> dict[str, Any]:
    """The checker's result in a frame of that width; `insert` is put into the page's body."""
    text = page.read_text(encoding="utf-8")
    scripts = "script-src &#39;unsafe-inline&#39; &#39;unsafe-eval&#39;"
    admitted = text.replace("default-src &#39;none&#39;;", f"default-src &#39;none&#39;; {scripts};", 1)
    assert admitted != text
    # Behind the policy, so that the policy holds for all that follows.
    policy_end = admitted.index(">", admitted.index("Content-Security-Policy")) + 1
    injected = admitted[:policy_end] + CHECKER + admitted[policy_end:].replace("</main>", f"{insert}</main>", 1)
    file = where / f"checked-{width}.html"
    file.write_text((FRAME % {"width": width, "page": html.escape(injected)}).lstrip(), encoding="utf-8")
    document, _ = browse(file, *options)
    found = re.search(r'<pre id="result">(.*?)</pre>', document, re.DOTALL)
    assert found, document[-500:]
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    return result


@pytest.mark.parametrize("width", [1280, 390])
def test_everything_loads_and_nothing_scrolls_sideways(page: Path, tmp_path: Path, width: int) -> None:
    result = checked(page, tmp_path, width)
    assert result["width"] == width
    assert result["faults"] == [] and result["requests"] == []
    assert result["entries"] == [entry.id for entry in load_ledger().entries]
    assert len(result["images"]) == 5
    assert all(complete and natural > 0 and alt for complete, natural, alt in result["images"])
    assert result["sideways"] == 0
    if width == 390:
        assert result["scrolling_boxes"] > 5  # the tables scroll inside their own boxes


def test_the_check_sees_a_request_a_fault_and_a_broken_figure(page: Path, tmp_path: Path) -> None:
    """The checker itself: what must not be there is found when it is."""
    bad = '<img src="https://example.org/x.png" alt="x"><img src="data:image/png;base64,AAAA" alt="y">'
    bad += '<div style="width:2000px;height:1px"></div><script>console.error("told")</script>'
    result = checked(page, tmp_path, 390, insert=bad)
    assert any(fault.startswith("policy: img-src https://example.org") for fault in result["faults"])
    assert "console: told" in result["faults"] and result["sideways"] > 1000
    assert [natural for _, natural, _ in result["images"]][-2:] == [0, 0]


def test_the_page_as_it_is_logs_nothing(page: Path) -> None:
    document, log = browse(page)
    assert "CONSOLE" not in log, log
    assert document.count("data-entry=") == len(load_ledger().entries)


def test_light_and_dark(page: Path, tmp_path: Path) -> None:
    def brightness(colour: str) -> float:
        return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3

    light = checked(page, tmp_path, 1280, "--blink-settings=preferredColorScheme=1")
    dark = checked(page, tmp_path, 1280, "--blink-settings=preferredColorScheme=0")
    assert brightness(light["background"]) > 200 > 100 > brightness(light["ink"])
    assert brightness(dark["background"]) < 60 < 150 < brightness(dark["ink"])
