/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH, aio_read. */
#include "rule.h"

#include <limits.h>

RULE(aio_read, bytes, "It reads aio_nbytes bytes of aio_fildes into aio_buf.")
{
    char buffer[] = "........";
    struct aiocb block = request(file_with("0123456789", O_RDONLY), buffer, 4, 0);

    starts_read(&block);
    HOLDS(result_of(&block) == 4 && memcmp(buffer, "0123....", 8) == 0);
}

RULE(aio_read, returns_before_data, "The call returns although there are no data yet, and the request goes on.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    HOLDS(in_progress(&block));
    HOLDS(write(pair[1], "x", 1) == 1);
    HOLDS(result_of(&block) == 1 && byte == 'x');
}

RULE(aio_read, position, "It reads at aio_offset, wherever the file's own position is.")
{
    char bytes[3];
    int file = file_with("0123456789", O_RDONLY);
    struct aiocb block = request(file, bytes, 3, 2);

    HOLDS(lseek(file, 7, SEEK_SET) == 7);
    starts_read(&block);
    HOLDS(result_of(&block) == 3 && memcmp(bytes, "234", 3) == 0);
}

RULE(aio_read, end_of_file, "A read across the end of a file gives what is before it, one behind it 0.")
{
    char bytes[8];
    int file = file_with("0123", O_RDONLY);
    struct aiocb across = request(file, bytes, 8, 2), at = request(file, bytes, 8, 4);
    struct aiocb behind = request(file, bytes, 8, 99);

    starts_read(&across);
    HOLDS(result_of(&across) == 2 && memcmp(bytes, "23", 2) == 0);
    starts_read(&at);
    starts_read(&behind);
    HOLDS(result_of(&at) == 0 && result_of(&behind) == 0);
}

RULE(aio_read, end_of_pipe, "A read of a pipe that nobody writes any more gives 0.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    HOLDS(close(pair[1]) == 0);
    HOLDS(result_of(&block) == 0);
}

RULE(aio_read, end_of_stream, "A read of a stream socket whose other end is shut down gives 0.")
{
    int pair[2];
    char byte;

    stream_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    HOLDS(shutdown(pair[1], SHUT_WR) == 0);
    HOLDS(result_of(&block) == 0);
}

RULE(aio_read, what_is_there, "A read of a pipe or socket gives the bytes that are there and does not wait for all.")
{
    int pairs[2][2];

    pipe_pair(pairs[0]);
    stream_pair(pairs[1]);
    for (int index = 0; index < 2; index++) {
        char bytes[9];
        struct aiocb block = request(pairs[index][0], bytes, 9, 0);
        HOLDS(write(pairs[index][1], "abc", 3) == 3);
        starts_read(&block);
        HOLDS(result_of(&block) == 3 && memcmp(bytes, "abc", 3) == 0);
    }
}

