"""What a shard says at its end: the answer of the study once all runs are there, until then what is missing."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from normlab.cli.answer import write_and_answer

if TYPE_CHECKING:
    from normlab.execute.shards import Shard


def answer_shard(folder: Path, shard: Shard, json: bool) -> int:
    """Write and print as an unsharded command does if no run of the plan is missing, else say how many are; return the
    exit code. Two shards that end together both find all runs and write the same bytes, each file by one rename."""
    from normlab.execute.status import read_status

    counts = read_status(folder)
    assert counts  # this command has written its manifest
    if not counts["missing"]:
        return write_and_answer(folder, json)
    if json:
        print(jsonlib.dumps({**counts, "shard": str(shard), "files": []}, indent=1))
        return 0
    failed = f", {len(counts['failed'])} failed" if counts["failed"] else ""
    there = f"{counts['finished']} of {counts['planned']} runs are in {folder}, {counts['missing']} missing{failed}"
    now = f"`normlab tables {shlex.quote(str(folder))}` makes them now, `normlab merge` joins folders"
    print(f"{there}: the shard that ends last here writes the tables; {now}")
    sys.stdout.flush()
    return 0
