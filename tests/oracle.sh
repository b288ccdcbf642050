#!/usr/bin/env bash
# tests/oracle.sh: builds the oracle (tests/oracle) once and prints the program's path.
# Writes only below the cache folder (${XDG_CACHE_HOME:-$HOME/.cache}/mcd). About four CPU minutes when cold.
set -euo pipefail

source=$(cd "$(dirname "$0")/oracle" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/mcd/oracle
key=$(cat "$source/Cargo.lock" "$source/Cargo.toml" "$source/src/main.rs" | sha256sum | cut -c1-16)
program=$cache/$key/mcd-oracle

if [ ! -x "$program" ]; then
    mkdir -p "$cache/$key"
    # Two callers at once: the second waits, and finds the program there.
    exec 9>"$cache/$key/lock"
    flock 9
    if [ ! -x "$program" ]; then
        # The target folder is beside, not inside, the key's: a new lock file rebuilds little.
        CARGO_TARGET_DIR=$cache/target nice -n 19 cargo build --quiet --release --locked \
            --manifest-path "$source/Cargo.toml" >&2
        cp "$cache/target/release/mcd-oracle" "$program.new"
        mv "$program.new" "$program"
    fi
fi
echo "$program"
