#!/usr/bin/env bash
# units.sh MCD: the units as systemd reads them, in a root that holds what `make install` puts there.
# Touches only a temporary folder.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# Of the program of the initramfs only the place counts here.
make --no-print-directory install DESTDIR="$root" BINARY="$binary" INITRAMFS_BINARY=/dev/null >/dev/null
# systemd's own units, for the targets that ours name.
mkdir -p "$root/usr/lib/systemd/system"
cp -an /lib/systemd/system/. "$root/usr/lib/systemd/system/"
# What the OS has in any case.
cp /usr/bin/true "$root/usr/bin/true"

cp "$root"/usr/lib/dracut/modules.d/50mcd/*.service "$root/usr/lib/systemd/system/"

units=("$root"/usr/lib/systemd/system/{mcd,machine-config-daemon}-*.service)
# verify ends with 0 although it warns (an unknown key, a bad path): any word about ours is a failure.
said=$(systemd-analyze verify --root="$root" --man=no "${units[@]##*/}" 2>&1) || failed=1
if [ -n "${failed:-}" ] || grep -E "mcd-|machine-config-daemon-" <<<"$said"; then
    printf '%s\n' "$said" >&2
    exit 1
fi
printf 'unit ok: %s\n' "${units[@]##*/}"
