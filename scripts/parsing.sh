#!/usr/bin/env bash
# Constituency parsing (section 6.3 of the paper) from treebank files to the bracketing F1: prepare, train, average,
# parse, score. It only composes commands. A step that succeeded is not done again; an interrupted training goes on.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: bash scripts/parsing.sh --wsj DIR [options] [-- OPTIONS OF fairseq-train]
       bash scripts/parsing.sh --train FILE --valid FILE --test FILE [options] [-- OPTIONS OF fairseq-train]

The environment in which the project is installed must be active.

  --wsj DIR             the Wall Street Journal of the Penn Treebank: folders 00 to 24 of .mrg files; trains on sections
                        02 to 21, chooses on 22, tests on 23
  --train FILE          any Penn style trees instead; each of the three may be given several times, and may be a folder
  --valid FILE          of .mrg files
  --test FILE
  --words KIND          dictionary (whole words) or pieces (SentencePiece BPE) (default: dictionary)
  --vocab-size N        most words, or pieces (default: 16000 as in the paper, or 2000)
  --tags                keep part-of-speech tags in the linear trees, and
  --joined              give each word one symbol with the brackets around it, (S(NP*XX instead of (S (NP XX, and
  --subtrees            train on every constituent of the training trees too: these are for treebanks of a few thousand
                        trees, and none is in the paper
  --min-count N         with a dictionary: rarer words are unknown (default: 2)
  --arch NAME           architecture (default: vaswani_parsing; vaswani_tiny suits a CPU and a few thousand trees)
  --dropout X           (default: the architecture's)
  --lr X                peak learning rate (default: as the paper's formula has it)
  --warmup-updates N    (default: 4000)
  --batch N             target symbols of an update (default: 25000)
  --max-update N        updates (default: 20000)
  --average N           mean of the last N epoch checkpoints (default: 5)
  --beam N              (default: the paper's 21)
  --seed N              (default: 1)
  --gpus N | --cpu      how many GPUs of this machine, or none (default: all)
  --work DIR            everything that is made (default: parsing-work)
  --status              say which steps are done, do none
  --dry-run             print the commands, run none

The paper trains 4 layers of width 1024 and gets F1 91.3 on section 23 from the Wall Street Journal alone; it gives
neither the number of updates nor the chosen dropout and rate.
USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"
# shellcheck source=scripts/steps.sh
source "$root/scripts/steps.sh"

mode=run wsj='' train=() valid=() test=() prepare_options=() arch=vaswani_parsing dropout='' lr='' warmup=4000
batch=25000 max_update=20000 average=5 beam=21 seed=1 device=() cpu=no work=parsing-work toolkit_options=()

while [[ $# -gt 0 ]]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --status) mode=status ;;
        --dry-run) mode=dry-run ;;
        --cpu) cpu=yes device=(--cpu) ;;
        --tags | --joined | --subtrees) prepare_options+=("$1") ;;
        --) shift; toolkit_options=("$@"); break ;;
        *)
            [[ $# -ge 2 ]] || die "$1: unknown option, or its value is missing (--help lists the options)"
            [[ -n $2 ]] || die "$1: its value is empty"
            case $1 in
                --wsj) wsj=$2 ;;
                --train) train+=("$2") ;;
                --valid) valid+=("$2") ;;
                --test) test+=("$2") ;;
                --words | --vocab-size | --min-count) prepare_options+=("$1" "$2") ;;
                --arch) arch=$2 ;;
                --dropout) dropout=$2 ;;
                --lr) lr=$2 ;;
                --warmup-updates) warmup=$2 ;;
                --batch) batch=$2 ;;
                --max-update) max_update=$2 ;;
                --average) average=$2 ;;
                --beam) beam=$2 ;;
                --seed) seed=$2 ;;
                --gpus) device=(--gpus "$2") ;;
                --work) work=$2 ;;
                *) die "unknown option $1 (--help lists the options)" ;;
            esac
            shift
            ;;
    esac
    shift
