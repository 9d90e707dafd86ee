# The command on the central's kernel. What stands in braces is put in before.
code=0
{command} || code=$?
kill -INT $host
wait $host || true
exit $code
