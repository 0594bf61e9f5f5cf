#!/usr/bin/env bash
# Trains with torchrun instead of our own supervisor, on one machine or several; for clusters that are built around it.
#
#   bash scripts/torchrun.sh [OPTIONS OF torchrun] -- DATA --save-dir DIR [OPTIONS OF scripts/train.sh]
#
#   bash scripts/torchrun.sh --nproc-per-node 8 -- data/bin --save-dir checkpoints
#   bash scripts/torchrun.sh --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr node0 --master-port 29500 -- ...
#
# The effective batch is held for any number of workers, and SIGTERM saves first, but torchrun gives the workers only 30
# seconds for it and does not hand on SIGUSR1; scripts/train.sh and scripts/slurm.sh do.
# PYTHON names the interpreter in whose environment the project is installed (default: python).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}

launcher=()
while [[ $# -gt 0 && $1 != -- ]]; do
    if [[ $1 == -h || $1 == --help ]]; then
        usage
        exit 0
    fi
    launcher+=("$1")
    shift
done
[[ $# -gt 1 ]] || die "the training's options come after -- (--help shows how)"
shift

python=${PYTHON:-python}
command -v "$python" >/dev/null || die "there is no $python; name the interpreter with PYTHON=..."
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
exec "$python" -m torch.distributed.run ${launcher[@]+"${launcher[@]}"} -m vaswani_plugin.tools.train "$@"
