"""A plugin for `normlab run`: in a worker, writes the time of the first step done, by the system's one clock, into the
file that the environment names. `execute.local` starts its workers with `python -c`."""

import os
import sys
import time
from typing import Any

if sys.argv[0] == "-c" and "NORMLAB_BENCH_STAMP" in os.environ:
    from normlab.train.stack import Stack

    inner = Stack.step

    def step(*values: Any, **named: Any) -> Any:
        answer = inner(*values, **named)
        with open(os.environ["NORMLAB_BENCH_STAMP"], "a") as file:
            file.write(f"{time.monotonic()}\n")
        Stack.step = inner  # type: ignore[method-assign]
        return answer

    Stack.step = step  # type: ignore[method-assign]
