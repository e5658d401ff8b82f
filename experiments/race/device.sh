#!/usr/bin/env bash
# The experiment on a machine with a GPU that nothing can be installed on.
#   device.sh take          what lies in carry/*/ joins what was taken before, and goes; says what is missing
#   device.sh run SECONDS   all that is not measured yet, begun within so many seconds; results go to $OUT
# Models, data and pure-Python packages lie in $TAKEN: shared/ (see experiments/shared_hub.py), zoo/, packages/.
set -euo pipefail
cd "$(dirname "$0")/../.."
TAKEN=${TAKEN:-/tmp/race-carry}
PYTHON=${PYTHON:-python3}
mkdir -p "$TAKEN/filled"
if [ "$1" = take ]; then
    for piece in carry/*/; do
        cp -r "$piece". "$TAKEN/" && rm -r "$piece"
    done
    for file in "$TAKEN"/zoo/*.part-1; do
        [ -e "$file" ] && cat "${file%1}0" "$file" > "${file%.part-1}" && rm "${file%1}0" "$file"
    done
    # Only packages that the machine lacks: its own are of its own Python.
    for package in "$TAKEN"/packages/*; do
        name=$(basename "$package" .py)
        [ -e "$package" ] && ! "$PYTHON" -c "import $name" 2> /dev/null && cp -r "$package" "$TAKEN/filled/"
    done
fi
export HUBSCOUT_SHARED=$TAKEN/shared HUBSCOUT_ZOO=$TAKEN/zoo HUBSCOUT_EXPERIMENT_CACHE=$TAKEN/cache
export PYTHONPATH=$PWD/src:$TAKEN/filled PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
if [ "$1" = take ]; then
    cd experiments
    "$PYTHON" -c "
import shared_hub
zoo = shared_hub._zoo()
import pyarrow, pandas, hubscout, hubscout.racing, hubscout.tuning.single_run
there = [name for name in shared_hub.VISION if zoo._find_weights(name, None)]
print('imports are fine;', len(there), 'of', len(shared_hub.VISION), 'models are there')
" || true
    ls "$TAKEN/filled" "$TAKEN"/shared/data "$TAKEN"/shared/data/pets 2> /dev/null || true
    exit
fi
export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps-pipe CUDA_MPS_LOG_DIRECTORY=/tmp/mps-log
mkdir -p $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY
if command -v nvidia-cuda-mps-control > /dev/null; then
    pgrep -f nvidia-cuda-mps-control > /dev/null || nvidia-cuda-mps-control -d || unset CUDA_MPS_PIPE_DIRECTORY
fi
mkdir -p "$OUT"
cp experiments/race/results/*.npz "$OUT/"
cp experiments/race/results/product.json "$OUT/" 2> /dev/null || true
"$PYTHON" experiments/race/run.py ${WHAT:-races truth evidence folds} --workers "${WORKERS:-16}" --seconds "${2:-480}" \
    ${MORE:-} --out "$OUT"
