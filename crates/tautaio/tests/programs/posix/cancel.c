/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH, aio_cancel. What can be canceled is left to the implementation: what waits behind another request of its
 * descriptor can be everywhere. */
#include "rule.h"

#include <sys/ioctl.h>

enum { QUEUED = 3 };

/* Reads of one pipe, all but the first of which wait for another. */
static struct aiocb reads[QUEUED];
static char bytes[QUEUED];

static void queue_reads(int pair[2], int signal_number)
{
    pipe_pair(pair);
    for (int index = 0; index < QUEUED; index++) {
        reads[index] = request(pair[0], &bytes[index], 1, 0);
        if (signal_number != 0)
            reads[index].aio_sigevent = signal_event(signal_number, index);
        starts_read(&reads[index]);
    }
}

static int is_canceled(struct aiocb *block)
{
    return aio_error(block) == ECANCELED;
}

RULE(aio_cancel, one, "With a block it is that request which is canceled, and no other.")
{
    int pair[2];

    queue_reads(pair, 0);
    HOLDS(aio_cancel(pair[0], &reads[1]) == AIO_CANCELED);
    HOLDS(in_progress(&reads[0]) && is_canceled(&reads[1]) && in_progress(&reads[2]));
    HOLDS(write(pair[1], "xy", 2) == 2);
    HOLDS(result_of(&reads[0]) == 1 && result_of(&reads[2]) == 1 && bytes[0] == 'x' && bytes[2] == 'y');
}

RULE(aio_cancel, all,
     "With NULL all requests of the descriptor that can be canceled are, and none of another descriptor.")
{
    int pair[2], other[2];
    char byte;

    queue_reads(pair, 0);
    pipe_pair(other);
    struct aiocb elsewhere = request(other[0], &byte, 1, 0);
    starts_read(&elsewhere);
    int answer = aio_cancel(pair[0], NULL);
    HOLDS(is_canceled(&reads[1]) && is_canceled(&reads[2]));
    HOLDS(answer == (is_canceled(&reads[0]) ? AIO_CANCELED : AIO_NOTCANCELED));
    let_happen();
    HOLDS(in_progress(&elsewhere));
    HOLDS(write(other[1], "x", 1) == 1 && result_of(&elsewhere) == 1);
}

RULE(aio_cancel, of_this_descriptor,
     "A descriptor's requests are meant, not those of another descriptor of the same file.")
{
    int pair[2];
    char byte;

    queue_reads(pair, 0);
    int second = dup(pair[0]);
    struct aiocb elsewhere = request(second, &byte, 1, 0);
    starts_read(&elsewhere);
    aio_cancel(pair[0], NULL);
    let_happen();
    HOLDS(in_progress(&elsewhere));
}

RULE(aio_cancel, status, "A canceled request has the error status ECANCELED and the result -1.")
{
    int pair[2];

    queue_reads(pair, 0);
    HOLDS(aio_cancel(pair[0], &reads[2]) == AIO_CANCELED);
    HOLDS(aio_error(&reads[2]) == ECANCELED && aio_return(&reads[2]) == -1);
}

RULE(aio_cancel, notification, "Of a canceled request the notification comes as of any, by a signal.")
{
    int pair[2];

    catch_signal(SIGRTMIN);
    queue_reads(pair, SIGRTMIN);
    HOLDS(aio_cancel(pair[0], &reads[1]) == AIO_CANCELED);
    COMES(caught.count == 1);
    HOLDS(caught.last.si_value.sival_int == 1);
}

static volatile sig_atomic_t called;

static void note_call(union sigval value)
{
    called = value.sival_ptr == &called;
}

RULE(aio_cancel, function, "Of a canceled request the notification comes as of any, by a function.")
{
    int pair[2];
    char byte;

    queue_reads(pair, 0);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    block.aio_sigevent = thread_event(note_call, (void *)&called);
    starts_read(&block);
    HOLDS(aio_cancel(pair[0], &block) == AIO_CANCELED);
    COMES(called);
}

RULE(aio_cancel, not_canceled,
     "Of what can't be canceled the block is not changed, and it ends and is told of as ever.")
{
    int pair[2];

    catch_signal(SIGRTMIN);
    /* For the library, that requests under way can't be canceled. */
    setenv("TAUTAIO_CANCEL", "strict", 1);
    queue_reads(pair, SIGRTMIN);
    let_happen();
    HOLDS(aio_cancel(pair[0], &reads[0]) == AIO_NOTCANCELED);
    HOLDS(in_progress(&reads[0]) && caught.count == 0);
    HOLDS(reads[0].aio_fildes == pair[0] && reads[0].aio_buf == &bytes[0] && reads[0].aio_nbytes == 1);
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&reads[0]) == 1 && bytes[0] == 'x');
    COMES(caught.count == 1);
    HOLDS(caught.last.si_value.sival_int == 0);
}

