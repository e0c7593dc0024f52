#!/usr/bin/env bash
# Make the reference results again: every shipped config with seeds 0-2 and one study more, then the copy that is committed.
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
# Not shipped as a config: how often does the net without norm become NaN with torch's initialisation in float32?
normlab collapse --layers 20 --norms none --lr 1e-3 model.init=torch task.loss_on=last --seeds 0-11 \
    -o "$work/collapse_last" --resume

for study in smoke postln preln collapse depth warmup lr_wide collapse_last; do
    rm -rf "results/reference/$study"
    python scripts/commit_results.py "$work/$study" "results/reference/$study"
done
