#!/usr/bin/env bash
# Make the reference results again: every shipped config with seeds 0-2, then the copy that is committed.
# About two and a half hours on two cores. Stopped half-way? Run it again: every step resumes.
#
#   scripts/reference.sh [WORK]      WORK: where the full results go (default results)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=${1:-results}

train() { normlab "$1" "${@:3}" --seeds 0-2 -o "$work/$2" --resume; }

train run smoke configs/smoke.yaml
train sweep-lr postln configs/postln.yaml
train collapse collapse
# Studies share runs: a run that lies in another folder already is taken from there.
train run warmup configs/warmup.yaml --reuse "$work/postln"
train run depth configs/depth.yaml --reuse "$work/collapse" --reuse "$work/warmup"
train sweep-lr lr_wide configs/lr_wide.yaml --reuse "$work/postln" --reuse "$work/warmup"
train sweep-lr preln configs/preln.yaml --reuse "$work/lr_wide"

for study in smoke postln preln collapse depth warmup lr_wide; do
    rm -rf "results/reference/$study"
    python scripts/commit_results.py "$work/$study" "results/reference/$study"
done
