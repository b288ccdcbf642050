#!/usr/bin/env bash
# tests/bench/images.sh: makes, once, the images that `make bench` pulls, and prints the folder that holds them.
# Needs root. Writes only below the cache folder (${XDG_CACHE_HOME:-$HOME/.cache}/mcd); about ten minutes and 6 GB when cold.
#
# The folder: repo (branches bench/v1, v2, v3 and bench/tiny), registry (a docker-registry's data: os:v1-gzip, v1-zstd,
# v1-single, v2-gzip, v3-gzip) and about (what they are, for the report).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/mcd/bench
# About what a node's system has: an init, a container engine, large static programs, a compiler, a policy.
packages=(systemd linux-headers-cloud-amd64 gcc g++ git python3 golang-go podman selinux-policy-default vim perl
    nftables openssh-server clang strace rsync gdb)
[ "$(dpkg --print-architecture)" = amd64 ] || packages[1]=git

tree=$("$here/../tree.sh" "${packages[@]}")
oracle=$("$here/../oracle.sh")
key=$({ cat "$here"/{images.sh,group.awk,objects.awk,serve.sh}; echo "$tree" "$oracle"; } | sha256sum | cut -c1-16)
out=$cache/$key

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ -e "$out/complete" ]; then
    touch "$out/complete"
    echo "$out"
    exit 0