done

if [[ -n $wsj ]]; then
    [[ ${#train[@]} -eq 0 && ${#valid[@]} -eq 0 && ${#test[@]} -eq 0 ]] ||
        die "--wsj names all three parts; give it without --train, --valid and --test"
    for number in $(seq -w 2 21); do train+=("$wsj/$number"); done
    valid=("$wsj/22") test=("$wsj/23")
fi
[[ ${#train[@]} -gt 0 && ${#valid[@]} -gt 0 && ${#test[@]} -gt 0 ]] ||
    die "give --wsj DIR, or --train FILE, --valid FILE and --test FILE (--help lists the options)"
for path in "${train[@]}" "${valid[@]}" "${test[@]}"; do
    [[ -e $path ]] || die "$path: no such file or folder"
done
# What would fail only after hours.
for entry in "--max-update $max_update" "--average $average" "--batch $batch" "--beam $beam" "--seed $seed"; do
    [[ $entry =~ ^[^\ ]+\ [1-9][0-9]*$ ]] || die "${entry%% *} must be a whole number above 0, not '${entry#* }'"
done
[[ $mode == dry-run || -n $(command -v vaswani-prepare) ]] ||
    die "vaswani-prepare is not there; activate the environment (README, Install)"
[[ $work == /* ]] || work=$PWD/$work
[[ $mode != run ]] || mkdir -p "$work"

# --- the steps ---------------------------------------------------------------------------------------------------------

text=''
[[ $mode == dry-run ]] ||
    text=$(find "${train[@]}" "${valid[@]}" "${test[@]}" -type f -print0 | sort -z | xargs -0 cat | cksum)
prepare=(vaswani-prepare trees --train "${train[@]}" --valid "${valid[@]}" --test "${test[@]}"
    ${prepare_options[@]+"${prepare_options[@]}"} --dest "$work/data")
step prepare "$work/stamps/prepare" "$text" "${prepare[@]}"

more=(--task vaswani_parsing --tie-embeddings decoder --warmup-updates "$warmup")
[[ -z $lr ]] || more+=(--lr "$lr")
[[ -z $dropout ]] || more+=(--dropout "$dropout")
more+=(${toolkit_options[@]+"${toolkit_options[@]}"})
guard_checkpoints "$work/checkpoints" "$arch seed $seed batch $batch ${more[*]} ${prepare[*]} $text"
step train "$work/stamps/train" "$text" \
    bash "$root/scripts/train.sh" "$work/data/bin" --save-dir "$work/checkpoints" --arch "$arch" \
    --source-lang words --target-lang trees --target-batch "$batch" --max-update "$max_update" --seed "$seed" \
    --keep-last-epochs "$average" ${device[@]+"${device[@]}"} -- "${more[@]}"

step average "$work/stamps/average" "" \
    vaswani-average --dir "$work/checkpoints" --last "$average" --output "$work/average.pt"

user_dir=$root/vaswani_plugin
[[ $mode == dry-run ]] || user_dir=$(python -m vaswani_plugin)
parse=(fairseq-generate "$work/data/bin" --user-dir "$user_dir" --task vaswani_parsing
    --source-lang words --target-lang trees --path "$work/average.pt" --gen-subset test
    --beam "$beam" --max-tokens 4096 --results-path "$work")
[[ $cpu == no ]] || parse+=(--cpu --num-workers 0)
step parse "$work/stamps/parse" "" "${parse[@]}"

step baseline "$work/stamps/baseline" "" \
    vaswani-parseval --gold "$work/data/gold/test.ptb" --baseline right --json "$work/baseline.json"
step score "$work/stamps/score" "" \
    vaswani-parseval --gold "$work/data/gold/test.ptb" --log "$work/generate-test.txt" \
    --trees "$work/test.parsed.ptb" --json "$work/score.json"

[[ $mode == run ]] || exit 0
echo
[[ $changed == yes ]] || cat "$work/logs/score.log"
print_times
