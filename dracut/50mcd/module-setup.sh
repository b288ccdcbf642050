#!/bin/bash
# shellcheck disable=SC2154 # dracut sets what is not set here
# dracut's side of mcd: the hook that counts boots, goes back, and lays the configuration of the deployment
# down before its root starts. dracut(8) sources this file and calls the functions.

# Wherever OSTree's own module is used, which mounts the deployment.
check() {
    [[ -x $moddir/mcd ]] || return 1
    return 0
}

depends() {
    echo systemd ostree
}

# /boot is mounted when a deployment is left. What it is on is not known here.
installkernel() {
    hostonly='' instmods -s ext4 xfs btrfs vfat nls_cp437 nls_ascii nls_iso8859-1
}

install() {
    # The small program beside this file: it needs no libostree.
    inst_binary "$moddir/mcd" /usr/bin/mcd
    # What it starts when it goes back.
    inst_multiple chroot mount systemctl
    inst_simple "$moddir/mcd-initramfs.service" "$systemdsystemunitdir/mcd-initramfs.service"
    # Wanted, not required: a hook that fails must not end in an emergency shell.
    $SYSTEMCTL -q --root "$initdir" add-wants initrd.target mcd-initramfs.service
}
