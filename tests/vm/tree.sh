#!/usr/bin/env bash
# tests/vm/tree.sh: makes, once, what the machines of tests/vm run beneath mcd, and prints its folder: a repo with the branch vm/base.
# A Debian tree in OSTree's shape with a kernel, systemd, OSTree, skopeo and an initramfs of dracut's that finds OSTree's root.
# Needs root, mmdebstrap and ostree (tests/setup.sh vm). Writes only below ${XDG_CACHE_HOME:-$HOME/.cache}/mcd/vm;
# reads this machine's own apt sources, Debian's only.
set -euo pipefail

# The oldest whose systemd takes credentials from the machine's firmware and has a libostree of today.
suite=trixie
kernel=linux-image-cloud-amd64
packages=(
    "$kernel" systemd systemd-sysv dbus udev kmod dracut
    ostree ostree-boot skopeo bubblewrap ca-certificates
    e2fsprogs iproute2 passwd login procps util-linux zstd
)
# What a virtual machine of qemu's has, and what the boot hook may need before the root is there.
drivers='virtio_pci virtio_blk virtio_console virtio_net ext4 crc32c_generic xfs overlay i6300esb'

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/mcd/vm/tree
mkdir -p "$cache"

sources=/etc/apt/sources.list.d/debian.sources
[ -f "$sources" ] || sources=/etc/apt/sources.list
# The mirror that this machine uses for Debian itself: the first address in its sources.
mirror=$(grep -v '^#' "$sources" | grep -oE '(https?|file|copy)://?[^ ]+' | head -n 1)
[ -n "$mirror" ] || { echo "vm tree: no mirror in $sources" >&2; exit 1; }

# What makes the tree: this script, and the week. The archive of a stable suite changes little in a week.
key() {
    cat "$here/tree.sh"
    date -u +%G-%V
}
name=$(key | sha256sum | cut -c1-16)
folder=$cache/$name

give_if_complete() {
    [ -e "$folder/complete" ] || return 0
    touch "$folder/complete"
    echo "$folder"
    exit 0
}
give_if_complete
# Two callers at once: the second waits, and finds the tree there.
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
give_if_complete

work=$(mktemp -d "$cache/work.XXXXXX")
root=$work/root
cleanup() {
    findmnt -rno TARGET | grep "^$work/" | sort -r | xargs -r umount -l 2>/dev/null || :
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
# Trees of older weeks, unless somebody used one since yesterday, and what killed runs left.
find "$cache" -mindepth 2 -maxdepth 2 -name complete -mtime +1 -printf '%h\0' | xargs -0r rm -rf --one-file-system
find "$cache" -mindepth 1 -maxdepth 1 -name 'work.*' -mtime +1 -print0 | xargs -0r rm -rf --one-file-system

started=$SECONDS
say() { echo "vm tree: $1 ($((SECONDS - started)) s)" >&2; }
say "making a Debian $suite tree with $kernel, once"
log=$folder/log
# The kernel's package would have dracut make an initramfs for this machine: ours is made below.
# shellcheck disable=SC2016
no_initramfs='mkdir -p "$1/etc/kernel/postinst.d" && ln -s /bin/true "$1/etc/kernel/postinst.d/dracut"'
if ! TMPDIR=$work mmdebstrap --verbose --format=directory --variant=minbase --mode=root \
    --setup-hook="$no_initramfs" --dpkgopt='path-exclude=/etc/kernel/*.d/*' \
    --dpkgopt='force-unsafe-io' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --include="$(IFS=,; echo "${packages[*]}")" \
    "$suite" "$root" "$mirror" >"$log" 2>&1 9>&-; then
    tail -n 30 "$log" >&2
    echo "vm tree: mmdebstrap failed" >&2
    exit 1
fi
say "the packages are there"

version=$(basename "$(ls -d "$root"/usr/lib/modules/*)")
modules=$root/usr/lib/modules/$version
mv "$root/boot/vmlinuz-$version" "$modules/vmlinuz"
# Emulated, unpacking costs more than reading.
find "$modules" -name '*.ko.xz' -exec xz -d {} +
rm -rf "$modules"/kernel/{sound,drivers/{gpu,infiniband,media,net/ethernet,net/wireless,scsi,usb}}
chroot "$root" depmod "$version"
rm -rf "${root:?}"/usr/share/{zoneinfo,i18n} "$root/usr/lib/udev/hwdb.d"

# dracut looks at the devices and file systems of the machine that it runs on, even when told not to care.
for mount in proc sys dev; do mount --rbind --make-rslave "/$mount" "$root/$mount"; done
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/usr/lib/ostree"
printf '[sysroot]\nreadonly = true\n' >"$root/usr/lib/ostree/prepare-root.conf"
cat >"$root/usr/lib/dracut/dracut.conf.d/50-mcd-vm.conf" <<END
hostonly="no"
reproducible="yes"
compress="zstd -3"
dracutmodules+=" base systemd systemd-initrd systemd-udevd dracut-systemd ostree fs-lib rootfs-block shutdown "
drivers+=" $drivers "
END
if ! chroot "$root" dracut --quiet --force --kver "$version" "/usr/lib/modules/$version/initramfs.img" >>"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "vm tree: dracut failed" >&2
    exit 1
fi
umount -l "$root"/{run,proc,sys,dev}
say "the initramfs is there"

# OSTree's shape: content in /usr, defaults of /etc in /usr/etc, the rest made at boot or links into /var.
mkdir -p "$root/usr/lib/sysimage" "$root/usr/lib/tmpfiles.d"
rm -rf "$root"/{vmlinuz,initrd.img}{,.old} "$root/var/lib/dpkg"
rm -f "$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/etc/{hostname,resolv.conf,machine-id,.pwd.lock}
rm -rf "${root:?}"/etc/apt/sources.list*
find "${root:?}"/{boot,dev,proc,run,sys,tmp,var} -mindepth 1 -delete
rm -rf "${root:?}"/{home,root,opt,srv,mnt,media,usr/local}
mkdir -p "$root/etc/containers"
echo '{ "default": [ { "type": "insecureAcceptAnything" } ] }' >"$root/etc/containers/policy.json"
mv "$root/etc" "$root/usr/etc"
mkdir -p "$root/sysroot"
{
    for link in home opt srv mnt usr/local:usrlocal root:roothome; do
        target=${link#*:}
        path=${link%%:*}
        case $path in */*) up=../ ;; *) up= ;; esac
        ln -s "${up}var/$target" "$root/$path"
        echo "d /var/$target 0755 root root -"
    done
} >"$root/usr/lib/tmpfiles.d/ostree-var.conf"
ln -s run/media "$root/media"
ln -s sysroot/ostree "$root/ostree"

ostree init --repo="$work/repo" --mode=bare
ostree config --repo="$work/repo" set core.fsync false
ostree commit --repo="$work/repo" --branch=vm/base --subject="Debian $suite with $kernel" \
    --add-metadata-string=version=base --add-metadata-string=ostree.linux="$version" --add-metadata=ostree.bootable=true \
    --consume "$root" >/dev/null
rm -rf "$folder/repo"
mv "$work/repo" "$folder/repo"
touch "$folder/complete"
say "done"
echo "$folder"
