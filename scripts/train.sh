#!/usr/bin/env bash
# Trains, on one worker or many, and resumes by itself: the one way in which every recipe trains.
#
#   bash scripts/train.sh DATA --save-dir DIR [options] [-- OPTIONS OF fairseq-train]
#
# DATA is a folder of the toolkit's binary data. Without options: vaswani_base with the paper's settings on all GPUs of
# this machine. The options are those of vaswani-train, which this script becomes (--help explains all, --dry-run shows
# the plan and the commands):
#
#   --source-lang L --target-lang L   --arch NAME   --max-update N   --seed N
#   --gpus N | --cpu [--workers N]    --nodes N --node-rank R --master HOST:PORT
#   --target-batch TOKENS  --max-tokens TOKENS (a worker at once)  --update-freq N
#   --save-interval-updates N  --keep-interval-updates N  --keep-last-epochs N  --keep-best N
#   --fp16 | --bf16   --curves   --tensorboard   --grace SECONDS
#
# Exit status: 0 the training is complete; 75 it was asked to stop (SIGTERM, SIGUSR1, Ctrl-C), has saved, and goes on
# when the same command is given again; 1 it failed, with the reason in the last line; 2 wrong options.
# PYTHON names the interpreter in whose environment the project is installed (default: python).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"

python=${PYTHON:-python}
command -v "$python" >/dev/null || die "there is no $python; name the interpreter with PYTHON=..."
# In a checkout that is not installed the package lies beside this folder.
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
# Not a child: signals have to reach the program itself.
exec "$python" -m vaswani_plugin.tools.train "$@"
