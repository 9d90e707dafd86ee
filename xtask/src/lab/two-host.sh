# A kernel that has one side's controller at /dev/hvc0; the beginning of other scripts. What stands in braces is put in before.
pipes=$(mktemp -d)
mkfifo $pipes/host
taut air host /dev/hvc0 --scenario {radio} --json >$pipes/host &
host=$!
exec 3<$pipes/host
if ! read -r ready <&3; then
    wait $host
    exit
fi
