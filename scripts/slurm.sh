#!/usr/bin/env bash
#SBATCH --job-name=vaswani
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
# A training under Slurm, on one machine or several, that goes on by itself after a time limit or a pre-emption.
#
#   sbatch [--nodes 2 ...] scripts/slurm.sh DATA --save-dir DIR [OPTIONS OF scripts/train.sh]
#
# Submit it from the project's folder. The options above are defaults; those of sbatch win. One task a machine starts
# scripts/train.sh with all its GPUs. Five minutes before the time limit Slurm sends SIGUSR1, before a pre-emption
# SIGTERM: the training saves, ends, and is put back into the queue, from where it goes on.
# PYTHON names the interpreter in whose environment the project is installed (default: python).
set -euo pipefail

die() {
    echo "slurm.sh: error: $*" >&2
    exit 1
}

if [[ $# -eq 0 || $1 == -h || $1 == --help ]]; then
    sed -n '/^# A training/,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
fi
[[ -n ${SLURM_JOB_ID:-} ]] || die "this is a job script: sbatch scripts/slurm.sh DATA --save-dir DIR ..."
# Slurm runs a copy of this file, so that its own folder says nothing.
train=${SLURM_SUBMIT_DIR:-$PWD}/scripts/train.sh
[[ -f $train ]] || die "there is no $train; submit the job from the project's folder"

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
master=${hosts%%$'\n'*}
port=$((10000 + SLURM_JOB_ID % 50000))

asked=no step='' # whether Slurm wants the machines back; the process that stands for the step
trap 'asked=yes; [[ -z $step ]] || kill -USR1 "$step" 2>/dev/null || true' USR1 TERM
# shellcheck disable=SC2016  # the task expands it
srun --kill-on-bad-exit=1 bash -c 'exec bash "$0" --nodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" "$@"' \
    "$train" --master "$master:$port" "$@" &
step=$!
[[ $asked == no ]] || kill -USR1 "$step"

status=0
wait "$step" || status=$?
# A signal ends the waiting, not the step.
while kill -0 "$step" 2>/dev/null; do
    status=0
    wait "$step" || status=$?
done
# 75: saved, and not complete; where one machine's end has ended the others first, another status stands for it.
if [[ $status -eq 75 || ($asked == yes && $status -ne 0) ]]; then
    echo "slurm.sh: the training is not complete (status $status); back into the queue" >&2
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
