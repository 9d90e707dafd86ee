# `taut serve` on the peripheral's kernel, and then what else is wanted there: of two that need a module at once, BusyBox's
# modprobe tells the second one that it is there while it is still loading. What stands in braces is put in before.
{serving}
{beside}
# To the lab, which waits for it before it starts the other machine.
echo ready >/dev/ttyS3
wait $server
