#!/usr/bin/env bash
# tests/bench/run.sh MCD BENCH: measures MCD's import and pivot against ostree-ext's, turn by turn, and writes docs/benchmarks.md and .svg.
# ROUNDS (3) says how often; ONLY=CASES measures these only and writes no document; BENCH_IMAGES is a folder that images.sh
# made, for use as it is; RESULTS keeps a copy of the figures. Needs root and 15 GB where BENCH_DIR (the
# cache folder) is: nothing is deleted between runs, since ext4 makes files slowly for minutes after many were removed.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mcd=$(realpath "$1")
bench=$(realpath "$2")
rounds=${ROUNDS:-3}
only=${ONLY:-}
[ "$(id -u)" -eq 0 ] || { echo "bench: a sysroot keeps owners and modes: run this as root" >&2; exit 1; }

images=${BENCH_IMAGES:-$("$here/images.sh")}
oracle=$("$here/../oracle.sh")
base=${BENCH_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/mcd/bench}
work=$(mktemp -d "$base/run.XXXXXX")
# shellcheck source=tests/bench/serve.sh
. "$here/serve.sh"
cleanup() {
    stop_registry
    # libostree makes the root of every deployment immutable.
    chattr -f -i "$work"/*/ostree/deploy/*/deploy/* 2>/dev/null || :
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

results=$work/results.tsv
load_before=$(cut -d' ' -f1-3 /proc/loadavg)
start_registry "$images/registry" "$work"
os=$registry_host/os
insecure=--insecure-skip-tls-verification

wanted() { [ -z "$only" ] || [[ " $only " == *" $1 "* ]]; }
measure() { # CASE WHO COMMAND...
    # What earlier runs left to write is not this one's to wait for.
    sync
    "$bench" measure "$results" "$@" 2>>"$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
    [ -z "${RESULTS:-}" ] || cp "$results" "$RESULTS"
    tail -n 1 "$results" >&2
}
fresh() { # NAME: a sysroot with a tiny deployment; prints its path
    local sysroot=$work/$1
    mkdir "$sysroot"
    {
        ostree admin init-fs --modern "$sysroot"
        ostree admin os-init debian --sysroot="$sysroot"
        ostree config --repo="$sysroot/ostree/repo" set sysroot.bootloader none
        ostree pull-local --repo="$sysroot/ostree/repo" "$images/repo" bench/tiny
        printf '[origin]\nrefspec=bench/tiny\n' >"$sysroot.origin"
        ostree admin deploy --sysroot="$sysroot" --os=debian --origin-file="$sysroot.origin" --karg=root=LABEL=root bench/tiny
    } >>"$work/log" 2>&1
    echo "$sysroot"
}
digest() { skopeo inspect --raw --tls-verify=false "docker://$os:$1" | sha256sum | cut -d' ' -f1; }
pull() { # CASE WHO SYSROOT TAG-OR-@DIGEST
    case $4 in @*) local image=$os$4 ;; *) local image=$os:$4 ;; esac
    case $2 in
        mcd) measure "$1" mcd "$mcd" pull "$image" --sysroot "$3" $insecure ;;
        *) measure "$1" ostree-ext "$oracle" container image pull "$3/ostree/repo" "ostree-unverified-registry:$image" $insecure --quiet ;;
    esac
}
pivot() { # CASE WHO SYSROOT TAG
    case $2 in
        mcd) measure "$1" mcd "$mcd" pivot "$os:$4" --sysroot "$3" $insecure ;;
        *) measure "$1" ostree-ext "$oracle" container image deploy --sysroot "$3" --stateroot debian --imgref "ostree-unverified-registry:$os:$4" $insecure ;;
    esac
}

unpack_layers() { # FOLDER
    mkdir "$work/$1"
    # shellcheck disable=SC2016
    measure floor-layers tar bash -euc 'for layer in $(cat "$1"); do tar -C "$2" --xattrs --xattrs-include="*" -xpzf "$layer"; done; sync -f "$2"' \
        _ "$work/blobs" "$work/$1"
}
unpack_tree() { # FOLDER
    mkdir "$work/$1"
    # shellcheck disable=SC2016
    measure floor-tree tar bash -euc 'tar -C "$2" --xattrs --xattrs-include="*" -xpf "$1"; sync -f "$2"' _ "$work/tree.tar" "$work/$1"
}

manifest=$(skopeo inspect --raw --tls-verify=false "docker://$os:v1-gzip")
jq -r '.layers[].digest' <<<"$manifest" | while IFS=: read -r algorithm hex; do
    echo "$images/registry/docker/registry/v2/blobs/$algorithm/${hex:0:2}/$hex/data"
done >"$work/blobs"
jq -r --arg os "$registry_host/v2/os/blobs" '.layers[] | "url = \"http://\($os)/\(.digest)\"\noutput = /dev/null"' <<<"$manifest" >"$work/urls"
if wanted floor-tree; then
    ostree checkout --repo="$images/repo" -H bench/v1 "$work/tree"
    tar -C "$work/tree" --xattrs --xattrs-include='*' -cf "$work/tree.tar" .
fi
# Everything is read from memory: the network and the registry's disk are not what is compared.
cat "$work/urls" >/dev/null && find "$images/registry" -name data -exec cat {} + >/dev/null
v3=$(digest v3-gzip)

for round in $(seq "$rounds"); do
    echo "bench: round $round of $rounds, load $(cut -d' ' -f1-3 /proc/loadavg)" >&2
    for who in mcd ostree-ext; do
        if wanted cold-gzip; then
            sysroot=$(fresh "gzip-$who-$round")
            pull cold-gzip "$who" "$sysroot" v1-gzip
            if wanted one-file; then pull one-file "$who" "$sysroot" v2-gzip; fi
            if wanted third; then pull third "$who" "$sysroot" v3-gzip; fi
            if wanted nothing; then
                # ostree-ext takes the digest for another image; by the same tag it asks the registry and is done.
                if [ "$who" = mcd ]; then pull nothing mcd "$sysroot" "@sha256:$v3"; else pull nothing "$who" "$sysroot" v3-gzip; fi
            fi
            [ "$who" != mcd ] || last=$sysroot
        fi
    done
    for case in zstd single; do
        for who in mcd ostree-ext; do
            wanted "cold-$case" || continue
            pull "cold-$case" "$who" "$(fresh "$case-$who-$round")" "v1-$case"
        done
    done
    for who in mcd ostree-ext; do
        if wanted pivot-cold; then
            sysroot=$(fresh "pivot-$who-$round")
            pivot pivot-cold "$who" "$sysroot" v1-gzip
            if wanted pivot-one-file; then pivot pivot-one-file "$who" "$sysroot" v2-gzip; fi
        fi
    done
    if wanted deploy; then
        commit=$(ostree refs --repo="$last/ostree/repo" --list ostree/container/image | head -n 1)
        measure deploy ostree ostree admin deploy --sysroot="$last" --os=debian "$(ostree rev-parse --repo="$last/ostree/repo" "$commit")"
    fi
    if wanted floor-curl; then measure floor-curl curl curl -sfL -K "$work/urls"; fi
    if wanted floor-layers; then unpack_layers "layers-$round"; fi
    if wanted floor-tree; then unpack_tree "tree-$round"; fi
done
load_after=$(cut -d' ' -f1-3 /proc/loadavg)
if wanted nothing; then
    stop_registry
    for _ in 1 2 3 4 5; do
        measure nothing-offline mcd "$mcd" pull "$os@sha256:$v3" --sysroot "$last" $insecure
    done
fi

[ -z "$only" ] || exit 0
about() { sed -n "s/^$1 //p" "$images/about"; }
layers() { about "$1" | awk '{ printf "%s, %s MB", $1 == 1 ? "one layer" : $1 " layers, the largest of " $3 " MB", $2 }'; }
new() { about "$1-new" | awk '{ printf "%s layers, %s MB", $1, $2 }'; }
cat >"$work/facts" <<EOM
Measured on $(date -u +%F), $rounds rounds, turn by turn; each figure is the median, the range in brackets.

* Machine: $(nproc) cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)), $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), $(findmnt -no FSTYPE -T "$work"), Linux $(uname -r). Load average before: $load_before, after: $load_after.
* Versions: mcd $("$mcd" --version | awk '{ print $2 }') ($(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)), ostree-ext 0.15.3, libostree $(ostree --version | sed -n "s/^ Version: '\(.*\)'/\1/p"), skopeo $(skopeo --version | awk '{ print $3 }').
* Tree: a Debian of $(about files) files, $(about megabytes) MB, SELinux labels on each; repo of mode bare, fsync as by default, on the disk named above.
* Images: $(layers v1-gzip) (gzip); $(layers v1-zstd) (zstd); $(layers v1-single) (one gzip layer).
* One file changed: $(new v2-gzip) are new. A third changed: $(new v3-gzip) are new.
EOM
"$bench" report "$results" "$work/facts" "$here/../../docs/benchmarks.md" "$here/../../docs/benchmarks.svg"
