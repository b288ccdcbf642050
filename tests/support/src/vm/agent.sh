# shellcheck shell=bash
# Does in the guest what a story says. Comes in as a credential, talks over a port of virtio's.
# A request is one line, `NUMBER SCRIPT`, the answer `NUMBER STATUS STDOUT STDERR`; texts are base64.
port=/dev/virtio-ports/mcd.agent
work=/run/mcd-test
export HOME=/root NO_COLOR=1
mkdir -p "$work"
until [ -e "$port" ]; do sleep 0.2; done
exec 3<>"$port"
echo "hello $(cat /proc/sys/kernel/random/boot_id)" >&3
while :; do
    # The port reads as ended while nobody listens outside.
    read -r number script <&3 || { sleep 0.2; continue; }
    base64 -d <<<"$script" >"$work/script"
    status=0
    bash -e "$work/script" >"$work/stdout" 2>"$work/stderr" </dev/null 3>&- || status=$?
    echo "$number $status =$(base64 -w0 "$work/stdout") =$(base64 -w0 "$work/stderr")" >&3
done
