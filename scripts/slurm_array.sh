#!/usr/bin/env bash
# A study as a Slurm array: every task trains its share of the runs, all of them into one folder on a shared file system.
#
#   sbatch [--array=1-N] scripts/slurm_array.sh [CONFIG [OUT]]
#
# The task that ends last writes the tables. Some tasks were lost? Submit the same array again (1 to the same N): it does
# only what is missing.
#SBATCH --job-name=normlab --array=1-8 --cpus-per-task=4 --time=04:00:00 --requeue
set -euo pipefail
config=${1:-configs/postln.yaml} out=${2:-results/postln}

normlab run "$config" -o "$out" --resume --jobs "${SLURM_CPUS_PER_TASK:-1}" \
    --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
