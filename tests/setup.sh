#!/usr/bin/env bash
# tests/setup.sh build|test|check|demo|bench|vm|cluster: installs, by apt, the Debian packages that this needs and that are missing.
# Prints a line only if there is something to install. Needs root and the network for that; nothing otherwise.
set -euo pipefail

build=(gcc libc6-dev pkg-config libostree-dev libssl-dev)
# What mcd itself starts or reads: skopeo, bubblewrap (libostree runs it at a deployment), a policy.json.
run=(ostree skopeo bubblewrap golang-github-containers-common e2fsprogs util-linux)
demo=(docker-registry mmdebstrap)
bench=(libzstd-dev jq curl)
test=(libzstd-dev strace systemd-container rpm gnupg jq procps perl-base)
check=(shellcheck systemd rpm)
vm=(qemu-system-x86)
# The rest of the control plane is built: tests/cluster/kube.sh.
cluster=(etcd-server openssl)

case "${1:-}" in
    build) wanted=("${build[@]}") ;;
    check) wanted=("${build[@]}" "${check[@]}") ;;
    demo) wanted=("${build[@]}" "${run[@]}" "${demo[@]}") ;;
    bench) wanted=("${build[@]}" "${run[@]}" "${demo[@]}" "${bench[@]}") ;;
    vm) wanted=("${build[@]}" "${run[@]}" "${demo[@]}" "${test[@]}" "${vm[@]}") ;;
    cluster) wanted=("${build[@]}" "${run[@]}" "${demo[@]}" "${test[@]}" "${cluster[@]}") ;;
    test) wanted=("${build[@]}" "${run[@]}" "${demo[@]}" "${test[@]}" "${check[@]}") ;;
    *)
        sed -n '2,3s/^# //p' "$0" >&2
        exit 2
        ;;
esac

if ! command -v apt-get >/dev/null; then
    # Another distribution names them otherwise; CONTRIBUTING.md has Fedora's names.
    echo "setup: no apt-get here; what '$1' needs must be installed by hand (Debian's names: ${wanted[*]})" >&2
    exit 0
fi

# Packages that were never here make dpkg-query fail; it still tells of the others.
installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null) || :
missing=()
for package in "${wanted[@]}"; do
    grep -qx "$package installed" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "setup: missing packages: ${missing[*]}" >&2
    echo "setup: install them, or run this as root" >&2
    exit 1
fi

echo "setup: installing ${missing[*]}" >&2
log=$(mktemp)
guard=/usr/sbin/policy-rc.d
own_guard=
cleanup() {
    rm -f "$log"
    [ -z "$own_guard" ] || rm -f "$guard"
}
trap cleanup EXIT
# A registry is wanted for tests, not as a service of this machine.
if [ ! -e "$guard" ]; then
    own_guard=yes
    printf '#!/bin/sh\nexit 101\n' >"$guard"
    chmod 755 "$guard"
fi

# Another apt may be at work: wait for its locks. `update` does not wait for the one of its lists, so it is tried again.
try() {
    for _ in 1 2 3 4 5 6; do
        if DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=550 "$@" >>"$log" 2>&1 </dev/null; then
            return 0
        fi
        grep -q 'Could not get lock' "$log" || return 1
        sleep 10
    done
    return 1
}

# An emulator that is years old costs a quarter more time and has hung at boot: a newer one, where the
# distribution has it as a backport. Its source is this machine's own, added for this one call.
backport() { # PACKAGE
    local release lists
    release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")-backports
    lists=$(mktemp -d)
    mkdir -p "$lists/sources" "$lists/state/partial"
    awk -v RS= -v release="$release" '/^Types: deb/ && !done { done = 1
        gsub(/Suites:[^\n]*/, "Suites: " release); print }' /etc/apt/sources.list.d/debian.sources >"$lists/sources/backports.sources"
    cp /etc/apt/sources.list.d/debian.sources "$lists/sources/"
    local own=(-o "Dir::Etc::SourceParts=$lists/sources" -o "Dir::State::Lists=$lists/state")
    local result=0
    try "${own[@]}" update && try "${own[@]}" install -y --no-install-recommends -t "$release" "$1" || result=1
    rm -rf "$lists"
    return "$result"
}

if [[ " ${missing[*]} " == *" qemu-system-x86 "* ]] && [ -f /etc/apt/sources.list.d/debian.sources ]; then
    backport qemu-system-x86 || echo "setup: no backport of qemu-system-x86: taking the distribution's" >&2
fi

if ! { try update && try install -y --no-install-recommends "${missing[@]}"; }; then
    tail -n 30 "$log" >&2
    echo "setup: apt-get could not install ${missing[*]}" >&2
    exit 1
fi
