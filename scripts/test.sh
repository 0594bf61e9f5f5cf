#!/usr/bin/env bash
# Every check of the project in an environment of its own: ruff, mypy, shellcheck, pytest.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: bash scripts/test.sh [--reuse] [--venv DIR] [--slow] [-- PYTEST OPTION ...]

  --reuse     keep the environment of the last run instead of making it anew
  --venv DIR  where the environment lies (default: .venv-test)
  --slow      run the tests marked slow, too

PYTHON names the interpreter, VASWANI_TORCH the torch to install (default: the release the toolkit was tried with).
USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"
cd "$root"

venv=$root/.venv-test
reuse=no
markers=(-m "not slow")
while [[ $# -gt 0 ]]; do
    case $1 in
        --reuse) reuse=yes ;;
        --slow) markers=() ;;
        --venv)
            [[ $# -ge 2 ]] || die "--venv needs a folder"
            venv=$2
            shift
            ;;
        --)
            shift
            break
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            usage >&2
            die "unknown option $1; options for pytest come after --"
            ;;
    esac
    shift
done

# Runs a command under a headline; a failure names the check.
check() {
    local name=$1
    shift
    echo "== $name"
    "$@" || die "$name failed with status $?"
}

if [[ $reuse == no || ! -x $venv/bin/python ]]; then
    if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then
        die "--venv $venv exists and is no virtual environment"
    fi
    rm -rf "$venv"
    python=$(find_python)
    check "environment ($python)" "$python" -m venv "$venv"
    check "pip" "$venv/bin/python" -m pip install --quiet --upgrade "$(pip_requirement "$python")"
    check "torch" "$venv/bin/python" -m pip install --quiet "$(torch_requirement "$python")"
    # Torch is named again, because pip replaces what is not asked for: fairseq 0.12.2 wants a torchaudio that wants one.
    check "project" "$venv/bin/python" -m pip install --quiet "$(torch_requirement "$python")" --editable ".[dev]"
fi

export PATH=$venv/bin:$PATH
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
check "ruff check" ruff check .
check "ruff format" ruff format --check .
check "mypy" mypy
check "shellcheck" shellcheck -x scripts/*.sh .ci/run
# The ${array[@]+...} form is for an empty array under set -u in bash before 4.4.
check "pytest" python -m pytest ${markers[@]+"${markers[@]}"} "$@"
