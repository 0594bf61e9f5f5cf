#!/usr/bin/env bash
# The paper's translation experiments from the raw downloads to the scores: prepare, train, average, translate, score.
# It only composes commands. A step that succeeded leaves a stamp and is not done again; an interrupted one goes on.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: bash scripts/wmt14.sh --pair en-de|en-fr [options] [-- OPTIONS OF fairseq-train]

The paper's data, model and settings; the environment in which the project is installed must be active.

  --pair NAME           en-de or en-fr
  --size NAME           base (100,000 updates, mean of the last 5) or big (300,000, of the last 20) (default: base)
  --variant NAME        paper, or ott2018: batches of 459k tokens, rate 1e-3, float16 (default: paper)
  --work DIR            everything that is made (default: wmt14-work/PAIR)
  --status              say which steps are done, do none
  --dry-run             print the commands, run none

Data (vaswani-prepare wmt14 --help tells more):
  --mirror URL          get the archives there
  --from-dir DIR        take the archives from a folder
  --facts FILE          sizes, digests and line counts of other archives than the published ones, or: unchecked
  --subwords NAME       sentencepiece or subword-nmt (default: sentencepiece)
  --vocab-size N        (default: 37000 for en-de, 32000 for en-fr)
  --sample-lines N      lines to learn the vocabulary from (default: 5000000)

Training (scripts/train.sh --help tells more):
  --gpus N | --cpu      how many GPUs of this machine, or none (default: all)
  --fp16 | --bf16       half precision
  --max-tokens N        tokens that a GPU takes at once (default: what meets the batch)
  --target-batch N      tokens of an update (default: the paper's 25000)
  --max-update N        updates
  --save-every N        updates between checkpoints that are averaged (default: about 10 minutes of the paper's machine)
  --average N           mean of the last N of them
  --seed N              (default: 1)
USAGE
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/common.sh
source "$root/scripts/common.sh"
# shellcheck source=scripts/steps.sh
source "$root/scripts/steps.sh"

mode=run pair='' size=base variant=paper work='' subwords=sentencepiece max_update='' save_every='' average='' seed=1
prepare_options=() train_options=() toolkit_options=() cpu=no half='' target_batch='' max_tokens=''

while [[ $# -gt 0 ]]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --status) mode=status ;;
        --dry-run) mode=dry-run ;;
        --cpu) cpu=yes ;;
        --fp16 | --bf16) half=$1 ;;
        --) shift; toolkit_options=("$@"); break ;;
        *)
            [[ $# -ge 2 ]] || die "$1: unknown option, or its value is missing (--help lists the options)"
            [[ -n $2 ]] || die "$1: its value is empty"
            case $1 in
                --pair) pair=$2 ;;
                --size) size=$2 ;;
                --variant) variant=$2 ;;
                --work) work=$2 ;;
                --subwords) subwords=$2 ;;
                --mirror | --from-dir | --facts | --vocab-size | --sample-lines) prepare_options+=("$1" "$2") ;;
                --gpus) train_options+=("$1" "$2") ;;
                --max-tokens) max_tokens=$2 ;;
                --target-batch) target_batch=$2 ;;
                --max-update) max_update=$2 ;;
                --save-every) save_every=$2 ;;
                --average) average=$2 ;;
                --seed) seed=$2 ;;
                *) die "unknown option $1 (--help lists the options)" ;;
            esac
            shift
            ;;
    esac
    shift
done

# --- the settings ------------------------------------------------------------------------------------------------------

[[ $pair == en-de || $pair == en-fr ]] || die "--pair must be en-de or en-fr, not '$pair'"
[[ $subwords == sentencepiece || $subwords == subword-nmt ]] ||
    die "--subwords must be sentencepiece or subword-nmt, not '$subwords'"
source_lang=${pair%-*} target_lang=${pair#*-}

# The paper wrote checkpoints every 10 minutes: 1,500 updates of base, 600 of big. 1,250 meets base's last update.
case $size in
    base) arch=vaswani_base paper_updates=100000 paper_every=1250 paper_average=5 ;;
    big) arch=vaswani_big paper_updates=300000 paper_every=600 paper_average=20 ;;
    *) die "--size must be base or big, not '$size'" ;;
esac
[[ $size-$pair != big-en-fr ]] || arch=vaswani_big_en_fr
case $variant in
    paper) ;;
    ott2018)
        # Ott et al. 2018 (section 4, and the toolkit's recipe): 128 GPUs with 3,584 tokens each, twice the usual rate.
        # Their 8 GPUs took 16 portions; 20,000 updates see as much text as the paper's 300,000.
        [[ $size == big ]] || die "--variant ott2018 is a setting of --size big"
        : "${target_batch:=458752}" "${max_tokens:=3584}"
        paper_updates=20000 paper_every=500 paper_average=10
        [[ -n $half || $cpu == yes ]] || half=--fp16
        toolkit_options=(--lr 1e-3 ${toolkit_options[@]+"${toolkit_options[@]}"})
        ;;
    *) die "--variant must be paper or ott2018, not '$variant'" ;;
