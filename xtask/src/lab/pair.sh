# Two virtual Bluetooth controllers, `taut serve` on the peripheral's adapter, and a command on the central's.
# What stands in braces is put in before.
pipes=$(mktemp -d)
mkfifo $pipes/radio
taut air attach {attach} --json >$pipes/radio &
radio=$!
exec 3<$pipes/radio
if ! read -r ready <&3; then
    wait $radio
    exit
fi
{serving}
code=0
{command} || code=$?
# The radio's last words: what it has done, and how late it was.
kill -INT $server
wait $server || true
kill -INT $radio
if read -r words <&3; then echo "radio: $words" >&2; fi
wait $radio || true
exit $code
