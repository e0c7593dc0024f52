"""`--shard i/n`: a plan shared out among machines that need not know of each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from normlab.config.plan import PlannedRun
from normlab.execute.display import counted
from normlab.execute.target import Refused
from normlab.store import failed_ids, finished_ids

_WRITTEN = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count`, counted from 1: of the plan's run ids in order, every `count`-th."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def of(self, plan: Sequence[PlannedRun]) -> list[PlannedRun]:
        """The runs of `plan` that this shard does, in the order of the plan."""
        mine = set(sorted(run.id for run in plan)[self.index - 1 :: self.count])
        return [run for run in plan if run.id in mine]


def parse_shard(text: str | None) -> Shard | None:
    """The shard that `--shard` names; None without one, and for 1/1, the whole plan. `Refused` if it is none."""
    if text is None:
        return None
    written = _WRITTEN.fullmatch(text)
    shard = Shard(int(written[1]), int(written[2])) if written else Shard(0, 0)
    if not 1 <= shard.index <= shard.count:
        from_0 = written is not None and shard.index == 0 < shard.count
        mend = "; shards count from 1 (a Slurm array: --array=1-n)" if from_0 else ""
        raise Refused(f"--shard: expected i/n with i from 1 to n, such as 2/4, got '{text}'{mend}")
    return shard if shard.count > 1 else None


def runs_of(shard: Shard | None, plan: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The runs that are this sitting's to do: of the shard, or all."""
    return shard.of(plan) if shard else list(plan)


def check_unstarted(folder: Path, shard: Shard, mine: Iterable[PlannedRun]) -> None:
    """Refuse if runs of the shard lie in `folder` already: without `--resume` nothing is continued."""
    found = {run.id for run in mine} & (finished_ids(folder) | failed_ids(folder))
    if found:
        what = f"{counted(len(found), 'run')} of shard {shard}"
        raise Refused(f"{folder} already holds {what}: continue with --resume, or choose another folder with -o")
