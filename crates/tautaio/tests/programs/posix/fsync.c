/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH, aio_fsync. */
#include "rule.h"

enum { MANY = 32, PIECE = 64 << 10 };

static struct aiocb writes[MANY];
static char piece[PIECE];

static void queue_writes(int file)
{
    for (int index = 0; index < MANY; index++) {
        writes[index] = request(file, piece, PIECE, (off_t)index * PIECE);
        starts_write(&writes[index]);
    }
}

static void after_writes(int operation)
{
    int file = file_with("", O_RDWR);

    for (int round = 0; round < 5; round++) {
        struct aiocb block = request(file, NULL, 0, 0);
        queue_writes(file);
        HOLDS(aio_fsync(operation, &block) == 0);
        HOLDS(result_of(&block) == 0);
        for (int index = 0; index < MANY; index++)
            HOLDS(aio_error(&writes[index]) == 0 && aio_return(&writes[index]) == PIECE);
    }
}

RULE(aio_fsync, o_sync, "With O_SYNC it is done when all is that was queued on the descriptor before it.")
{
    after_writes(O_SYNC);
}

RULE(aio_fsync, o_dsync, "With O_DSYNC it is done when all is that was queued on the descriptor before it.")
{
    after_writes(O_DSYNC);
}

RULE(aio_fsync, returns,
     "The call returns 0 when the request is queued; the error status is EINPROGRESS until it is done.")
{
    int file = file_with("", O_RDWR);
    struct aiocb block = request(file, NULL, 0, 0);

    queue_writes(file);
    HOLDS(aio_fsync(O_SYNC, &block) == 0);
    int error = aio_error(&block);
    HOLDS(error == EINPROGRESS || error == 0);
    HOLDS(result_of(&block) == 0 && aio_error(&block) == 0);
}

RULE(aio_fsync, notification, "aio_sigevent says how it is told, once, when all is synchronised.")
{
    int file = file_with("", O_RDWR);
    struct aiocb block = request(file, NULL, 0, 0);

    block_signal(SIGRTMIN);
    block.aio_sigevent = signal_event(SIGRTMIN, 8);
    queue_writes(file);
    HOLDS(aio_fsync(O_SYNC, &block) == 0);
    siginfo_t info;
    HOLDS(accept_signal(SIGRTMIN, &info, patience()) && info.si_value.sival_int == 8);
    HOLDS(aio_error(&block) == 0);
    for (int index = 0; index < MANY; index++)
        HOLDS(aio_error(&writes[index]) == 0);
    HOLDS(!accept_signal(SIGRTMIN, &info, 0.05));
}

RULE(aio_fsync, members, "All members but aio_fildes and aio_sigevent are ignored.")
{
    struct aiocb block;

    memset(&block, 0xa5, sizeof block);
    block.aio_fildes = file_with("x", O_RDWR);
    memset(&block.aio_sigevent, 0, sizeof block.aio_sigevent);
    block.aio_sigevent.sigev_notify = SIGEV_NONE;
    HOLDS(aio_fsync(O_SYNC, &block) == 0 && result_of(&block) == 0);
}

RULE(aio_fsync, file_position, "Neither the data nor the length of the file changes.")
{
    char bytes[9];
    int file = file_with("0123", O_RDWR);
    struct aiocb block = request(file, NULL, 99, 50);

    HOLDS(aio_fsync(O_DSYNC, &block) == 0 && result_of(&block) == 0);
    HOLDS(pread(file, bytes, 9, 0) == 4 && memcmp(bytes, "0123", 4) == 0);
}

RULE(aio_fsync, failed_write, "When something queued before it fails, its error status is that error.")
{
    static char large[16 << 20];
    struct rlimit limit = {sizeof large, sizeof large};
    int tries = 20;

    signal(SIGXFSZ, SIG_IGN);
    HOLDS(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    /* Appended in order, the second fails once the first is done: until then both are queued. */
    for (; tries > 0; tries--) {
        int file = file_with("", O_RDWR | O_APPEND);
        struct aiocb first = request(file, large, sizeof large, 0), second = request(file, "x", 1, 0);
        struct aiocb block = request(file, NULL, 0, 0);
        starts_write(&first);
        starts_write(&second);
        HOLDS(aio_fsync(O_SYNC, &block) == 0);
        int in_time = in_progress(&first);
        ssize_t result = result_of(&block);
        int error = errno;
        HOLDS(result_of(&first) == sizeof large);
        HOLDS(result_of(&second) == -1 && errno == EFBIG);
        if (in_time) {
            HOLDS(result == -1 && error == EFBIG);
            break;
        }
        close(file);
    }
    if (tries == 0)
        _exit(NOT_HERE);
}

RULE(aio_fsync, no_resources, "Without the means to queue the request the call fails with EAGAIN.")
{
    struct aiocb block = request(file_with("x", O_RDWR), NULL, 0, 0);

    forbid_threads();
    HOLDS(aio_fsync(O_SYNC, &block) == -1 && errno == EAGAIN);
}

RULE(aio_fsync, not_open, "The call fails with EBADF when the descriptor is not open.")
{
    static const int CLOSED[] = {-1, 999};

    for (int index = 0; index < 2; index++) {
        struct aiocb block = request(CLOSED[index], NULL, 0, 0);
        HOLDS(aio_fsync(O_SYNC, &block) == -1 && errno == EBADF);
    }
}

RULE(aio_fsync, open_for_reading, "A descriptor that is open for reading alone will do.")
{
    struct aiocb block = request(file_with("x", O_RDONLY), NULL, 0, 0);

    HOLDS(aio_fsync(O_SYNC, &block) == 0 && result_of(&block) == 0);
}

RULE(aio_fsync, no_such_file,
     "The call fails with EINVAL for a file that fsync(2) can't be applied to: pipes and sockets.")
{
    int pairs[2][2];

    pipe_pair(pairs[0]);
    stream_pair(pairs[1]);
    for (int index = 0; index < 2; index++) {
        struct aiocb block = request(pairs[index][1], NULL, 0, 0);
        HOLDS(fsync(pairs[index][1]) == -1 && errno == EINVAL);
        errno = 0;
        HOLDS(aio_fsync(O_SYNC, &block) == -1 && errno == EINVAL);
    }
}

RULE(aio_fsync, operation, "The call fails with EINVAL when the operation is neither O_DSYNC nor O_SYNC.")
{
    int file = file_with("x", O_RDWR);
    static const int OPERATIONS[] = {0, -1, 77, O_APPEND};

    for (int index = 0; index < 4; index++) {
        struct aiocb block = request(file, NULL, 0, 0);
        HOLDS(aio_fsync(OPERATIONS[index], &block) == -1 && errno == EINVAL);
    }
}
