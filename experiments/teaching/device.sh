#!/usr/bin/env bash
# The experiment on a machine with a GPU that nothing can be installed on; pieces are taken by ../race/device.sh take.
#   device.sh SECONDS   all that is not measured yet, begun within so many seconds; results go to $OUT
set -euo pipefail
cd "$(dirname "$0")/../.."
TAKEN=${TAKEN:-/tmp/race-carry}
export HUBSCOUT_SHARED=$TAKEN/shared HUBSCOUT_ZOO=$TAKEN/zoo HUBSCOUT_EXPERIMENT_CACHE=$TAKEN/cache
export PYTHONPATH=$PWD/src:$TAKEN/filled PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps-pipe CUDA_MPS_LOG_DIRECTORY=/tmp/mps-log
mkdir -p $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY "$OUT"
pgrep -f nvidia-cuda-mps-control > /dev/null || nvidia-cuda-mps-control -d || unset CUDA_MPS_PIPE_DIRECTORY
cp experiments/teaching/results/runs.jsonl "$OUT/" 2> /dev/null || true
python3 experiments/teaching/run.py --workers "${WORKERS:-16}" --seconds "$1" --out "$OUT/runs.jsonl" ${MORE:-}
