/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH, aio_write. */
#include "rule.h"

#include <limits.h>

static int file_holds(int file, const char *text)
{
    char bytes[64];
    ssize_t length = pread(file, bytes, sizeof bytes, 0);

    return length == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)length) == 0;
}

RULE(aio_write, bytes, "It writes aio_nbytes bytes of aio_buf to aio_fildes.")
{
    char text[] = "abcdef";
    int file = file_with("", O_RDWR);
    struct aiocb block = request(file, text, 4, 0);

    starts_write(&block);
    HOLDS(result_of(&block) == 4 && file_holds(file, "abcd"));
    HOLDS(strcmp(text, "abcdef") == 0);
}

RULE(aio_write, returns_before_room, "The call returns although there is no room yet, and the request goes on.")
{
    int pair[2];
    char bytes[4096];
    ssize_t filled = 0, got, count = 0;

    pipe_pair(pair);
    HOLDS(fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0);
    memset(bytes, 'a', sizeof bytes);
    while ((got = write(pair[1], bytes, sizeof bytes)) > 0)
        filled += got;
    HOLDS(fcntl(pair[1], F_SETFL, 0) == 0);
    struct aiocb block = request(pair[1], "x", 1, 0);
    starts_write(&block);
    let_happen();
    HOLDS(in_progress(&block));
    for (; count < filled; count += got)
        HOLDS((got = read(pair[0], bytes, sizeof bytes)) > 0);
    HOLDS(result_of(&block) == 1);
    HOLDS(count > filled || (read(pair[0], bytes, 1) == 1 && bytes[0] == 'x'));
}

RULE(aio_write, position, "Without O_APPEND it writes at aio_offset, wherever the file's own position is.")
{
    int file = file_with("0123456789", O_RDWR);
    struct aiocb block = request(file, "ab", 2, 3);

    HOLDS(lseek(file, 7, SEEK_SET) == 7);
    starts_write(&block);
    HOLDS(result_of(&block) == 2 && file_holds(file, "012ab56789"));
}

RULE(aio_write, behind_the_end, "Behind the end of a file it makes the file longer, with zeros between.")
{
    int file = file_with("01", O_RDWR);
    char bytes[6];
    struct aiocb block = request(file, "ab", 2, 4);

    starts_write(&block);
    HOLDS(result_of(&block) == 2);
    HOLDS(pread(file, bytes, 6, 0) == 6 && memcmp(bytes, "01\0\0ab", 6) == 0);
}

/* Writes many pieces at once, each with its number in all of its bytes; in a file they stand from the start given. */
static void write_pieces(int writer, int reader, off_t start)
{
    enum { MANY = 64, PIECE = 500 };
    static struct aiocb blocks[MANY];
    static char pieces[MANY][PIECE], all[MANY][PIECE];
    size_t length = 0;

    for (int index = 0; index < MANY; index++) {
        memset(pieces[index], index + 1, PIECE);
        /* An offset that is looked at would bring the pieces into another order. */
        blocks[index] = request(writer, pieces[index], PIECE, (off_t)(MANY - index) * PIECE);
        starts_write(&blocks[index]);
    }
    if (reader == writer) {
        for (int index = 0; index < MANY; index++)
            HOLDS(result_of(&blocks[index]) == PIECE);
        HOLDS(lseek(reader, start, SEEK_SET) == start);
    }
    for (ssize_t got; length < sizeof all; length += (size_t)got)
        HOLDS((got = read(reader, (char *)all + length, sizeof all - length)) > 0);
    for (int index = 0; index < MANY; index++)
        HOLDS(result_of(&blocks[index]) == PIECE && memcmp(all[index], pieces[index], PIECE) == 0);
}

RULE(aio_write, append, "With O_APPEND writes are appended in the order of the calls, and aio_offset is ignored.")
{
    int file = file_with("012", O_RDWR | O_APPEND);

    write_pieces(file, file, 3);
}

RULE(aio_write, pipe, "To a pipe writes go in the order of the calls.")
{
    int pair[2];

    pipe_pair(pair);
    write_pieces(pair[1], pair[0], 0);
}

RULE(aio_write, socket, "To a stream socket writes go in the order of the calls.")
{
    int pair[2];

    stream_pair(pair);
    write_pieces(pair[1], pair[0], 0);
}

RULE(aio_write, seekless_offset, "Where nothing can be sought, aio_offset is ignored.")
{
    int pairs[2][2];

    pipe_pair(pairs[0]);
    stream_pair(pairs[1]);
    for (int index = 0; index < 2; index++) {
        char byte;
        struct aiocb write_one = request(pairs[index][1], "x", 1, 12345);
        struct aiocb read_one = request(pairs[index][0], &byte, 1, 99);
        starts_write(&write_one);
        HOLDS(result_of(&write_one) == 1);
        starts_read(&read_one);
        HOLDS(result_of(&read_one) == 1 && byte == 'x');
    }
}

