#!/usr/bin/env bash
# tests/bench/config.sh MCD BENCH: measures what a configuration costs, in ratios to two yardsticks of the same run, and writes
# a section of docs/benchmarks.md. ROUNDS (5) says how often; RESULTS keeps a copy of the figures; BENCH_IMAGES is a folder
# that images.sh made. With NO_DOCUMENT=1 the document stays. Needs root and 5 GB where BENCH_DIR (the cache folder) is.
#
# Yardsticks: L writes, fsyncs and renames the same 1,000 files in a plain loop; H reads and hashes them.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mcd=$(realpath "$1")
bench=$(realpath "$2")
rounds=${ROUNDS:-5}
[ "$(id -u)" -eq 0 ] || { echo "bench: a sysroot keeps owners and modes: run this as root" >&2; exit 1; }

images=${BENCH_IMAGES:-$("$here/images.sh")}
base=${BENCH_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/mcd/bench}
work=$(mktemp -d "$base/config.XXXXXX")
cleanup() {
    # libostree makes the root of every deployment immutable.
    chattr -f -i "$work"/*/ostree/deploy/*/deploy/* 2>/dev/null || :
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
results=$work/results.tsv
load_before=$(cut -d' ' -f1-3 /proc/loadavg)

measure() { # CASE COMMAND...
    local case=$1
    shift
    # What earlier runs left to write is not this one's to wait for.
    sync
    "$bench" measure "$results" "$case" config "$@" 2>>"$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
    [ -z "${RESULTS:-}" ] || cp "$results" "$RESULTS"
    tail -n 1 "$results" >&2
}

# CONFIG FILES UNITS CHANGED PLACE: a MachineConfig with so many files of 2 KB at PLACE, of which the first CHANGED are other ones.
"$bench" configs "$work"
sysroot=$work/sysroot
mkdir "$sysroot"
{
    ostree admin init-fs --modern "$sysroot"
    ostree admin os-init debian --sysroot="$sysroot"
    ostree config --repo="$sysroot/ostree/repo" set sysroot.bootloader none
    ostree pull-local --repo="$sysroot/ostree/repo" "$images/repo" bench/v1
    printf '[origin]\nrefspec=bench/v1\n' >"$sysroot.origin"
    ostree admin deploy --sysroot="$sysroot" --os=debian --origin-file="$sysroot.origin" --karg=root=LABEL=root bench/v1
} >>"$work/log" 2>&1
deployed() { readlink -f "$sysroot"/ostree/boot.*/debian/*/0 | head -n 1; }
prepare() { # CASE CONFIG
    measure "$1" "$mcd" apply "$work/$2.yaml" --until prepared --sysroot "$sysroot"
}
forget_prepared() { "$mcd" cancel --sysroot "$sysroot" >>"$work/log" 2>&1; "$mcd" cleanup --sysroot "$sysroot" >>"$work/log" 2>&1; }
commit() { "$mcd" apply --resume --sysroot "$sysroot" >>"$work/log" 2>&1; }
# The folder of a root, as the initramfs has it, with an unchanged /etc: what converge is to do again.
for round in $(seq "$rounds"); do
    echo "bench: round $round of $rounds, load $(cut -d' ' -f1-3 /proc/loadavg)" >&2
    measure L "$bench" loop "$work/loop-$round" 1000
    measure H "$bench" hash "$work/loop-$round"
    # Nothing of ours is there.
    prepare plan-layer etc
    forget_prepared
    prepare plan-layer-10000 etc-10000
    forget_prepared
done

prepare first etc
commit
for round in $(seq "$rounds"); do
    prepare second etc-10
    forget_prepared
    # One commit, laid down in /etc again and again: what libostree's merge did is undone before.
    root=$(deployed)
    rm -rf "$root/etc/bench" "$root/etc/mcd"
    measure converge-etc "$mcd" boot --root "$root"
    measure check-etc "$mcd" boot --root "$root"
done
# /var needs a root whose /var it is; a root without OSTree is converged by the same code.
for round in $(seq "$rounds"); do
    plain=$work/plain
    rm -rf "$plain"
    mkdir -p "$plain"/{etc,usr/lib/systemd/system,var/lib}
    cp -a "$(deployed)"/etc/{passwd,group} "$plain/etc"
    measure converge-var "$mcd" apply "$work/var.yaml" --root "$plain"
    measure converge-var-10 "$mcd" apply "$work/var-10.yaml" --root "$plain"
    measure check-var "$mcd" verify --root "$plain"
done
load_after=$(cut -d' ' -f1-3 /proc/loadavg)

[ -z "${NO_DOCUMENT:-}" ] || exit 0
cat >"$work/facts" <<EOM
Measured on $(date -u +%F), $rounds rounds; each figure is the median, the range in brackets.

* Machine: $(nproc) cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)), $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), $(findmnt -no FSTYPE -T "$work"), Linux $(uname -r). Load average before: $load_before, after: $load_after.
* Versions: mcd $("$mcd" --version | awk '{ print $2 }') ($(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)), libostree $(ostree --version | sed -n "s/^ Version: '\(.*\)'/\1/p").
* Tree: a Debian of $(sed -n 's/^files //p' "$images/about") files with Debian's SELinux policy.
EOM
"$bench" report-config "$results" "$work/facts" "$here/../../docs/benchmarks.md"
