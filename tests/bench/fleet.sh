#!/usr/bin/env bash
# tests/bench/fleet.sh BENCH COUNTS [write]: daemons of fleets of that many nodes against a real API server; with
# `write` the tables and the picture of docs/fleet.* are made anew. Touches target/, /tmp, the cache folder, docs/fleet.*.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bench=$1 counts=$2 write=${3:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
load_before=$(cut -d' ' -f1-3 /proc/loadavg)
MCD_FLEET=$counts MCD_FLEET_RESULTS=$work/results "${CARGO:-cargo}" test --test cluster -- fleet::measure --ignored --nocapture
[ -n "$write" ] || exit 0
cat >"$work/facts" <<EOM
Measured on $(date -u +%F), $(nproc) cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)), $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo); API server, etcd, controller and all daemons (unoptimised) on the same machine. Load average before: $load_before, after: $(cut -d' ' -f1-3 /proc/loadavg).
EOM
"$bench" report-fleet "$work/results" "$work/facts" "$here/../../docs/fleet.md" "$here/../../docs/fleet.svg"
