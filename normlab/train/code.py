"""Which code trained a run: a digest of all that can change a result."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import normlab

ROOMS = ("catalogue", "config", "fused", "model", "train")
SUFFIXES = (".py", ".cpp", ".h")


@cache
def code_digest() -> str:
    """Twelve hexadecimal digits of the SHA-256 over the sources of ROOMS, with their names."""
    root = Path(normlab.__file__).parent
    digest = hashlib.sha256()
    sources = (path for room in ROOMS for path in (root / room).rglob("*") if path.suffix in SUFFIXES)
    for path in sorted(sources):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
