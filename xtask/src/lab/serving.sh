# Has `taut serve` listen; a part of other scripts. What stands in braces is put in before.
mkfifo $pipes/server
taut serve {serve} >$pipes/server &
server=$!
exec 4<$pipes/server
if ! read -r listening <&4; then
    echo "the peer does not listen" >&2
    exit 125
fi
