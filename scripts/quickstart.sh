#!/usr/bin/env bash
# The whole job on a CPU: install, prepare, train vaswani_tiny, average, translate, score, draw. It only composes commands.
# A step that succeeded leaves a stamp under WORK/stamps and is not done again; an interrupted training resumes.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: bash scripts/quickstart.sh [options]

Without --corpus: the embedded corpus, English to German, a few minutes on two cores.

  --corpus DIR          parallel text: train.*, valid.* or val.*, one test*.* with the two languages as suffixes
  --source-lang LANG    suffix of the source side (default: en)
  --target-lang LANG    suffix of the target side (default: de)
  --test-prefix NAME    which test set, when DIR has several (such as test_2016_flickr)
  --arch NAME           architecture (default: vaswani_tiny)
  --vocab-size N        SentencePiece BPE pieces (default: 8000; embedded 1000)
  --max-update N        updates (default: 6000; embedded 1000)
  --max-tokens N        tokens in a batch (default: 4096; embedded 2048)
  --lr X                peak learning rate (default: 5e-3; embedded 3e-3)
  --warmup-updates N    (default: 2000; embedded 300)
  --dropout X           (default: the architecture's; embedded 0.1, since its sentences hold no noise to learn by heart)
  --average N           mean of the last N epoch checkpoints (default: 10; embedded 5)
  --seed N              (default: 1)
  --work DIR            everything that is made (default: quickstart-work/embedded or quickstart-work/NAME OF DIR)
  --venv DIR            virtual environment (default: .venv-quickstart)
  --dry-run             print the commands, run none

PYTHON names the interpreter, VASWANI_TORCH the torch to install (default: the release the toolkit was tried with).
USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"
# shellcheck source=scripts/steps.sh
source "$root/scripts/steps.sh"

corpus='' source_lang=en target_lang=de test_prefix='' arch=vaswani_tiny seed=1 dropout=''
vocab_size='' max_update='' max_tokens='' lr='' warmup='' average='' work='' venv=$root/.venv-quickstart mode=run

while [[ $# -gt 0 ]]; do
    case $1 in
        -h | --help)
            usage
            exit 0
            ;;
        --dry-run)
            mode=dry-run
            shift
            continue
            ;;
    esac
    [[ $# -ge 2 ]] || die "$1: unknown option, or its value is missing (--help lists the options)"
    [[ -n $2 ]] || die "$1: its value is empty"
    case $1 in
        --corpus) corpus=$2 ;;
        --source-lang) source_lang=$2 ;;
        --target-lang) target_lang=$2 ;;
        --test-prefix) test_prefix=$2 ;;
        --arch) arch=$2 ;;
        --vocab-size) vocab_size=$2 ;;
        --max-update) max_update=$2 ;;
        --max-tokens) max_tokens=$2 ;;
        --lr) lr=$2 ;;
        --warmup-updates) warmup=$2 ;;
        --dropout) dropout=$2 ;;
        --average) average=$2 ;;
        --seed) seed=$2 ;;
        --work) work=$2 ;;
        --venv) venv=$2 ;;
        *) die "unknown option $1 (--help lists the options)" ;;
    esac
    shift 2
done

if [[ -n $corpus ]]; then
    [[ -d $corpus ]] || die "--corpus $corpus: no such folder"
    corpus=$(cd "$corpus" && pwd)
    : "${vocab_size:=8000}" "${max_update:=6000}" "${max_tokens:=4096}" "${lr:=5e-3}" "${warmup:=2000}" "${average:=10}"
    : "${work:=$root/quickstart-work/$(basename "$corpus")}"
else
    [[ -z $test_prefix ]] || die "--test-prefix goes with --corpus"
    [[ $source_lang-$target_lang == en-de || $source_lang-$target_lang == de-en ]] ||
        die "the embedded corpus has en and de, not $source_lang and $target_lang"
    : "${vocab_size:=1000}" "${max_update:=1000}" "${max_tokens:=2048}" "${lr:=3e-3}" "${warmup:=300}" "${average:=5}"
    : "${dropout:=0.1}"
    : "${work:=$root/quickstart-work/embedded}"
fi

# What would fail, or never end, only after the installation or the training.
for entry in "--vocab-size $vocab_size" "--max-update $max_update" "--max-tokens $max_tokens" "--average $average"; do
    [[ $entry =~ ^[^\ ]+\ [1-9][0-9]*$ ]] || die "${entry%% *} must be a whole number above 0, not '${entry#* }'"
done

