"""A command that measures, in small: `fake_measure.py NAME [--quick] [--mode MODE] -o DIR --overwrite -q`."""

import argparse
import json
import os
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("-o", type=Path)
parser.add_argument("--mode", default="fine")
for flag in ("--quick", "--overwrite", "-q"):
    parser.add_argument(flag, action="store_true")
asked = parser.parse_args()
if asked.mode == "fails":
    print("first words")
    raise SystemExit("no such luck")
if asked.mode == "empty":
    raise SystemExit(0)
asked.o.mkdir(parents=True, exist_ok=True)
if asked.mode == "hangs":
    (asked.o / ".tmp-pid").write_text(str(os.getpid()))
    time.sleep(3600)
measure = {"name": asked.name, "question": "?", "command": f"normlab {asked.name}", "quick": asked.quick}
measure |= {"settings": {}, "values": {"x": 1.0}, "environment": {}, "started": "", "seconds": 0.5}
(asked.o / "measure.json").write_text(json.dumps({"format": 1, "kind": "measure", **measure}))
