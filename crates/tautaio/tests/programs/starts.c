/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A library that has each process of a program use AIO, to be preloaded before libtautaio: a program that only closes and
 * forks would never start it. The read is cancelled by closing its descriptor. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void use(void)
{
    static struct aiocb block;
    static char byte;
    int pair[2];

    if (pipe(pair) != 0)
        return;
    memset(&block, 0, sizeof block);
    block.aio_fildes = pair[0];
    block.aio_buf = &byte;
    block.aio_nbytes = 1;
    block.aio_sigevent.sigev_notify = SIGEV_NONE;
    if (aio_read(&block) != 0 || close(pair[0]) != 0 || aio_error(&block) != ECANCELED)
        abort();
    close(pair[1]);
}

__attribute__((constructor)) static void use_in_all(void)
{
    use();
    pthread_atfork(NULL, NULL, use);
}
