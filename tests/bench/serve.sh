# shellcheck shell=bash
# For tests/bench: a docker-registry on the loopback. Sets registry_host.

registry_pid=
registry_host=

start_registry() { # DATA WORK
    local port=$((20000 + RANDOM % 20000))
    while ss -Hltn "sport = :$port" | grep -q .; do port=$((port + 1)); done
    registry_host=127.0.0.1:$port
    cat >"$2/registry.yml" <<YML
version: 0.1
log: { level: error, accesslog: { disabled: true } }
storage: { filesystem: { rootdirectory: $1 } }
http: { addr: "$registry_host" }
YML
    setpriv --pdeathsig TERM docker-registry serve "$2/registry.yml" >"$2/registry.log" 2>&1 9>&- &
    registry_pid=$!
    for _ in $(seq 200); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    cat "$2/registry.log" >&2
    echo "bench: docker-registry does not start" >&2
    return 1
}

stop_registry() {
    [ -z "$registry_pid" ] || kill "$registry_pid" 2>/dev/null || :
    registry_pid=
}
