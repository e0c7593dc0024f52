"""A reproduction of two tiny studies that share runs, and a measure: what the article's is in small.

Run as a program, it is `normlab reproduce` of that: `python tiny_plan.py TRAINER MODE reproduce -o DIR ...`.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiny import axis, tiny_study

from normlab.execute import estimate, parts
from normlab.execute.devices import Device
from normlab.execute.parts import Measuring, Plan, Training
from normlab.execute.sweep import Options

if TYPE_CHECKING:
    from normlab.execute.reproduce import Tally

CPU = Device("cpu", "a cpu")
HERE = Path(__file__).parent
Run = Callable[..., "Tally"]
FAKE = Path(__file__).with_name("fake_measure.py")
# The rates 1e-3 and 1e-2 of the first are the first two of the second.
ONE = tiny_study((0, 1), name="one")
TWO = tiny_study((0, 1), name="two", axes=(axis("optim.lr", [1e-3, 1e-2, 1e-1]),))


def tiny_plan(quick: bool = False, seeds: tuple[int, ...] = (0, 1), mode: str = "fine") -> Plan:
    """Measure `before`, studies `one` (4 runs) and `two` (6 runs, 4 of them those of `one`), measure `after`; `before`
    behaves as `mode` says."""
    program = (sys.executable, "-I", str(FAKE))
    before = Measuring("before", quick, 1.0, ("--mode", mode), program)
    after = Measuring("after", quick, 1.0, (), program)
    studies = [study.model_copy(update={"seeds": seeds}) for study in (ONE, TWO)]
    trained = [Training(study, f"normlab run {study.name}.yaml", ("less",) if quick else ()) for study in studies]
    return Plan((before, *trained, after), quick, seeds)


def fake_article() -> types.ModuleType:
    """In the place of `normlab.analysis.article`: writes the counts alone."""
    module = types.ModuleType("normlab.analysis.article")

    def write_article(folder: Path) -> None:
        (folder / "verdicts.json").write_text(json.dumps({"counts": {"reproduced": 2, "not run": 1}}))

    module.write_article = write_article  # type: ignore[attr-defined]
    return module


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def main() -> int:
    trainer, mode, *arguments = sys.argv[1:]
    import normlab.analysis
    from normlab import cli
    from normlab.execute import sweep

    parts.make_plan = lambda quick, seeds, _: tiny_plan(quick, mode=mode)  # type: ignore[assignment]
    estimate.calibrate = lambda *_: {1.0: 1e-9}  # type: ignore[assignment]
    normlab.analysis.write_outputs = lambda _: []  # type: ignore[assignment]
    sys.modules["normlab.analysis.article"] = fake_article()
    real = sweep.Options

    def options(*values: object, **named: object) -> Options:
        return real(*values, **{**named, "trainer": f"fakes:{trainer}"})  # type: ignore[arg-type]

    sweep.Options = options  # type: ignore[assignment, misc]
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