[[ $work == /* ]] || work=$PWD/$work
[[ $venv == /* ]] || venv=$PWD/$venv

# --- the files of a corpus ---------------------------------------------------------------------------------------------

# Prints the prefix, of those given, whose two files exist in the corpus.
find_split() {
    local name
    for name in "$@"; do
        if [[ -f $corpus/$name.$source_lang && -f $corpus/$name.$target_lang ]]; then
            echo "$name"
            return
        fi
    done
    die "--corpus $corpus: no file pair $(printf '%s.{'"$source_lang,$target_lang"'} ' "$@")"
}

# Prints the prefix of the only test set, or of the one that --test-prefix names.
find_test() {
    local path name found=()
    if [[ -n $test_prefix ]]; then
        find_split "$test_prefix"
        return
    fi
    for path in "$corpus"/test*."$source_lang"; do
        name=$(basename "$path" ".$source_lang")
        if [[ -f $path && -f $corpus/$name.$target_lang ]]; then
            found+=("$name")
        fi
    done
    case ${#found[@]} in
        0) die "--corpus $corpus: no file pair test*.{$source_lang,$target_lang}" ;;
        1) echo "${found[0]}" ;;
        *) die "--corpus $corpus: several test sets (${found[*]}); choose one with --test-prefix" ;;
    esac
}

if [[ -n $corpus ]]; then
    data=$corpus
    train=$(find_split train)
    valid=$(find_split valid val dev)
    test=$(find_test)
else
    data=$work/corpus train=train valid=valid test=test
fi

# --- steps -------------------------------------------------------------------------------------------------------------

export PYTHONUNBUFFERED=1
cores=$(getconf _NPROCESSORS_ONLN)
# A model this small gains nothing from more threads.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores < 4 ? cores : 4))}
[[ $mode == dry-run ]] || mkdir -p "$work"

# An environment may serve several work folders, so its stamps lie in it.
python=$venv/bin/python
[[ -x $python ]] || python=$(find_python)
base=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
step environment "$venv/stamps/environment" "" "$base" -m venv "$venv"
step pip "$venv/stamps/pip" "" "$venv/bin/python" -m pip install --upgrade "$(pip_requirement "$python")"
step torch "$venv/stamps/torch" "" "$venv/bin/python" -m pip install "$(torch_requirement "$python")"
# Torch is named again, because pip replaces what is not asked for: fairseq 0.12.2 wants a torchaudio that wants a torch.
step project "$venv/stamps/project" "$(cksum <"$root/setup.py")" \
    "$venv/bin/python" -m pip install "$(torch_requirement "$python")" --editable "${root}[plots]"
changed=no

export PATH=$venv/bin:$PATH
if [[ -z $corpus ]]; then
    step corpus "$work/stamps/corpus" "" vaswani-corpus "$data"
fi

inputs=()
for split in "$train" "$valid" "$test"; do
    inputs+=("$data/$split.$source_lang" "$data/$split.$target_lang")
done
text=''
[[ $mode == dry-run ]] || text=$(cat "${inputs[@]}" | cksum)
prepare=(vaswani-prepare text --train "${inputs[@]:0:2}" --valid "${inputs[@]:2:2}" --test "${inputs[@]:4:2}"
    --source-lang "$source_lang" --target-lang "$target_lang" --vocab-size "$vocab_size"
    --dest "$work/data" --workers "$cores")
step prepare "$work/stamps/prepare" "$text" "${prepare[@]}"

train_command=(vaswani-train "$work/data/bin" --save-dir "$work/checkpoints" --cpu
    --source-lang "$source_lang" --target-lang "$target_lang" --arch "$arch" --seed "$seed"
    --target-batch "$max_tokens" --max-tokens "$max_tokens")
more=(--lr "$lr" --warmup-updates "$warmup" --num-workers 0 --log-interval 50)
[[ -z $dropout ]] || more+=(--dropout "$dropout")
guard_checkpoints "$work/checkpoints" "${train_command[*]} ${more[*]} ${prepare[*]} $text"
step train "$work/stamps/train" "$text" "${train_command[@]}" \
    --keep-last-epochs "$average" --max-update "$max_update" -- "${more[@]}"

step average "$work/stamps/average" "" \
    vaswani-average --dir "$work/checkpoints" --last "$average" --output "$work/checkpoints/average.pt"

user_dir=$root/vaswani_plugin
[[ $mode == dry-run ]] || user_dir=$(python -m vaswani_plugin)
# --results-path DIR makes the toolkit write DIR/generate-test.txt.
step translate "$work/stamps/translate" "" \
    fairseq-generate "$work/data/bin" --user-dir "$user_dir" \
    --task vaswani_translation --source-lang "$source_lang" --target-lang "$target_lang" \
    --path "$work/checkpoints/average.pt" --gen-subset test --max-tokens "$max_tokens" \
    --cpu --num-workers 0 --results-path "$work"

step score "$work/stamps/score" "" \
    vaswani-score --log "$work/generate-test.txt" --sentencepiece --src "${inputs[4]}" --ref "${inputs[5]}" \
    --samples 3 --json "$work/score.json"

step curves "$work/stamps/curves" "" \
    vaswani-curves "$work/logs/train.log" --labels "$arch" --output "$work/curves.png"

[[ $mode == run ]] || exit 0

# --- what came out -----------------------------------------------------------------------------------------------------

echo
if [[ $changed == no ]]; then
    cat "$work/logs/score.log"
    echo
fi
print_times
echo "learning curves: $work/curves.png"
