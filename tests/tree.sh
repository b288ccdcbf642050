#!/usr/bin/env bash
# tests/tree.sh [PACKAGE...]: makes, once, a repo with two versions of a real Debian tree in OSTree's shape and prints its path.
# Branches mcd/v1 and mcd/v2; more PACKAGEs make another tree. Needs root, mmdebstrap and ostree (tests/setup.sh demo).
# Writes only below the cache folder (${XDG_CACHE_HOME:-$HOME/.cache}/mcd); reads this machine's own apt sources, Debian's only.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/mcd/tree
mkdir -p "$cache"

sources=/etc/apt/sources.list.d/debian.sources
[ -f "$sources" ] || sources=/etc/apt/sources.list
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
case $(dpkg --print-architecture) in
    amd64) kernel=linux-image-cloud-amd64 ;;
    arm64) kernel=linux-image-cloud-arm64 ;;
    *) kernel=linux-image-$(dpkg --print-architecture) ;;
esac
packages=("$kernel" tiny-initramfs "$@")

# What makes the tree: this script, the packages, and the state of Debian's archive as apt last saw it.
key() {
    cat "$here/tree.sh"
    printf '%s\n' "${packages[@]}"
    grep -ls '^Origin: Debian' /var/lib/apt/lists/*Release | sort | xargs -r grep -h '^Date:' || :
}
name=$(key | sha256sum | cut -c1-16)
repo=$cache/$name/repo

give_if_complete() {
    [ -e "$cache/$name/complete" ] || return 0
    touch "$cache/$name/complete"
    echo "$repo"
    exit 0
}
give_if_complete
# Two callers at once: the second waits, and finds the tree there.
mkdir -p "$cache/$name"
exec 9>"$cache/$name/lock"
flock 9
give_if_complete

work=$(mktemp -d "$cache/work.XXXXXX")
cleanup() {
    findmnt -rno TARGET | grep "^$work/" | sort -r | xargs -r umount -l 2>/dev/null || :
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
# Trees of older days, unless somebody used one since yesterday.
find "$cache" -mindepth 2 -maxdepth 2 -name complete -mtime +1 -printf '%h\0' | xargs -0r rm -rf --one-file-system

echo "tree: making a Debian $suite tree with $kernel (once)" >&2
root=$work/root
log=$work/log
# No documentation, no sync of every file: the tree is thrown away after the commit.
if ! TMPDIR=$work mmdebstrap --quiet --format=directory --variant=minbase --mode=root \
    --dpkgopt='force-unsafe-io' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --include="$(IFS=,; echo "${packages[*]}")" \
    "$suite" "$root" "$sources" >"$log" 2>&1 9>&-; then
    tail -n 30 "$log" >&2
    echo "tree: mmdebstrap failed" >&2
    exit 1
fi

version=$(basename "$(ls -d "$root"/usr/lib/modules/*)")
modules=$root/usr/lib/modules/$version
mv "$root/boot/vmlinuz-$version" "$modules/vmlinuz"
mv "$root/boot/initrd.img-$version" "$modules/initramfs.img"
mv "$root/boot/config-$version" "$modules/config"

# OSTree's shape: content in /usr, defaults of /etc in /usr/etc, the rest made at boot or links into /var.
mkdir -p "$root/usr/lib/sysimage" "$root/usr/lib/tmpfiles.d"
rm -f "$root"/{vmlinuz,initrd.img}{,.old}
mv "$root/var/lib/dpkg" "$root/usr/lib/sysimage/dpkg"
rm -f "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/etc/apt/sources.list.d/* "$root"/etc/{hostname,resolv.conf,machine-id,.pwd.lock}
find "${root:?}"/{boot,dev,proc,run,sys,tmp,var} -mindepth 1 -delete
rm -rf "${root:?}"/{home,root,opt,srv,mnt,media,usr/local}
mv "$root/etc" "$root/usr/etc"
mkdir -p "$root/sysroot" "$root/usr/etc/containers"
echo '{ "default": [ { "type": "insecureAcceptAnything" } ] }' >"$root/usr/etc/containers/policy.json"
{
    for link in home opt srv mnt usr/local:usrlocal root:roothome; do
        target=${link#*:}
        path=${link%%:*}
        case $path in */*) up=../ ;; *) up= ;; esac
        ln -s "${up}var/$target" "$root/$path"
        echo "d /var/$target 0755 root root -"
    done
    echo "L /var/lib/dpkg - - - - ../../usr/lib/sysimage/dpkg"
} >"$root/usr/lib/tmpfiles.d/ostree-var.conf"
ln -s run/media "$root/media"
ln -s sysroot/ostree "$root/ostree"

label() { # VERSION: what os-release says
    sed -e "s/^PRETTY_NAME=.*/PRETTY_NAME=\"Debian tree $1\"/" -e '/^VERSION=/d' -e '/^OSTREE_VERSION=/d' "$root/usr/lib/os-release"
    echo "VERSION=\"12 (tree $1)\""
    echo "OSTREE_VERSION=\"$1\""
}
commit() { # VERSION ARGUMENT...
    local tree=$1
    shift
    ostree commit --repo="$work/repo" --branch="mcd/$tree" --subject="Debian tree $tree" --add-metadata-string=version="$tree" \
        --add-metadata-string=ostree.linux="$version" --add-metadata=ostree.bootable=true "$@" >/dev/null
}
ostree init --repo="$work/repo" --mode=bare
ostree config --repo="$work/repo" set core.fsync false

delta=$work/delta
mkdir -p "$delta"/usr/{lib,bin,share/mcd,etc}
label v2 >"$delta/usr/lib/os-release"
printf '#!/bin/sh\necho "a program that came with v2"\n' >"$delta/usr/bin/new-in-v2"
chmod 755 "$delta/usr/bin/new-in-v2"
head -c 200000 /dev/urandom | base64 >"$delta/usr/share/mcd/changed"
echo 'welcome to v2' >"$delta/usr/etc/motd"

mkdir -p "$root/usr/share/mcd"
head -c 200000 /dev/urandom | base64 >"$root/usr/share/mcd/changed"
label v1 >"$root/usr/lib/os-release.new"
mv "$root/usr/lib/os-release.new" "$root/usr/lib/os-release"
commit v1 --consume "$root"
commit v2 --tree=ref=mcd/v1 --tree=dir="$delta"

rm -rf "$repo"
mv "$work/repo" "$repo"
touch "$cache/$name/complete"
echo "$repo"
