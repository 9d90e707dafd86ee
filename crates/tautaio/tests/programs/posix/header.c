/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XBD, <aio.h>; XSH, sysconf. */
#include "rule.h"

#include <limits.h>

#define IS_OF_TYPE(member, type) (_Generic(((struct aiocb *)0)->member, type: 1, default: 0))

RULE(aio_h, members, "struct aiocb has its seven members, of their types.")
{
    _Static_assert(IS_OF_TYPE(aio_fildes, int), "");
    _Static_assert(IS_OF_TYPE(aio_offset, off_t), "");
    _Static_assert(IS_OF_TYPE(aio_buf, volatile void *), "");
    _Static_assert(IS_OF_TYPE(aio_nbytes, size_t), "");
    _Static_assert(IS_OF_TYPE(aio_reqprio, int), "");
    _Static_assert(IS_OF_TYPE(aio_sigevent, struct sigevent), "");
    _Static_assert(IS_OF_TYPE(aio_lio_opcode, int), "");
}

RULE(aio_h, constants,
     "The answers of aio_cancel differ from each other, and so do the operations and the modes of lists.")
{
    HOLDS(AIO_CANCELED != AIO_NOTCANCELED && AIO_NOTCANCELED != AIO_ALLDONE && AIO_ALLDONE != AIO_CANCELED);
    HOLDS(LIO_READ != LIO_WRITE && LIO_WRITE != LIO_NOP && LIO_NOP != LIO_READ);
    HOLDS(LIO_WAIT != LIO_NOWAIT);
}

RULE(aio_h, functions, "The eight functions are declared with their types.")
{
    int (*volatile submit[])(struct aiocb *) = {aio_read, aio_write};
    ssize_t (*volatile collect)(struct aiocb *) = aio_return;
    int (*volatile look)(const struct aiocb *) = aio_error;
    int (*volatile numbered[])(int, struct aiocb *) = {aio_fsync, aio_cancel};
    int (*volatile wait)(const struct aiocb *const[], int, const struct timespec *) = aio_suspend;
    int (*volatile list)(int, struct aiocb *const[restrict], int, struct sigevent *restrict) = lio_listio;

    HOLDS(submit[0] && submit[1] && collect && look && numbered[0] && numbered[1] && wait && list);
}

RULE(sysconf, option, "_SC_ASYNCHRONOUS_IO says that there is asynchronous I/O.")
{
    HOLDS(sysconf(_SC_ASYNCHRONOUS_IO) > 0);
}

RULE(sysconf, limits,
     "{AIO_MAX}, {AIO_LISTIO_MAX} and {AIO_PRIO_DELTA_MAX} are no less than POSIX's least values, or none.")
{
    errno = 0;
    long most = sysconf(_SC_AIO_MAX), of_list = sysconf(_SC_AIO_LISTIO_MAX);
    HOLDS(errno == 0);
    HOLDS(most == -1 || most >= _POSIX_AIO_MAX);
    HOLDS(of_list == -1 || of_list >= _POSIX_AIO_LISTIO_MAX);
    HOLDS(sysconf(_SC_AIO_PRIO_DELTA_MAX) >= 0);
}

RULE(sysconf, requests, "As many requests as {AIO_MAX} allows may be outstanding, here 2000.")
{
    enum { MANY = 2000 };
    static struct aiocb reads[MANY];
    static char bytes[MANY], text[MANY];
    int pair[2];
    long most = sysconf(_SC_AIO_MAX);

    HOLDS(most == -1 || most >= MANY);
    pipe_pair(pair);
    for (int index = 0; index < MANY; index++) {
        reads[index] = request(pair[0], &bytes[index], 1, 0);
        starts_read(&reads[index]);
    }
    HOLDS(in_progress(&reads[0]) && in_progress(&reads[MANY - 1]));
    HOLDS(write(pair[1], text, MANY) == MANY);
    for (int index = 0; index < MANY; index++)
        HOLDS(result_of(&reads[index]) == 1);
}

RULE(sysconf, list, "A list may be as long as {AIO_LISTIO_MAX} allows, here 2000.")
{
    enum { MANY = 2000 };
    static struct aiocb reads[MANY];
    static struct aiocb *list[MANY];
    static char bytes[MANY];
    int file = file_with("x", O_RDONLY);
    long most = sysconf(_SC_AIO_LISTIO_MAX);

    HOLDS(most == -1 || most >= MANY);
    for (int index = 0; index < MANY; index++) {
        reads[index] = request(file, &bytes[index], 1, 0);
        reads[index].aio_lio_opcode = LIO_READ;
        list[index] = &reads[index];
    }
    HOLDS(lio_listio(LIO_WAIT, list, MANY, NULL) == 0);
    for (int index = 0; index < MANY; index++)
        HOLDS(aio_return(&reads[index]) == 1 && bytes[index] == 'x');
}
