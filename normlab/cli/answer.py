"""Tables, figures and the answer of a results folder; the answer is told also where the files cannot be written."""

from __future__ import annotations

import sys
from pathlib import Path


def write_and_answer(folder: Path, json: bool, silent: bool = False) -> int:
    """Write the files, print the answer unless `silent`, and return the exit code: 1 if a file could not be written."""
    from normlab.analysis import load, write_outputs
    from normlab.analysis.terminal import print_answer

    results, fault = load(folder), None
    try:
        write_outputs(results)
    except OSError as error:
        fault = error
    if json or not silent:
        print_answer(results, json=json)
    if fault is None:
        return 0
    sys.stdout.flush()
    what = f"{fault.strerror or fault}" + (f" ({fault.filename})" if fault.filename else "")
    print(f"normlab: error: tables and figures could not be written: {what}", file=sys.stderr)
    return 1
