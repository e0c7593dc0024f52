"""One thread a process, as the package's workers have: more would only wait for each other on nets this small."""

from __future__ import annotations

import os

# Read when torch is first imported, which is after this file; processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