RULE(aio_cancel, canceled, "AIO_CANCELED says that what was asked for is canceled.")
{
    int pair[2];

    queue_reads(pair, 0);
    HOLDS(aio_cancel(pair[0], &reads[1]) == AIO_CANCELED && is_canceled(&reads[1]));
    HOLDS(aio_cancel(pair[0], &reads[2]) == AIO_CANCELED && is_canceled(&reads[2]));
}

RULE(aio_cancel, some_not_canceled, "AIO_NOTCANCELED says that something is under way that can't be.")
{
    int pair[2];

    setenv("TAUTAIO_CANCEL", "strict", 1);
    queue_reads(pair, 0);
    let_happen();
    HOLDS(aio_cancel(pair[0], NULL) == AIO_NOTCANCELED);
    HOLDS(in_progress(&reads[0]));
}

RULE(aio_cancel, all_done, "AIO_ALLDONE says that all was complete before: the request, or all of the descriptor.")
{
    char byte;
    int file = file_with("x", O_RDONLY);
    struct aiocb block = request(file, &byte, 1, 0);

    starts_read(&block);
    HOLDS(result_of(&block) == 1);
    HOLDS(aio_cancel(file, &block) == AIO_ALLDONE && aio_cancel(file, NULL) == AIO_ALLDONE);
    HOLDS(aio_error(&block) == 0 && block.aio_fildes == file);
}

RULE(aio_cancel, nothing_there, "AIO_ALLDONE is the answer where nothing was ever submitted.")
{
    HOLDS(aio_cancel(file_with("x", O_RDONLY), NULL) == AIO_ALLDONE);
}

RULE(aio_cancel, not_open, "A descriptor that is not open gives -1 and EBADF.")
{
    HOLDS(aio_cancel(999, NULL) == -1 && errno == EBADF);
    errno = 0;
    HOLDS(aio_cancel(-1, NULL) == -1 && errno == EBADF);
}

RULE(aio_cancel, order, "What waited behind a canceled request goes on.")
{
    int pair[2];

    queue_reads(pair, 0);
    HOLDS(aio_cancel(pair[0], &reads[1]) == AIO_CANCELED);
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&reads[0]) == 1);
    HOLDS(write(pair[1], "y", 1) == 1 && result_of(&reads[2]) == 1 && bytes[2] == 'y');
}

PROMISE(aio_cancel, under_way,
        "Reads of pipes, sockets and terminals that are under way can be canceled, and take nothing.")
{
    int pairs[2][2];
    char byte;

    pipe_pair(pairs[0]);
    stream_pair(pairs[1]);
    for (int index = 0; index < 2; index++) {
        struct aiocb block = request(pairs[index][0], &byte, 1, 0);
        starts_read(&block);
        let_happen();
        HOLDS(aio_cancel(pairs[index][0], &block) == AIO_CANCELED);
        HOLDS(aio_error(&block) == ECANCELED && aio_return(&block) == -1);
        HOLDS(write(pairs[index][1], "x", 1) == 1);
        HOLDS(read(pairs[index][0], &byte, 1) == 1 && byte == 'x');
    }
}

PROMISE(aio_cancel, part,
        "A write that was canceled after a part has the count of that part, and counts as not canceled.")
{
    static char large[4 << 20];
    int pair[2], length;
    char piece[4096];

    stream_pair(pair);
    struct aiocb block = request(pair[1], large, sizeof large, 0);
    starts_write(&block);
    COMES(ioctl(pair[0], FIONREAD, &length) == 0 && length > 0);
    HOLDS(aio_cancel(pair[1], &block) == AIO_NOTCANCELED);
    ssize_t written = result_of(&block), got;
    HOLDS(written > 0 && written < (ssize_t)sizeof large);
    for (length = 0; length < written; length += (int)got)
        HOLDS((got = read(pair[0], piece, sizeof piece)) > 0);
    HOLDS(length == written && recv(pair[0], piece, 1, MSG_DONTWAIT) == -1);
}

PROMISE(aio_cancel, another_number, "A descriptor that is not that of the block gives -1 and EINVAL.")
{
    int pair[2];

    queue_reads(pair, 0);
    HOLDS(aio_cancel(pair[1], &reads[0]) == -1 && errno == EINVAL);
    HOLDS(in_progress(&reads[0]));
}
