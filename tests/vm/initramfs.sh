#!/usr/bin/env bash
# tests/vm/initramfs.sh REPO STAGE: makes the initramfs of the branch vm/base in REPO once more, with what STAGE adds to the tree
# (mcd and its dracut module), and puts it into STAGE. dracut is the tree's own. Needs root; writes to STAGE and a temporary folder.
set -euo pipefail

repo=$1
stage=$2
work=$(mktemp -d)
root=$work/root
# Beside the repo, so that it can be of hard links.
checkout=$(dirname "$repo")/checkout
cleanup() {
    findmnt -rno TARGET | grep "^$work/" | sort -r | xargs -r umount -l 2>/dev/null || :
    chattr -R -f -i "$work" 2>/dev/null || :
    rm -rf --one-file-system "$work" "$checkout"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir "$work/upper" "$work/work" "$root"
# Links to the repo's objects, which nothing may write to: the overlay keeps them as they are.
ostree checkout --repo="$repo" --require-hardlinks --fsync=false vm/base "$checkout"
mount -t overlay overlay -o "lowerdir=$checkout,upperdir=$work/upper,workdir=$work/work" "$root"
cp -a "$stage/." "$root/"
mkdir -p "$root/etc"
mount --bind "$root/usr/etc" "$root/etc"
for mount in proc sys dev; do mount --rbind --make-rslave "/$mount" "$root/$mount"; done
for mount in run tmp var; do mount -t tmpfs tmpfs "$root/$mount"; done
mkdir "$root/var/tmp"

version=$(basename "$(ls -d "$root"/usr/lib/modules/*)")
# The tree's list of modules is complete (tests/vm/tree.sh), so new ones must be named: a folder is NUMBERSNAME.
add=()
for module in "$stage"/usr/lib/dracut/modules.d/*; do
    module=$(basename "$module")
    add+=(--add "${module#"${module%%[!0-9]*}"}")
done
if ! chroot "$root" dracut "${add[@]}" --quiet --force --kver "$version" "/usr/lib/modules/$version/initramfs.img" >"$work/log" 2>&1; then
    tail -n 30 "$work/log" >&2
    echo "vm initramfs: dracut failed" >&2
    exit 1
fi
install -D -m 0600 "$root/usr/lib/modules/$version/initramfs.img" "$stage/usr/lib/modules/$version/initramfs.img"
