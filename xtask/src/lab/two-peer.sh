# The peripheral's kernel: its controller is at /dev/hvc0. `taut serve` beside what else is wanted there.
# What stands in braces is put in before.
pipes=$(mktemp -d)
mkfifo $pipes/host $pipes/server
taut air host /dev/hvc0 --scenario {radio} --json >$pipes/host &
host=$!
exec 3<$pipes/host
if ! read -r ready <&3; then
    wait $host
    exit
fi
{beside}
taut serve {serve} >$pipes/server &
server=$!
exec 4<$pipes/server
if ! read -r listening <&4; then
    echo "the peer does not listen" >&2
    exit 125
fi
# To the lab, which waits for it before it starts the other machine.
echo ready >/dev/ttyS3
wait $server