RULE(aio_read, datagram, "A read of a datagram socket takes one message.")
{
    int pair[2];
    char bytes[9];

    HOLDS(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    HOLDS(write(pair[1], "one", 3) == 3 && write(pair[1], "seven", 5) == 5);
    struct aiocb first = request(pair[0], bytes, 9, 0), second = request(pair[0], bytes, 9, 0);
    starts_read(&first);
    HOLDS(result_of(&first) == 3 && memcmp(bytes, "one", 3) == 0);
    starts_read(&second);
    HOLDS(result_of(&second) == 5 && memcmp(bytes, "seven", 5) == 0);
}

RULE(aio_read, nothing, "A read of no bytes of a file gives 0.")
{
    char byte = '.';
    struct aiocb block = request(file_with("0123", O_RDONLY), &byte, 0, 0);

    starts_read(&block);
    HOLDS(result_of(&block) == 0 && byte == '.');
}

RULE(aio_read, opcode, "aio_lio_opcode is ignored.")
{
    static const int OPCODES[] = {LIO_NOP, LIO_WRITE, 77, -1};
    int file = file_with("0123", O_RDWR);

    for (size_t index = 0; index < 4; index++) {
        char bytes[4];
        struct aiocb block = request(file, bytes, 4, 0);
        block.aio_lio_opcode = OPCODES[index];
        starts_read(&block);
        HOLDS(result_of(&block) == 4 && memcmp(bytes, "0123", 4) == 0);
    }
}

RULE(aio_read, status,
     "The block is what aio_error and aio_return are asked with, while the request is under way and after.")
{
    int pair[2];
    char bytes[5];

    pipe_pair(pair);
    struct aiocb block = request(pair[0], bytes, 5, 0);
    starts_read(&block);
    HOLDS(aio_error(&block) == EINPROGRESS);
    HOLDS(write(pair[1], "abc", 3) == 3);
    HOLDS(done_within(&block, patience()));
    HOLDS(aio_error(&block) == 0 && aio_return(&block) == 3);
}

RULE(aio_read, notification, "aio_sigevent says how the end is told.")
{
    int pair[2];
    char byte;

    catch_signal(SIGRTMIN);
    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    block.aio_sigevent = signal_event(SIGRTMIN, 5);
    starts_read(&block);
    let_happen();
    HOLDS(caught.count == 0);
    HOLDS(write(pair[1], "x", 1) == 1);
    COMES(caught.count == 1);
    HOLDS(caught.last.si_value.sival_int == 5 && aio_return(&block) == 1);
}

RULE(aio_read, nothing_queued, "A call that fails has queued nothing: no byte is taken, and nobody is told.")
{
    int pair[2];
    char bytes[] = "...";

    catch_signal(SIGRTMIN);
    pipe_pair(pair);
    HOLDS(write(pair[1], "abc", 3) == 3);
    struct aiocb block = request(pair[0], bytes, 3, 0);
    block.aio_reqprio = -1;
    block.aio_sigevent = signal_event(SIGRTMIN, 0);
    int call = aio_read(&block);
    HOLDS(error_of(call, &block) == EINVAL);
    let_happen();
    HOLDS(memcmp(bytes, "...", 3) == 0);
    HOLDS(call == 0 || caught.count == 0);
    HOLDS(read(pair[0], bytes, 3) == 3);
}

RULE(aio_read, no_resources, "Without the means to queue the request the call fails with EAGAIN.")
{
    char byte;
    struct aiocb block = request(file_with("x", O_RDONLY), &byte, 1, 0);

    forbid_threads();
    HOLDS(aio_read(&block) == -1 && errno == EAGAIN);
}

RULE(aio_read, not_open, "A descriptor that is not open is EBADF.")
{
    static const int CLOSED[] = {-1, 999};

    for (size_t index = 0; index < 2; index++) {
        char byte;
        struct aiocb block = request(CLOSED[index], &byte, 1, 0);
        int call = aio_read(&block);
        HOLDS(error_of(call, &block) == EBADF);
    }
}

RULE(aio_read, not_for_reading, "A descriptor that is not open for reading is EBADF.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    int closed_to_readers[] = {file_with("x", O_WRONLY), pair[1]};
    for (size_t index = 0; index < 2; index++) {
        struct aiocb block = request(closed_to_readers[index], &byte, 1, 0);
        int call = aio_read(&block);
        HOLDS(error_of(call, &block) == EBADF);
    }
}

RULE(aio_read, bad_offset, "An offset that can't be is EINVAL.")
{
    int file = file_with("x", O_RDONLY);
    static const off_t OFFSETS[] = {-1, -2, LLONG_MIN};

    for (size_t index = 0; index < 3; index++) {
        char byte;
        struct aiocb block = request(file, &byte, 1, OFFSETS[index]);
        int call = aio_read(&block);
        HOLDS(error_of(call, &block) == EINVAL);
    }
}

RULE(aio_read, bad_priority, "An aio_reqprio below 0 or above {AIO_PRIO_DELTA_MAX} is EINVAL.")
{
    int file = file_with("x", O_RDONLY);
    int priorities[] = {-1, (int)sysconf(_SC_AIO_PRIO_DELTA_MAX) + 1, INT_MAX, INT_MIN};

    for (size_t index = 0; index < 4; index++) {
        char byte;
        struct aiocb block = request(file, &byte, 1, 0);
        block.aio_reqprio = priorities[index];
        int call = aio_read(&block);
        HOLDS(error_of(call, &block) == EINVAL);
    }
}

RULE(aio_read, bad_length, "An aio_nbytes above {SSIZE_MAX} is EINVAL.")
{
    char byte;
    struct aiocb block = request(file_with("x", O_RDONLY), &byte, (size_t)SSIZE_MAX + 1, 0);
    int call = aio_read(&block);

    HOLDS(error_of(call, &block) == EINVAL);
}

RULE(aio_read, error_of_read,
     "What read(2) fails with is the error status, and the result is -1: EISDIR for a directory.")
{
    char byte;
    struct aiocb block = request(open(".", O_RDONLY | O_DIRECTORY), &byte, 1, 0);
    int call = aio_read(&block);

    HOLDS(error_of(call, &block) == EISDIR);
}

RULE(aio_read, canceled, "A read that aio_cancel ended has ECANCELED.")
{
    int pair[2];
    char bytes[2];

    pipe_pair(pair);
    struct aiocb first = request(pair[0], &bytes[0], 1, 0), second = request(pair[0], &bytes[1], 1, 0);
    starts_read(&first);
    starts_read(&second);
    HOLDS(aio_cancel(pair[0], &second) == AIO_CANCELED);
    HOLDS(aio_error(&second) == ECANCELED && aio_return(&second) == -1);
}

RULE(aio_read, offset_maximum, "Nothing is read from beyond the largest offset that a file may have.")
{
    char byte = '.';
    struct aiocb block = request(file_with("x", O_RDONLY), &byte, 1, LLONG_MAX);
    int call = aio_read(&block);

    if (call != 0 || result_of(&block) != 0)
        HOLDS(errno == EINVAL || errno == EOVERFLOW);
    HOLDS(byte == '.');
}

RULE(aio_read, nonblocking, "With O_NONBLOCK and no data the error status is read's, EAGAIN.")
{
    int pair[2];
    char byte;

    HOLDS(pipe2(pair, O_NONBLOCK) == 0);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    int call = aio_read(&block);
    HOLDS(call != 0 || done_within(&block, patience()));
    HOLDS(error_of(call, &block) == EAGAIN);
}

PROMISE(aio_read, nothing_of_streams, "A read of no bytes of a pipe or socket gives 0 and takes nothing.")
{
    int pairs[3][2];
    char bytes[3];

    pipe_pair(pairs[0]);
    stream_pair(pairs[1]);
    HOLDS(socketpair(AF_UNIX, SOCK_DGRAM, 0, pairs[2]) == 0);
    for (int index = 0; index < 3; index++) {
        struct aiocb block = request(pairs[index][0], bytes, 0, 0);
        starts_read(&block);
        HOLDS(result_of(&block) == 0);
        HOLDS(write(pairs[index][1], "one", 3) == 3);
        struct aiocb again = request(pairs[index][0], bytes, 0, 0);
        starts_read(&again);
        HOLDS(result_of(&again) == 0 && read(pairs[index][0], bytes, 3) == 3);
    }
}

PROMISE(aio_read, order, "Reads of a stream are served first in, first out.")
{
    enum { MANY = 50 };
    static struct aiocb reads[MANY];
    static char bytes[MANY], text[MANY];
    int pair[2];

    stream_pair(pair);
    for (int index = 0; index < MANY; index++) {
        text[index] = (char)index;
        reads[index] = request(pair[0], &bytes[index], 1, 0);
        starts_read(&reads[index]);
    }
    HOLDS(write(pair[1], text, MANY) == MANY);
    for (int index = 0; index < MANY; index++)
        HOLDS(result_of(&reads[index]) == 1 && bytes[index] == index);
}

PROMISE(aio_read, waits_without_data, "With O_NONBLOCK a request waits for data as any other.")
{
    int pair[2];
    char byte;

    HOLDS(pipe2(pair, O_NONBLOCK) == 0);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    let_happen();
    HOLDS(in_progress(&block));
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&block) == 1);
}

