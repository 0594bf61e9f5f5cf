# shellcheck shell=bash
# What the scripts share: the Python to use, what goes into a virtual environment, words for errors.

die() {
    echo "$(basename "$0"): error: $*" >&2
    exit 1
}

# Prints the first interpreter that the project supports: $PYTHON, or python3, python3.12 ... python3.9.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.12 python3.11 python3.10 python3.9}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    die "no Python 3.9 to 3.12 found (tried: ${PYTHON:-python3 python3.12 python3.11 python3.10 python3.9}); name one with PYTHON=..."
}

# Says whether an interpreter is older than 3.11, where the toolkit is fairseq 0.12.2.
is_old_python() {
    "$1" -c 'import sys; sys.exit(sys.version_info >= (3, 11))'
}

# Prints the torch to install: $VASWANI_TORCH, or the release that the toolkit for this Python was tried with.
torch_requirement() {
    if [[ -n "${VASWANI_TORCH:-}" ]]; then
        echo "$VASWANI_TORCH"
    elif is_old_python "$1"; then
        echo "torch==2.2.2"
    else
        echo "torch==2.13.0"
    fi
}

# Prints the pip to use: fairseq 0.12.2 needs an omegaconf whose metadata pip 24.1 and later refuse.
pip_requirement() {
    if is_old_python "$1"; then
        echo "pip<24.1"
    else
        echo "pip>=23"
    fi
}
