# shellcheck shell=bash
# Steps that are done once: what a script that sources this needs is "mode" (run, dry-run or status) and "work", the
# folder whose logs/ and stamps/ it fills.
# shellcheck disable=SC2154

stamps=()   # "name:stamp file" of every step so far, for the table at the end
changed=no  # whether a step was run, so that what was made from its old result has to be made anew

# step NAME STAMP KEY COMMAND...: run the command unless STAMP holds the same command and KEY; log, time and stamp it.
# With mode dry-run it prints the command, with mode status whether it is done.
step() {
    local name=$1 stamp=$2 key=$3 status=0 begin took
    shift 3
    stamps+=("$name:$stamp")
    if [[ $mode == dry-run ]]; then
        printf '%q ' "$@"
        echo
        return
    fi
    if [[ $changed == no && -f $stamp && $(sed 1d "$stamp") == "$* $key" ]]; then
        [[ $mode == status ]] && printf '%-10s done, %s s\n' "$name" "$(head -n 1 "$stamp")" || echo "== $name: done before"
        return
    fi
    changed=yes
    if [[ $mode == status ]]; then
        printf '%-10s to do\n' "$name"
        return
    fi
    echo "== $name"
    rm -f "$stamp"
    mkdir -p "$work/logs"
    begin=$SECONDS
    # Only a training's log is appended to, so that it keeps its curves when it resumes.
    [[ $name == train ]] || rm -f "$work/logs/$name.log"
    run_logged "$work/logs/$name.log" "$@" || status=$?
    took=$((SECONDS - begin))
    if [[ $status -eq 75 || $status -eq 130 || $status -eq 143 ]]; then
        echo "$(basename "$0"): stopped in step '$name' after $took s; the same command goes on" >&2
        exit "$status"
    elif [[ $status -ne 0 ]]; then
        die "step '$name' failed with status $status after $took s; its output is in $work/logs/$name.log"
    fi
    mkdir -p "$(dirname "$stamp")"
    printf '%s\n%s\n' "$took" "$* $key" >"$stamp"
}

# alone FOLDER: keeps a second run out as long as this one or a command that it started lives, where flock(1) is there.
alone() {
    [[ $mode == run && -n $(command -v flock) ]] || return 0
    mkdir -p "$1"
    exec 9>>"$1/.lock"
    flock --nonblock --conflict-exit-code 99 9 || [[ $? -ne 99 ]] || die "another $(basename "$0") is at work in $1"
}

# run_logged LOG COMMAND...: show the command's output and append it to LOG. A request to stop is handed on to the
# command, and what it still says is waited for.
run_logged() {
    local log=$1 status=0 child reader asked
    shift
    exec 3> >(trap '' INT TERM USR1; exec tee -a "$log")
    reader=$!
    "$@" >&3 2>&1 </dev/null 3>&- &
    child=$!
    exec 3>&-
    # Ctrl-C reaches no command in the background, so it becomes a SIGTERM, too.
    trap 'asked=yes; kill -TERM "$child" 2>/dev/null || true' INT TERM USR1
    while :; do
        asked=no status=0
        wait "$child" || status=$?
        [[ $asked == yes ]] || break
    done
    trap - INT TERM USR1
    wait "$reader" || true
    return "$status"
}

# guard_checkpoints FOLDER IDENTITY: keeps a training from going on with checkpoints that other settings or text made.
guard_checkpoints() {
    local folder=$1 identity=$2
    [[ $mode == run ]] || return 0
    if [[ -f $folder/settings && $(cat "$folder/settings") != "$identity" ]]; then
        die "$folder holds a training with other settings or other text; choose another --work or remove $work"
    fi
    mkdir -p "$folder"
    echo "$identity" >"$folder/settings"
}

# Prints how long each step took, when it was run.
print_times() {
    local entry took total=0
    printf '%-12s %8s\n' step seconds
    for entry in "${stamps[@]}"; do
        took=$(head -n 1 "${entry#*:}")
        total=$((total + took))
        printf '%-12s %8d\n' "${entry%%:*}" "$took"
    done
    printf '%-12s %8d\n' all "$total"
}
