"""Imports point one way only; the reading half and the planning half stay free of what they must not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import normlab

ROOT = Path(normlab.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py"))

# A part of the package, and the parts that it may import besides itself.
# A catalogue looks its entries' classes up by name, when they are first asked for, as it does with a user's module.
MAY = {
    "catalogue": set(),
    "config": {"catalogue"},
    "outcome": {"config"},
    "curves": set(),
    "store": {"curves", "outcome", "config"},
    "manifests": {"config", "catalogue"},
    "measures": {"store", "outcome", "config"},
    "model": {"config", "catalogue"},
    "fused": {"model", "config", "catalogue"},
    "train": {"fused", "model", "store", "outcome", "config", "catalogue"},
    "execute": {"train", "fused", "model", "manifests", "measures", "store", "outcome", "config", "catalogue"},
    "published": set(),
    "studies": {"train", "fused", "model", "store", "outcome", "config", "catalogue"},
    "analysis": {"published", "measures", "manifests", "store", "outcome", "config", "catalogue"},
    "cli": {"execute", "studies", "train", "fused", "model", "analysis", "published"}
    | {"measures", "manifests", "store", "outcome", "config", "catalogue"},
    "__init__": {"analysis"},
    "__main__": {"cli"},
}
READS = {"pandas", "matplotlib"}


def part_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path):
    """(module, inside a function or under TYPE_CHECKING) for every import of a file; relative ones made absolute."""
    package = ["normlab", *path.relative_to(ROOT).parts[:-1]]

    def walk(node, inside):
        for child in ast.iter_child_nodes(node):
            deeper = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.Import):
                yield from ((name.name, inside) for name in child.names)
            elif isinstance(child, ast.ImportFrom):
                head = package[: len(package) - child.level + 1] if child.level else []
                module = ".".join([*head, *([child.module] if child.module else [])])
                # `from normlab import store` imports a part by its name.
                yield from ((f"{module}.{name.name}", inside) for name in child.names)
            yield from walk(child, deeper)

    return list(walk(ast.parse(path.read_text(encoding="utf-8")), False))


def parts_imported(path):
    return {name.split(".")[1] for name, _ in imports(path) if name.startswith("normlab.")} & set(MAY)


def outside(path, at_load_only=False):
    return {name.split(".")[0] for name, inside in imports(path) if not (inside and at_load_only)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_part_may(path):
    part = part_of(path)
    assert part in MAY, f"a new part of the package, {part}: give it a place in the order"
    assert parts_imported(path) <= MAY[part] | {part}
    if part in ("analysis", "catalogue", "config", "outcome", "manifests", "store"):
        assert "torch" not in outside(path)
    if part in ("catalogue", "config", "outcome", "manifests", "store", "fused", "model", "train", "execute"):
        assert not READS & outside(path)
    if part in ("cli", "execute", "__init__", "__main__"):
        assert not (READS | {"torch"}) & outside(path, at_load_only=True)


def test_the_order_has_no_circle():
    placed, left = set(), dict(MAY)
    while left:
        ready = {part for part, below in left.items() if below <= placed}
        assert ready, f"a circle among {sorted(left)}"
        placed |= ready
        left = {part: below for part, below in left.items() if part not in ready}


def test_the_reader_of_imports_sees_what_it_should(tmp_path, monkeypatch):
    """The check itself: function-level, relative and `from normlab import part` imports are all seen."""
    monkeypatch.setattr("test_import_direction.ROOT", tmp_path)
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "x.py"
    path.write_text("from normlab import store\nfrom ..model import norms\ndef f():\n    import torch.nn\n")
    assert parts_imported(path) == {"store", "model"}
    assert "torch" in outside(path) and "torch" not in outside(path, at_load_only=True)


def test_an_entry_says_what_it_is_without_torch_and_numpy():
    lines = ["import sys", "from normlab.catalogue import CATALOGUES"]
    lines += ["found = [entry for kind in CATALOGUES.values() for entry in kind.values()]", "print(len(found))"]
    lines += ["sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) >= 20, done.stderr
