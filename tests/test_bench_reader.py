"""The benchmark of the reading commands: that it measures them, and what it says of their growth."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def bench_reader(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import bench_reader

    return bench_reader


def test_every_command_is_measured_at_every_size(
    bench_reader: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_reader, "COMMANDS", {"status": ("status",)})
    monkeypatch.setattr(sys, "argv", ["bench_reader.py", "--runs", "40,20", "--folder", str(tmp_path), "--json"])
    code = bench_reader.main()
    found = json.loads(capsys.readouterr().out)
    assert [(row["runs"], row["command"]) for row in found["rows"]] == [(20, "status"), (40, "status")]
    assert all(row["cpu"] > 0 and row["peak_mb"] > 10 for row in found["rows"])
    assert found["rows"][0]["growth"] is None and isinstance(found["rows"][1]["growth"], float)
    assert {"cpu", "cores", "load", "pandas", "seconds"} <= found.keys()
    assert code == int(found["verdict"].startswith("grows"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many-20", "many-40"]


@pytest.mark.parametrize(("growth", "word"), [(1.15, "no command grows"), (1.16, "grows faster than linearly: verify")])
def test_faster_than_linear_is_told(bench_reader: Any, growth: float, word: str) -> None:
    rows = [
        bench_reader.Row(runs, "verify", 1.0, 1.0, 1.0, 1.0, g) for runs, g in ((10, None), (99, 2.0), (990, growth))
    ]
    assert bench_reader.verdict(rows).startswith(word)
    assert bench_reader.verdict(rows[:1]).startswith("one size only")


def test_a_command_that_fails_is_told_by_its_last_words(bench_reader: Any) -> None:
    with pytest.raises(RuntimeError, match="exit code 3: oh no"):
        bench_reader.measure([sys.executable, "-c", "import sys; sys.stderr.write('oh no'); sys.exit(3)"])