fi
work=$(mktemp -d "$cache/work.XXXXXX")
# shellcheck source=tests/bench/serve.sh
. "$here/serve.sh"
cleanup() {
    stop_registry
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
find "$cache" -mindepth 2 -maxdepth 2 -name complete -mtime +1 -printf '%h\0' | xargs -0r rm -rf --one-file-system

repo=$work/repo
ostree init --repo="$repo" --mode=bare
ostree config --repo="$repo" set core.fsync false
linux=$(ostree --repo="$tree" show --print-metadata-key=ostree.linux mcd/v1 | tr -d "'")
commit() { # BRANCH ARGUMENT...
    local name=$1
    shift
    ostree commit --repo="$repo" --branch="bench/$name" --subject="bench $name" --add-metadata-string=version="$name" \
        --add-metadata-string=ostree.linux="$linux" --add-metadata=ostree.bootable=true "$@" >/dev/null
}

echo "bench: labelling the tree" >&2
ostree pull-local --repo="$repo" "$tree" mcd/v1 >/dev/null
# Real hosts have SELinux labels on every file. The policy's own tools are not run in the tree: libostree starts semodule at
# each deployment, which would measure that instead.
extra=$work/extra
mkdir -p "$extra"/usr/{etc/selinux,sbin}
printf 'SELINUX=permissive\nSELINUXTYPE=default\n' >"$extra/usr/etc/selinux/config"
printf '#!/bin/sh\nexit 0\n' >"$extra/usr/sbin/semodule"
chmod 755 "$extra/usr/sbin/semodule"
commit plain --tree=ref=mcd/v1 --tree=dir="$extra"
ostree checkout --repo="$repo" -H bench/plain "$work/root"
commit v1 --tree=dir="$work/root" --selinux-policy="$work/root"
rm -rf "$work/root"
ostree refs --repo="$repo" --delete bench/plain
ostree refs --repo="$repo" --delete mcd/v1
ostree prune --repo="$repo" --refs-only --depth=0 >/dev/null
ostree checkout --repo="$repo" -H bench/v1 "$work/root"

echo "bench: grouping the tree's objects by package" >&2
# PATH<tab>PACKAGE of every packaged file, at the place where the tree has it.
for list in "$work"/root/usr/lib/sysimage/dpkg/info/*.list; do
    package=$(basename "$list" .list)
    sed "s|\$|\t${package%%:*}|" "$list"
done | sed -E 's,^/(bin|sbin|lib|lib32|lib64|libx32)/,/usr/\1/,; s,^/etc/,/usr/etc/,; s,^/boot/(vmlinuz|config)-([^\t]*),/usr/lib/modules/\2/\1,' \
    >"$work/owners"
list() { ostree ls --repo="$repo" -R -C "bench/$1" /; }
list v1 >"$work/v1.ls"
# GROUP<tab>PACKAGE, then PATH<tab>GROUP of every owned file.
awk -f "$here/group.awk" "$work/owners" "$work/v1.ls" >"$work/groups"

# OBJECT<tab>GROUP of every file and link, then as the oracle takes it.
contentmeta() { # VERSION
    list "$1" | awk -f "$here/objects.awk" "$work/groups" - | sort -u -k1,1 | jq -Rn '
        [inputs | split("\t") | {key: .[0], value: .[1]}] as $objects
        | {version: 1, layers: ($objects | map({key: .value, value}) | unique | from_entries), mapping: ($objects | from_entries)}' \
        >"$work/$1.json"
}

# Takes copies of files of v1, changes them by a byte at the end, and lays them over v1, attributes and all.
change() { # VERSION <PATHS
    local delta=$work/delta-$1 path
    mkdir "$delta"
    sed 's,^/,,' | tee "$work/$1.paths" | awk -F/ '{ p = ""; for (i = 1; i < NF; i++) { p = p (i > 1 ? "/" : "") $i; if (!(p in seen)) { seen[p] = 1; print p } } print }' \
        | tar -C "$work/root" --xattrs --xattrs-include='*' --no-recursion -cf - -T - | tar -C "$delta" --xattrs --xattrs-include='*' -xpf -
    while read -r path; do printf '\n' >>"$delta/$path"; done <"$work/$1.paths"
    commit "$1" --tree=ref=bench/v1 --tree=dir="$delta"
}
echo "bench: making two later versions" >&2
change v2 <<<"/usr/bin/sed"
# A third: the kernel, and every third group of packages; of each a fourth of the files.
cut -f2 "$work/groups" | sort -u | awk 'NR % 3 == 1' >"$work/thirds"
kernel=$(awk -F'\t' '$1 ~ /^\/usr\/lib\/modules\/.*\/vmlinuz$/ { print $2 }' "$work/groups")
awk -F'\t' -v kernel="$kernel" 'NR == FNR { third[$1] = 1; next } $2 == kernel || ($2 in third) && n[$2]++ % 4 == 0 { print $1 }' \
    "$work/thirds" "$work/groups" >"$work/changed"
awk 'NR == FNR { want[$1] = 1; next } $1 ~ /^-/ && ($NF in want) { print $NF }' "$work/changed" "$work/v1.ls" | grep -v ' ' | change v3

# What a sysroot starts with, so that a deployment is before the one that is measured.
tiny=$work/tiny
modules=$tiny/usr/lib/modules/$linux
mkdir -p "$modules" "$tiny"/usr/{bin,etc} "$tiny"/{boot,dev,proc,run,sys,sysroot,tmp,var}
cp "$work/root/usr/lib/modules/$linux"/{vmlinuz,initramfs.img} "$modules"
cp "$work/root/usr/lib/os-release" "$tiny/usr/lib/os-release"
ln -s sysroot/ostree "$tiny/ostree"
commit tiny --tree=dir="$tiny" --owner-uid=0 --owner-gid=0

start_registry "$work/registry" "$work"
echo "bench: writing the images" >&2
encapsulate() { # VERSION NAME ARGUMENT...
    local version=$1 name=$2
    shift 2
    "$oracle" container encapsulate --repo="$repo" "$@" "bench/$version" "oci:$work/$name" >/dev/null
}
push() { # SOURCE TAG ARGUMENT...
    local source=$1 tag=$2
    shift 2
    skopeo copy --quiet --insecure-policy --dest-tls-verify=false "$@" "$source" "docker://$registry_host/os:$tag"
}
manifest() { skopeo inspect --raw --tls-verify=false "docker://$registry_host/os:$1"; }
jobs=()
for version in v1 v2 v3; do
    contentmeta "$version"
    encapsulate "$version" "$version-gzip" --contentmeta="$work/$version.json" &
    jobs+=($!)
done
encapsulate v1 v1-single &
jobs+=($!)
for job in "${jobs[@]}"; do wait "$job"; done
# One after the other: the registry loses a blob that two clients send at the same time.
for name in v1-gzip v2-gzip v3-gzip v1-single; do push "oci:$work/$name" "$name"; done
# Skopeo sends what is compressed as it is, and takes a blob that the registry has in any compression: by way of a new folder.
skopeo copy --quiet --insecure-policy --dest-decompress "oci:$work/v1-gzip" "dir:$work/v1-plain"
skopeo copy --quiet --insecure-policy --dest-compress-format zstd "dir:$work/v1-plain" "oci:$work/v1-zstd"
push "oci:$work/v1-zstd" v1-zstd --preserve-digests
manifest v1-zstd | jq -e 'all(.layers[].mediaType; endswith("+zstd"))' >/dev/null || { echo "bench: skopeo made no zstd layers" >&2; exit 1; }

layers() { manifest "$1" | jq -r '.layers[].digest' | sort; }
files=$(grep -c '^-' "$work/v1.ls")
bytes=$(awk '/^-/ { sum += $4 } END { printf "%d", sum / 1e6 }' "$work/v1.ls")
{
    echo "files $files"
    echo "megabytes $bytes"
    for tag in v1-gzip v1-zstd v1-single v2-gzip v3-gzip; do
        manifest "$tag" | jq -r --arg tag "$tag" '"\($tag) \(.layers | length) \([.layers[].size] | add / 1e6 | floor) \([.layers[].size] | max / 1e6 | floor) \(.layers[0].mediaType)"'
    done
    for tag in v2-gzip v3-gzip; do
        echo "$tag-new $(comm -13 <(layers v1-gzip) <(layers "$tag") | wc -l) $(comm -13 <(layers v1-gzip) <(layers "$tag") \
            | grep -Ff - <(manifest "$tag" | jq -r '.layers[] | "\(.digest) \(.size)"') | awk '{ sum += $2 } END { printf "%d", sum / 1e6 }')"
    done
} >"$work/about"
cat "$work/about" >&2
[ "$files" -ge 30000 ] && [ "$bytes" -ge 900 ] || echo "bench: the tree is smaller than the benchmark wants" >&2

stop_registry
mkdir "$out.new"
mv "$work"/{repo,registry,about} "$out.new"
rm -rf "$out"
mv "$out.new" "$out"
touch "$out/complete"
echo "$out"
