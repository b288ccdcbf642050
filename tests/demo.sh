#!/usr/bin/env bash
# tests/demo.sh [MCD]: the story of an update, on real parts: a Debian tree, a registry, a sysroot. Each command is printed before its output.
# Needs root. Writes to a temporary folder, which it removes, and to the cache folder (tests/tree.sh).
# Shows the program MCD, with mkimage beside it; without an argument, what was built last.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}
# The program built last, of either profile.
newest() { # shellcheck disable=SC2012
    { ls -t "$target/release/$1" "$target/debug/$1" 2>/dev/null || :; } | head -n 1
}
mcd=${1:-$(newest mcd)}
mkimage=$(dirname "$mcd")/mkimage
if [ ! -x "$mcd" ] || [ ! -x "$mkimage" ]; then
    echo "demo: mcd and mkimage must be built first: make build" >&2
    exit 1
fi
[ "$(id -u)" -eq 0 ] || { echo "demo: a sysroot keeps owners and modes: run this as root" >&2; exit 1; }

tree=$("$here/tree.sh")
work=$(mktemp -d "${TMPDIR:-/tmp}/mcd-demo.XXXXXX")
registry=
cleanup() {
    [ -z "$registry" ] || kill "$registry" 2>/dev/null || :
    # libostree makes the root of every deployment immutable.
    chattr -R -f -i "$work" 2>/dev/null || :
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
ln -s "$(realpath "$mcd")" "$work/mcd"
ln -s "$(realpath "$mkimage")" "$work/mkimage"
PATH=$work:$PATH
cd "$work"

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
plain() { printf '\n# %s\n' "$*"; }
[ -t 1 ] || say() { plain "$@"; }
show() {
    printf '$ %s\n' "$*"
    "$@"
}
# The same, for a command that ends with the code that is named first.
expect() {
    local wanted=$1 code=0
    shift
    show "$@" || code=$?
    printf '$ echo $?\n%s\n' "$code"
    [ "$code" -eq "$wanted" ] || { echo "demo: expected exit code $wanted" >&2; exit 1; }
}

say "A host as an installer leaves it: an OSTree sysroot with version 1 of a small Debian."
show mkdir host
show ostree admin init-fs --modern host
show ostree admin os-init debian --sysroot=host
show ostree config --repo=host/ostree/repo set sysroot.bootloader none
show ostree pull-local --repo=host/ostree/repo "$tree" mcd/v1
printf '[origin]\nrefspec=mcd/v1\n' >origin
show ostree admin deploy --sysroot=host --os=debian --origin-file=origin --karg=root=LABEL=root --karg=quiet mcd/v1

say "Two versions of the system as OS images, the second as the first but for a few files."
show mkimage --repo "$tree" --commit mcd/v1 --chunks 8 --out images:v1
show mkimage --repo "$tree" --commit mcd/v2 --chunks 8 --out images:v2

say "A registry on the loopback serves them."
port=$((20000 + RANDOM % 20000))
while ss -Hltn "sport = :$port" 2>/dev/null | grep -q .; do port=$((port + 1)); done
cat >registry.yml <<EOF
version: 0.1
log: { level: error, accesslog: { disabled: true } }
storage: { filesystem: { rootdirectory: $work/registry } }
http: { addr: "127.0.0.1:$port" }
EOF
printf '$ %s\n' "docker-registry serve registry.yml &"
setpriv --pdeathsig TERM docker-registry serve registry.yml >registry.log 2>&1 &
registry=$!
os=127.0.0.1:$port/os
up=
for _ in $(seq 100); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then up=yes; break; fi
    sleep 0.1
done
[ -n "$up" ] || { cat registry.log >&2; exit 1; }
for version in v1 v2; do
    show skopeo copy --quiet --insecure-policy --preserve-digests --dest-tls-verify=false "oci:images:$version" "docker://$os:$version"
done

# The registry speaks plain HTTP. A real one has a certificate, and needs no such flag.
insecure=--insecure-skip-tls-verification

say "Move the host to version 1 from the registry. Its kernel arguments come along."
show mcd pivot "$os:v1" --sysroot host $insecure

say "Version 2, with one more kernel argument. Only what changed is fetched; image, arguments and boot entry switch as one."
show mcd pivot "$os:v2" --karg-append mitigations=auto --sysroot host $insecure

say "What the next boot starts, and what it can go back to."
show mcd status --sysroot host

say "Go back: image and arguments together."
show mcd rollback --sysroot host
show mcd status --sysroot host

say "And forward again: everything is there, nothing is fetched."
show mcd pivot "$os:v2" --karg-append mitigations=auto --sysroot host $insecure

say "Once more: there is nothing to do, and a script can tell (exit code 77)."
expect 77 mcd pivot "$os:v2" --sysroot host $insecure --unchanged-exit-77

say "Configuration: a MachineConfig with a file, a program, a timer and a kernel argument. First a look at it, without a host."
cp "$here/../docs/examples/50-time.yaml" .
show mcd validate 50-time.yaml

say "What it would change, and what each change needs (exit code 5: something differs)."
expect 5 mcd diff 50-time.yaml --sysroot host

say "Image, arguments, files and units become one commit, and one boot entry."
show mcd apply 50-time.yaml --sysroot host
show mcd status --sysroot host

say "Is the machine as it was told to be? What goes to /var is laid down by the first boot; this host never boots, so it is put right by hand."
expect 5 mcd verify --sysroot host
show mcd verify --repair --sysroot host

say "Another image: the configuration comes along."
show mcd pivot "$os:v1" --sysroot host $insecure
expect 77 mcd apply 50-time.yaml --sysroot host --unchanged-exit-77

say "Stop managing: the image's own files come back."
show mcd forget --remove --sysroot host

say "Who did what."
show mcd history --sysroot host

say "The boot loader's entries, as OSTree has them."
mapfile -t entries < <(printf '%s\n' host/boot/loader/entries/*.conf | sort -r)
show grep -h -e ^title -e ^options "${entries[@]}"

say "Done. Everything was made in a temporary folder, which goes now."