RULE(aio_write, opcode, "aio_lio_opcode is ignored.")
{
    static const int OPCODES[] = {LIO_NOP, LIO_READ, 77, -1};
    int file = file_with("....", O_RDWR);

    for (size_t index = 0; index < 4; index++) {
        struct aiocb block = request(file, "abcd", 4, 0);
        block.aio_lio_opcode = OPCODES[index];
        starts_write(&block);
        HOLDS(result_of(&block) == 4 && file_holds(file, "abcd"));
        HOLDS(pwrite(file, "....", 4, 0) == 4);
    }
}

RULE(aio_write, status,
     "The block is what aio_error and aio_return are asked with, while the request is under way and after.")
{
    struct aiocb block = request(file_with("", O_WRONLY), "abc", 3, 0);

    starts_write(&block);
    int error = aio_error(&block);
    HOLDS(error == EINPROGRESS || error == 0);
    HOLDS(done_within(&block, patience()));
    HOLDS(aio_error(&block) == 0 && aio_return(&block) == 3);
}

RULE(aio_write, notification, "aio_sigevent says how the end is told.")
{
    catch_signal(SIGRTMIN);
    struct aiocb block = request(file_with("", O_WRONLY), "abc", 3, 0);
    block.aio_sigevent = signal_event(SIGRTMIN, 6);
    starts_write(&block);
    COMES(caught.count == 1);
    HOLDS(caught.last.si_value.sival_int == 6 && aio_return(&block) == 3);
}

RULE(aio_write, synchronized, "On files with O_DSYNC and O_SYNC it writes as elsewhere.")
{
    static const int FLAGS[] = {O_DSYNC, O_SYNC, O_SYNC | O_APPEND};

    for (size_t index = 0; index < 3; index++) {
        int file = file_with("", O_RDWR | FLAGS[index]);
        struct aiocb block = request(file, "abcd", 4, 0);
        starts_write(&block);
        HOLDS(result_of(&block) == 4 && file_holds(file, "abcd"));
    }
}

RULE(aio_write, nothing_queued, "A call that fails has queued nothing: no byte is written, and nobody is told.")
{
    int file = file_with("...", O_RDWR);

    catch_signal(SIGRTMIN);
    struct aiocb block = request(file, "abc", 3, 0);
    block.aio_reqprio = -1;
    block.aio_sigevent = signal_event(SIGRTMIN, 0);
    int call = aio_write(&block);
    HOLDS(error_of(call, &block) == EINVAL);
    let_happen();
    HOLDS((call == 0 || caught.count == 0) && file_holds(file, "..."));
}

RULE(aio_write, no_resources, "Without the means to queue the request the call fails with EAGAIN.")
{
    struct aiocb block = request(file_with("", O_WRONLY), "x", 1, 0);

    forbid_threads();
    HOLDS(aio_write(&block) == -1 && errno == EAGAIN);
}

RULE(aio_write, not_open, "A descriptor that is not open is EBADF.")
{
    static const int CLOSED[] = {-1, 999};

    for (size_t index = 0; index < 2; index++) {
        struct aiocb block = request(CLOSED[index], "x", 1, 0);
        int call = aio_write(&block);
        HOLDS(error_of(call, &block) == EBADF);
    }
}

RULE(aio_write, not_for_writing, "A descriptor that is not open for writing is EBADF.")
{
    int pair[2];

    pipe_pair(pair);
    int closed_to_writers[] = {file_with("x", O_RDONLY), pair[0]};
    for (size_t index = 0; index < 2; index++) {
        struct aiocb block = request(closed_to_writers[index], "x", 1, 0);
        int call = aio_write(&block);
        HOLDS(error_of(call, &block) == EBADF);
    }
}

RULE(aio_write, bad_offset, "An offset that can't be is EINVAL.")
{
    int file = file_with("x", O_WRONLY);
    static const off_t OFFSETS[] = {-1, -2, LLONG_MIN};

    for (size_t index = 0; index < 3; index++) {
        struct aiocb block = request(file, "x", 1, OFFSETS[index]);
        int call = aio_write(&block);
        HOLDS(error_of(call, &block) == EINVAL);
    }
}