esac
: "${max_update:=$paper_updates}" "${save_every:=$paper_every}" "${average:=$paper_average}"

# What would fail only after days.
for entry in "--max-update $max_update" "--save-every $save_every" "--average $average" "--seed $seed"; do
    [[ $entry =~ ^[^\ ]+\ [1-9][0-9]*$ ]] || die "${entry%% *} must be a whole number above 0, not '${entry#* }'"
done
[[ $((save_every * average)) -le $max_update ]] ||
    die "--average $average checkpoints --save-every $save_every updates are more than --max-update $max_update"
[[ $mode == dry-run || -n $(command -v vaswani-prepare) ]] || die "vaswani-prepare is not there; activate the environment (README, Install)"

: "${work:=wmt14-work/$pair}"
[[ $work == /* ]] || work=$PWD/$work
data=$work/data
name=$size
[[ $variant == paper ]] || name+=-$variant
[[ $subwords == sentencepiece ]] || { data+=-$subwords; name+=-$subwords; }
run=$work/$name
text_stamps=$work/stamps work=$run  # logs and stamps of a training lie with it, those of the data are common

# --- the steps ---------------------------------------------------------------------------------------------------------

alone "$run"
prepare=(vaswani-prepare wmt14 --pair "$pair" --dest "$data" --subwords "$subwords"
    ${prepare_options[@]+"${prepare_options[@]}"})
step prepare "$text_stamps/prepare-$subwords" "" "${prepare[@]}"

[[ $cpu == no ]] || train_options+=(--cpu)
[[ -z $half ]] || train_options+=("$half")
[[ -z $target_batch ]] || train_options+=(--target-batch "$target_batch")
[[ -z $max_tokens ]] || train_options+=(--max-tokens "$max_tokens")
# How many GPUs share the batch, and for how long, may change when a training goes on; what it learns may not.
guard_checkpoints "$run/checkpoints" "$arch seed $seed batch ${target_batch:-25000} ${toolkit_options[*]-} ${prepare[*]}"
train=(bash "$root/scripts/train.sh" "$data/bin" --save-dir "$run/checkpoints" --arch "$arch"
    --source-lang "$source_lang" --target-lang "$target_lang" --max-update "$max_update" --seed "$seed"
    --save-interval-updates "$save_every" --keep-interval-updates "$average" ${train_options[@]+"${train_options[@]}"})
toolkit_options=(-- --no-epoch-checkpoints ${toolkit_options[@]+"${toolkit_options[@]}"})
step train "$run/stamps/train" "" "${train[@]}" "${toolkit_options[@]}"
if [[ $mode == dry-run ]]; then
    "${train[@]}" --dry-run "${toolkit_options[@]}" || echo "(--gpus N shows the toolkit's command where there are none)"
elif [[ $mode == status && ! -f $run/stamps/train && -d $run/checkpoints ]]; then
    find "$run/checkpoints" -name 'checkpoint_*_*.pt' | sed 's/.*_\([0-9]*\)\.pt$/\1/' | sort -n | tail -n 1 |
        sed "s/^/           newest checkpoint to average: update /; s/\$/ of $max_update/"
fi

step average "$run/stamps/average" "" \
    vaswani-average --dir "$run/checkpoints" --last "$average" --by update --output "$run/average.pt"

user_dir=$root/vaswani_plugin
[[ $mode == dry-run ]] || user_dir=$(python -m vaswani_plugin)
translate=(fairseq-generate "$data/bin" --user-dir "$user_dir" --task vaswani_translation
    --source-lang "$source_lang" --target-lang "$target_lang" --path "$run/average.pt" --gen-subset test
    --max-tokens 4096 --results-path "$run")
[[ $cpu == no ]] || translate+=(--cpu --num-workers 0)
step translate "$run/stamps/translate" "" "${translate[@]}"

score=(vaswani-score --log "$run/generate-test.txt" "--$subwords" --src "$data/raw/test.$source_lang"
    --ref "$data/raw/test.$target_lang" --lang "$target_lang" --tokenised --samples 3 --json "$run/score.json")
[[ $target_lang != de ]] || score+=(--compound-split)
step score "$run/stamps/score" "" "${score[@]}"

[[ $mode == run ]] || exit 0
echo
[[ $changed == yes ]] || cat "$run/logs/score.log"
print_times
