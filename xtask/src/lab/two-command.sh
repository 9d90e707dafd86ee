# The central's kernel: its controller is at /dev/hvc0. What stands in braces is put in before.
pipes=$(mktemp -d)
mkfifo $pipes/host
taut air host /dev/hvc0 --scenario {radio} --json >$pipes/host &
host=$!
exec 3<$pipes/host
if ! read -r ready <&3; then
    wait $host
    exit
fi
code=0
{command} || code=$?
kill -INT $host
wait $host || true
exit $code