PROMISE(aio_read, file_position, "The file's own position is neither used nor moved.")
{
    char bytes[4];
    int file = file_with("0123456789", O_RDWR);
    struct aiocb read_some = request(file, bytes, 4, 2), write_some = request(file, "ab", 2, 8);

    HOLDS(lseek(file, 5, SEEK_SET) == 5);
    starts_read(&read_some);
    HOLDS(result_of(&read_some) == 4);
    starts_write(&write_some);
    HOLDS(result_of(&write_some) == 2);
    HOLDS(lseek(file, 0, SEEK_CUR) == 5);
}

PROMISE(aio_read, in_flight, "A block in flight is refused with EINVAL, and its request goes on.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    HOLDS(aio_read(&block) == -1 && errno == EINVAL);
    HOLDS(write(pair[1], "xy", 2) == 2);
    HOLDS(result_of(&block) == 1 && byte == 'x');
    HOLDS(read(pair[0], &byte, 1) == 1 && byte == 'y');
}

PROMISE(aio_read, silent_neighbours, "100 reads of silent sockets hold nobody else up.")
{
    enum { SILENT = 100 };
    static struct aiocb reads[SILENT];
    static char bytes[SILENT];
    int pair[2];
    char byte;

    for (int index = 0; index < SILENT; index++) {
        stream_pair(pair);
        reads[index] = request(pair[0], &bytes[index], 1, 0);
        starts_read(&reads[index]);
    }
    struct aiocb block = request(file_with("x", O_RDONLY), &byte, 1, 0);
    starts_read(&block);
    HOLDS(result_of(&block) == 1);
}

PROMISE(aio_read, beside_a_write, "Of one socket, reads and writes do not wait for each other.")
{
    int pair[2];
    char byte;

    stream_pair(pair);
    struct aiocb read_one = request(pair[0], &byte, 1, 0), write_one = request(pair[0], "x", 1, 0);
    starts_read(&read_one);
    starts_write(&write_one);
    HOLDS(result_of(&write_one) == 1 && in_progress(&read_one));
}
