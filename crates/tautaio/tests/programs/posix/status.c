/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH, aio_error and aio_return. */
#include "rule.h"

RULE(aio_error, in_progress, "Until the operation is complete it gives EINPROGRESS, as often as it is asked.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    for (int index = 0; index < 1000; index++)
        HOLDS(aio_error(&block) == EINPROGRESS);
    HOLDS(write(pair[1], "x", 1) == 1);
    COMES(aio_error(&block) == 0);
}

RULE(aio_error, success, "Of an operation that succeeded it gives 0.")
{
    char byte;
    int file = file_with("x", O_RDWR);
    struct aiocb blocks[] = {request(file, &byte, 1, 0), request(file, "y", 1, 1), request(file, NULL, 0, 0)};

    HOLDS(aio_read(&blocks[0]) == 0 && aio_write(&blocks[1]) == 0 && aio_fsync(O_SYNC, &blocks[2]) == 0);
    for (int index = 0; index < 3; index++) {
        HOLDS(done_within(&blocks[index], patience()));
        HOLDS(aio_error(&blocks[index]) == 0);
    }
}

RULE(aio_error, failure, "Of an operation that failed it gives what errno would be after read(2) or write(2).")
{
    int bad_read[] = {open(".", O_RDONLY), open("/proc/self/mem", O_RDONLY)};
    char byte;

    for (int index = 0; index < 2; index++) {
        struct aiocb block = request(bad_read[index], &byte, 1, 0);
        errno = 0;
        HOLDS(pread(bad_read[index], &byte, 1, 0) == -1);
        int expected = errno, call = aio_read(&block);
        HOLDS(error_of(call, &block) == expected);
    }
    int full = open("/dev/full", O_WRONLY);
    struct aiocb block = request(full, "x", 1, 0);
    HOLDS(write(full, "x", 1) == -1);
    int expected = errno, call = aio_write(&block);
    HOLDS(error_of(call, &block) == expected);
}

RULE(aio_error, before_collected, "It may be asked again and again until aio_return is called.")
{
    char byte;
    struct aiocb block = request(file_with("x", O_RDONLY), &byte, 1, 0);

    starts_read(&block);
    HOLDS(done_within(&block, patience()));
    for (int index = 0; index < 10; index++)
        HOLDS(aio_error(&block) == 0);
    HOLDS(aio_return(&block) == 1);
}

RULE(aio_return, of_read, "Of a read it gives what read(2) would: the bytes that were read.")
{
    char bytes[9];
    struct aiocb block = request(file_with("0123", O_RDONLY), bytes, 9, 1);

    starts_read(&block);
    HOLDS(done_within(&block, patience()) && aio_return(&block) == 3);
}

RULE(aio_return, of_write, "Of a write it gives what write(2) would: the bytes that were written.")
{
    struct aiocb block = request(file_with("", O_WRONLY), "0123", 4, 0);

    starts_write(&block);
    HOLDS(done_within(&block, patience()) && aio_return(&block) == 4);
}

RULE(aio_return, of_fsync, "Of a synchronisation it gives what fsync(2) would: 0.")
{
    struct aiocb block = request(file_with("x", O_RDWR), NULL, 0, 0);

    HOLDS(aio_fsync(O_SYNC, &block) == 0);
    HOLDS(done_within(&block, patience()) && aio_return(&block) == 0);
}

RULE(aio_return, of_failure, "Of an operation that failed it gives -1.")
{
    struct aiocb block = request(open("/dev/full", O_WRONLY), "0123", 4, 0);

    if (aio_write(&block) == 0)
        HOLDS(done_within(&block, patience()) && aio_return(&block) == -1);
}

RULE(aio_return, next_operation, "After the block was used again it gives the result of that operation.")
{
    char bytes[9];
    int file = file_with("0123", O_RDWR);
    struct aiocb block = request(file, bytes, 3, 0);

    starts_read(&block);
    HOLDS(result_of(&block) == 3);
    block.aio_nbytes = 2;
    starts_read(&block);
    HOLDS(result_of(&block) == 2);
    block.aio_fildes = -1;
    int call = aio_write(&block);
    HOLDS(error_of(call, &block) == EBADF);
    block = request(file, "x", 1, 0);
    starts_write(&block);
    HOLDS(result_of(&block) == 1);
}

PROMISE(aio_return, twice, "Called again it gives the same, and so does aio_error.")
{
    char bytes[9];
    struct aiocb good = request(file_with("0123", O_RDONLY), bytes, 3, 0), bad = request(-1, bytes, 3, 0);

    starts_read(&good);
    starts_read(&bad);
    HOLDS(done_within(&good, patience()) && done_within(&bad, patience()));
    for (int index = 0; index < 3; index++) {
        HOLDS(aio_return(&good) == 3 && aio_error(&good) == 0);
        HOLDS(aio_return(&bad) == -1 && aio_error(&bad) == EBADF);
    }
}

PROMISE(aio_return, in_flight, "Of a request in flight it fails with EINVAL.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    HOLDS(aio_return(&block) == -1 && errno == EINVAL);
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&block) == 1);
}

PROMISE(aio_return, never_submitted, "Of a block of zeros that was never submitted, aio_error and aio_return give 0.")
{
    struct aiocb block;

    memset(&block, 0, sizeof block);
    HOLDS(aio_error(&block) == 0 && aio_return(&block) == 0);
}

PROMISE(aio_return, null, "Of NULL, aio_error and aio_return fail with EINVAL.")
{
    /* Declared not to be NULL. */
    struct aiocb *volatile null = NULL;

    HOLDS(aio_error(null) == -1 && errno == EINVAL);
    errno = 0;
    HOLDS(aio_return(null) == -1 && errno == EINVAL);
}
