# `taut serve` on the peripheral's kernel, beside what else is wanted there. What stands in braces is put in before.
{beside}
{serving}
# To the lab, which waits for it before it starts the other machine.
echo ready >/dev/ttyS3
wait $server
