/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Not a test: what a message costs (docs/posix-aio.md). One thread at both ends of a socket pair;
 * the echo is by aio_read and aio_write. echo N prints the processor time of each of N messages. */
#include "try.h"

#include <sys/resource.h>

static void finish(struct aiocb *block)
{
    const struct aiocb *list[] = {block};

    while (aio_error(block) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    HOLDS(aio_return(block) == (ssize_t)block->aio_nbytes);
}

int main(int count, char **arguments)
{
    int pair[2], messages = count == 2 ? atoi(arguments[1]) : 1000;
    char in[32], out[32], peers[32] = {0};
    struct rusage used;

    stream_pair(pair);
    struct aiocb read_block = request(pair[0], in, sizeof in, 0), write_block = request(pair[0], out, sizeof out, 0);
    HOLDS(aio_read(&read_block) == 0);
    for (int message = 0; message < messages; message++) {
        HOLDS(write(pair[1], peers, sizeof peers) == sizeof peers);
        finish(&read_block);
        if (message > 0)
            finish(&write_block);
        HOLDS(aio_write(&write_block) == 0 && aio_read(&read_block) == 0);
        HOLDS(read(pair[1], peers, sizeof peers) == sizeof peers);
    }
    getrusage(RUSAGE_SELF, &used);
    double seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                     (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    printf("%.2f us a message\n", seconds * 1e6 / messages);
    fflush(NULL);
    _exit(0);
}
