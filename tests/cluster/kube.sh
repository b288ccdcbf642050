#!/usr/bin/env bash
# tests/cluster/kube.sh: builds, once, a Kubernetes control plane and kubectl as one program, and prints its path.
# Five minutes on two free cores; later calls find it. Needs Go (1.26 or later) and the Go module proxy the first time.
# Writes only below the cache folder (${XDG_CACHE_HOME:-$HOME/.cache}/mcd/kube) and Go's own module cache.
set -euo pipefail

source=$(cd "$(dirname "$0")/kube" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/mcd/kube
mkdir -p "$cache"

version=$(sed -n 's,^[[:space:]]*k8s.io/kubernetes v,,p' "$source/go.mod")
key=$(cat "$source/go.mod" "$source/go.sum" "$source/main.go" | sha256sum | cut -c1-16)
program=$cache/$key/kube

give_if_complete() {
    [ -x "$program" ] || return 0
    touch "$cache/$key"
    echo "$program"
    exit 0
}
give_if_complete

command -v go >/dev/null || {
    echo "kube: there is no Go here, which the control plane of the cluster tests is built with: install Go 1.26 or later" >&2
    exit 1
}
# Two callers at once: the second waits, and finds it there.
exec 9>"$cache/lock"
flock 9
give_if_complete

# What was compiled is kept beside it: an edit of main.go then costs a link. Of another Kubernetes it would only grow.
if [ "$(cat "$cache/build/of" 2>/dev/null)" != "$version" ]; then
    rm -rf "$cache/build"
    mkdir -p "$cache/build"
    echo "$version" >"$cache/build/of"
fi

echo "kube: building Kubernetes $version's control plane (once, some minutes)" >&2
name=k8s.io/component-base/version
IFS=. read -r major minor _ <<<"$version"
# Without a version the scheduler and kubectl do not start: they read a placeholder.
flags="-s -w -X $name.gitVersion=v$version -X $name.gitMajor=$major -X $name.gitMinor=$minor"
mkdir -p "$cache/$key"
(cd "$source" && GOCACHE=$cache/build GOFLAGS='-buildvcs=false -mod=readonly' go build -trimpath -ldflags "$flags" -o "$program.new" .) >&2
mv "$program.new" "$program"

# Programs of older sources, unless somebody used one since yesterday.
find "$cache" -mindepth 1 -maxdepth 1 -type d -name '????????????????' -mtime +1 ! -name "$key" -print0 | xargs -0r rm -rf
echo "$program"