RULE(aio_write, bad_priority, "An aio_reqprio below 0 or above {AIO_PRIO_DELTA_MAX} is EINVAL.")
{
    int file = file_with("x", O_WRONLY);
    int priorities[] = {-1, (int)sysconf(_SC_AIO_PRIO_DELTA_MAX) + 1, INT_MAX, INT_MIN};

    for (size_t index = 0; index < 4; index++) {
        struct aiocb block = request(file, "x", 1, 0);
        block.aio_reqprio = priorities[index];
        int call = aio_write(&block);
        HOLDS(error_of(call, &block) == EINVAL);
    }
}

RULE(aio_write, bad_length, "An aio_nbytes above {SSIZE_MAX} is EINVAL.")
{
    struct aiocb block = request(file_with("x", O_WRONLY), "x", (size_t)SSIZE_MAX + 1, 0);
    int call = aio_write(&block);

    HOLDS(error_of(call, &block) == EINVAL);
}

RULE(aio_write, offset_maximum, "From the largest offset on that a file may have, a write is EFBIG.")
{
    int file = file_with("x", O_RDWR);
    struct aiocb block = request(file, "y", 1, LLONG_MAX);
    int call = aio_write(&block);

    HOLDS(error_of(call, &block) == EFBIG && file_holds(file, "x"));
}

RULE(aio_write, size_limit, "What write(2) fails with is the error status: EFBIG at the process's limit of file sizes.")
{
    int file = file_with("x", O_RDWR);
    struct rlimit limit = {1, 1};
    struct aiocb block = request(file, "y", 1, 1);

    signal(SIGXFSZ, SIG_IGN);
    HOLDS(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    int call = aio_write(&block);
    HOLDS(error_of(call, &block) == EFBIG);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
}

RULE(aio_write, no_space, "What write(2) fails with is the error status: ENOSPC of a full device.")
{
    struct aiocb block = request(open("/dev/full", O_WRONLY), "y", 1, 0);
    int call = aio_write(&block);

    HOLDS(error_of(call, &block) == ENOSPC);
}

RULE(aio_write, no_reader, "What write(2) fails with is the error status: EPIPE where nobody reads.")
{
    int pairs[2][2];

    signal(SIGPIPE, SIG_IGN);
    pipe_pair(pairs[0]);
    stream_pair(pairs[1]);
    for (int index = 0; index < 2; index++) {
        struct aiocb block = request(pairs[index][1], "y", 1, 0);
        HOLDS(close(pairs[index][0]) == 0);
        int call = aio_write(&block);
        HOLDS(error_of(call, &block) == EPIPE);
    }
}

/* More than a pipe or socket takes at once. */
static char large[4 << 20];

RULE(aio_write, canceled, "A write that aio_cancel ended has ECANCELED, and nothing of it is written.")
{
    int pair[2];
    char bytes[4096];
    size_t rest = sizeof large;

    pipe_pair(pair);
    struct aiocb first = request(pair[1], large, sizeof large, 0), second = request(pair[1], "x", 1, 0);
    starts_write(&first);
    starts_write(&second);
    HOLDS(aio_cancel(pair[1], &second) == AIO_CANCELED);
    HOLDS(aio_error(&second) == ECANCELED && aio_return(&second) == -1);
    for (ssize_t got; rest > 0; rest -= (size_t)got) {
        HOLDS((got = read(pair[0], bytes, sizeof bytes)) > 0);
        HOLDS(memchr(bytes, 'x', (size_t)got) == NULL);
    }
    HOLDS(result_of(&first) == sizeof large);
    HOLDS(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0 && read(pair[0], bytes, 1) == -1);
}

PROMISE(aio_write, whole, "A write to a stream socket is whole, also with O_NONBLOCK.")
{
    int pair[2];
    char bytes[4096];
    size_t rest = sizeof large;

    stream_pair(pair);
    HOLDS(fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0);
    struct aiocb block = request(pair[1], large, sizeof large, 0);
    starts_write(&block);
    let_happen();
    HOLDS(in_progress(&block));
    for (ssize_t got; rest > 0; rest -= (size_t)got)
        HOLDS((got = read(pair[0], bytes, sizeof bytes)) > 0);
    HOLDS(result_of(&block) == sizeof large);
}

PROMISE(aio_write, no_signal, "Where nobody reads there is no SIGPIPE beside EPIPE.")
{
    int pairs[2][2];

    catch_signal(SIGPIPE);
    pipe_pair(pairs[0]);
    stream_pair(pairs[1]);
    for (int index = 0; index < 2; index++) {
        struct aiocb block = request(pairs[index][1], "y", 1, 0);
        HOLDS(close(pairs[index][0]) == 0);
        starts_write(&block);
        HOLDS(result_of(&block) == -1 && errno == EPIPE);
    }
    let_happen();
    HOLDS(caught.count == 0);
}
