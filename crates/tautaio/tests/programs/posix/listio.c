/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH, lio_listio. */
#include "rule.h"

#include <limits.h>

static struct aiocb entry(int opcode, int fd, void *buffer, size_t length, off_t offset)
{
    struct aiocb block = request(fd, buffer, length, offset);

    block.aio_lio_opcode = opcode;
    return block;
}

static int all_final(struct aiocb *const list[], int length)
{
    for (int index = 0; index < length; index++)
        if (list[index] && in_progress(list[index]))
            return 0;
    return 1;
}

RULE(lio_listio, all, "All requests of the list are submitted by one call.")
{
    char bytes[4];
    int file = file_with("0123", O_RDWR), other = file_with("", O_RDWR);
    struct aiocb blocks[] = {entry(LIO_READ, file, &bytes[0], 2, 0), entry(LIO_READ, file, &bytes[2], 2, 2),
                             entry(LIO_WRITE, other, "ab", 2, 0), entry(LIO_WRITE, other, "cd", 2, 2)};
    struct aiocb *list[] = {&blocks[0], &blocks[1], &blocks[2], &blocks[3]};

    HOLDS(lio_listio(LIO_WAIT, list, 4, NULL) == 0);
    for (int index = 0; index < 4; index++)
        HOLDS(aio_error(&blocks[index]) == 0 && aio_return(&blocks[index]) == 2);
    HOLDS(memcmp(bytes, "0123", 4) == 0 && pread(other, bytes, 4, 0) == 4 && memcmp(bytes, "abcd", 4) == 0);
}

static void *writes_twice(void *pair)
{
    for (int index = 0; index < 2; index++) {
        pause_ms(40);
        HOLDS(write(((int *)pair)[1], "x", 1) == 1);
    }
    return pair;
}

RULE(lio_listio, wait, "With LIO_WAIT it returns 0 when all requests are complete, and not before.")
{
    int pair[2];
    char bytes[3];

    pipe_pair(pair);
    struct aiocb blocks[] = {entry(LIO_READ, pair[0], &bytes[0], 1, 0), entry(LIO_READ, pair[0], &bytes[1], 1, 0),
                             entry(LIO_READ, file_with("x", O_RDONLY), &bytes[2], 1, 0)};
    struct aiocb *list[] = {&blocks[0], &blocks[1], &blocks[2]};
    double begin = now();
    pthread_t writer = thread_of(writes_twice, pair);
    HOLDS(lio_listio(LIO_WAIT, list, 3, NULL) == 0);
    HOLDS(now() - begin > 0.07 && all_final(list, 3));
    HOLDS(joined(writer));
}

RULE(lio_listio, wait_ignores_event, "With LIO_WAIT its last argument is ignored.")
{
    char byte;
    struct aiocb block = entry(LIO_READ, file_with("x", O_RDONLY), &byte, 1, 0), *list[] = {&block};
    struct sigevent event = signal_event(SIGRTMIN, 0), senseless;

    catch_signal(SIGRTMIN);
    HOLDS(lio_listio(LIO_WAIT, list, 1, &event) == 0);
    memset(&senseless, 0xa5, sizeof senseless);
    HOLDS(lio_listio(LIO_WAIT, list, 1, &senseless) == 0);
    let_happen();
    HOLDS(caught.count == 0);
}

RULE(lio_listio, nowait, "With LIO_NOWAIT it returns 0 at once, and the requests are under way.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = entry(LIO_READ, pair[0], &byte, 1, 0), *list[] = {&block};
    HOLDS(lio_listio(LIO_NOWAIT, list, 1, NULL) == 0);
    HOLDS(aio_error(&block) == EINPROGRESS);
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&block) == 1);
}

RULE(lio_listio, no_event, "With LIO_NOWAIT and no event nobody is told of the list.")
{
    char byte;
    struct aiocb block = entry(LIO_READ, file_with("x", O_RDONLY), &byte, 1, 0), *list[] = {&block};

    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        catch_signal(number);
    HOLDS(lio_listio(LIO_NOWAIT, list, 1, NULL) == 0 && result_of(&block) == 1);
    let_happen();
    HOLDS(caught.count == 0);
}

RULE(lio_listio, silent_event, "With LIO_NOWAIT and SIGEV_NONE nobody is told of the list.")
{
    char byte;
    struct aiocb block = entry(LIO_READ, file_with("x", O_RDONLY), &byte, 1, 0), *list[] = {&block};
    struct sigevent event = signal_event(SIGRTMIN, 0);

    event.sigev_notify = SIGEV_NONE;
    catch_signal(SIGRTMIN);
    HOLDS(lio_listio(LIO_NOWAIT, list, 1, &event) == 0 && result_of(&block) == 1);
    let_happen();
    HOLDS(caught.count == 0);
}

RULE(lio_listio, event, "With LIO_NOWAIT the event comes once, when all requests of the list are complete.")
{
    int pair[2];
    char bytes[3];
    siginfo_t info;

    block_signal(SIGRTMIN);
    pipe_pair(pair);
    struct aiocb blocks[] = {entry(LIO_READ, pair[0], &bytes[0], 1, 0), entry(LIO_READ, pair[0], &bytes[1], 1, 0),
                             entry(LIO_READ, file_with("x", O_RDONLY), &bytes[2], 1, 0)};
    struct aiocb *list[] = {&blocks[0], &blocks[1], &blocks[2]};
    struct sigevent event = signal_event(SIGRTMIN, 33);
    HOLDS(lio_listio(LIO_NOWAIT, list, 3, &event) == 0);
    HOLDS(result_of(&blocks[2]) == 1 && write(pair[1], "x", 1) == 1 && result_of(&blocks[0]) == 1);
    HOLDS(!accept_signal(SIGRTMIN, &info, 0.05));
    HOLDS(write(pair[1], "x", 1) == 1);
    HOLDS(accept_signal(SIGRTMIN, &info, patience()) && info.si_value.sival_int == 33);
    HOLDS(all_final(list, 3));
    HOLDS(!accept_signal(SIGRTMIN, &info, 0.05));
}

static struct {
    struct aiocb **list;
    int length;
    volatile sig_atomic_t calls, final;
} told;

static void is_told(union sigval value)
{
    (void)value;
    told.final = all_final(told.list, told.length);
    told.calls++;
}

RULE(lio_listio, function, "With LIO_NOWAIT and SIGEV_THREAD the function is called when all requests are complete.")
{
    int pair[2];
    char bytes[2];

    pipe_pair(pair);
    struct aiocb blocks[] = {entry(LIO_READ, pair[0], &bytes[0], 1, 0), entry(LIO_READ, pair[0], &bytes[1], 1, 0)};
    struct aiocb *list[] = {&blocks[0], &blocks[1]};
    struct sigevent event = thread_event(is_told, NULL);
    told.list = list;
    told.length = 2;
    HOLDS(lio_listio(LIO_NOWAIT, list, 2, &event) == 0);
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&blocks[0]) == 1);
    let_happen();
    HOLDS(told.calls == 0);
    HOLDS(write(pair[1], "x", 1) == 1);
    COMES(told.calls == 1);
    HOLDS(told.final);
}

RULE(lio_listio, own_events, "Each request's own aio_sigevent is told as well.")
{
    char bytes[2];
    siginfo_t info;
    int file = file_with("01", O_RDONLY), other = SIGRTMIN + 1, seen = 0;
    struct aiocb blocks[] = {entry(LIO_READ, file, &bytes[0], 1, 0), entry(LIO_READ, file, &bytes[1], 1, 1)};
    struct aiocb *list[] = {&blocks[0], &blocks[1]};
    struct sigevent event = signal_event(other, 9);

    block_signal(SIGRTMIN);
    block_signal(other);
    for (int index = 0; index < 2; index++)
        blocks[index].aio_sigevent = signal_event(SIGRTMIN, index);
    HOLDS(lio_listio(LIO_NOWAIT, list, 2, &event) == 0);
    for (int index = 0; index < 2; index++) {
        HOLDS(accept_signal(SIGRTMIN, &info, patience()));
        seen |= 1 << info.si_value.sival_int;
    }
    HOLDS(seen == 3);
    HOLDS(accept_signal(other, &info, patience()) && info.si_value.sival_int == 9);
}

RULE(lio_listio, null_entries, "NULL entries are passed over.")
{
    char byte;
    struct aiocb block = entry(LIO_READ, file_with("x", O_RDONLY), &byte, 1, 0);
    struct aiocb *list[] = {NULL, &block, NULL};

    HOLDS(lio_listio(LIO_WAIT, list, 3, NULL) == 0 && aio_return(&block) == 1);
    HOLDS(lio_listio(LIO_NOWAIT, list, 3, NULL) == 0 && result_of(&block) == 1);
}

RULE(lio_listio, nop, "Entries with LIO_NOP are passed over, whatever else they say.")
{
    char byte = '.';
    struct aiocb nothing = entry(LIO_NOP, -1, &byte, 1, -1);
    struct aiocb block = entry(LIO_READ, file_with("x", O_RDONLY), &byte, 1, 0);
    struct aiocb *list[] = {&nothing, &block}, *alone[] = {&nothing};

    HOLDS(lio_listio(LIO_WAIT, list, 2, NULL) == 0 && aio_return(&block) == 1);
    HOLDS(lio_listio(LIO_WAIT, alone, 1, NULL) == 0);
    HOLDS(lio_listio(LIO_NOWAIT, alone, 1, NULL) == 0);
}

RULE(lio_listio, read, "LIO_READ is aio_read of the entry.")
{
    char bytes[] = "........";
    int file = file_with("0123456789", O_RDONLY);
    struct aiocb block = entry(LIO_READ, file, bytes, 3, 4), *list[] = {&block};

    HOLDS(lseek(file, 8, SEEK_SET) == 8);
    HOLDS(lio_listio(LIO_WAIT, list, 1, NULL) == 0);
    HOLDS(aio_return(&block) == 3 && memcmp(bytes, "456.....", 8) == 0);
}

RULE(lio_listio, write, "LIO_WRITE is aio_write of the entry.")
{
    char bytes[9];
    int file = file_with("0123456", O_RDWR);
    struct aiocb block = entry(LIO_WRITE, file, "ab", 2, 3), *list[] = {&block};

    HOLDS(lio_listio(LIO_WAIT, list, 1, NULL) == 0);
    HOLDS(aio_return(&block) == 2 && pread(file, bytes, 9, 0) == 7 && memcmp(bytes, "012ab56", 7) == 0);
}

RULE(lio_listio, failed, "With LIO_WAIT, when a request failed, it gives -1 and EIO.")
{
    char bytes[2];
    struct aiocb good = entry(LIO_READ, file_with("x", O_RDONLY), &bytes[0], 1, 0);
    struct aiocb bad = entry(LIO_READ, open(".", O_RDONLY), &bytes[1], 1, 0), *list[] = {&good, &bad};

    HOLDS(lio_listio(LIO_WAIT, list, 2, NULL) == -1 && errno == EIO);
    HOLDS(aio_error(&bad) == EISDIR && aio_return(&bad) == -1);
}

RULE(lio_listio, others_go_on, "A request that fails keeps no other from completing, wherever it stands.")
{
    char bytes[3];
    int file = file_with("012", O_RDONLY);

    for (int bad = 0; bad < 3; bad++) {
        struct aiocb blocks[3], *list[3];
        for (int index = 0; index < 3; index++) {
            blocks[index] = entry(LIO_READ, index == bad ? 999 : file, &bytes[index], 1, index);
            list[index] = &blocks[index];
        }
        HOLDS(lio_listio(LIO_WAIT, list, 3, NULL) == -1 && errno == EIO);
        for (int index = 0; index < 3; index++)
            HOLDS(index == bad ? aio_error(list[index]) == EBADF : aio_return(list[index]) == 1);
    }
}

RULE(lio_listio, errors, "The error statuses are those that aio_read and aio_write give.")
{
    char byte;
    struct aiocb blocks[] = {entry(LIO_READ, 999, &byte, 1, 0),
                             entry(LIO_WRITE, open("/dev/full", O_WRONLY), "x", 1, 0),
                             entry(LIO_READ, file_with("x", O_WRONLY), &byte, 1, 0),
                             entry(LIO_READ, file_with("x", O_RDONLY), &byte, 1, -1)};
    struct aiocb *list[] = {&blocks[0], &blocks[1], &blocks[2], &blocks[3]};
    static const int ERRORS[] = {EBADF, ENOSPC, EBADF, EINVAL};

    HOLDS(lio_listio(LIO_WAIT, list, 4, NULL) == -1 && errno == EIO);
    for (int index = 0; index < 4; index++)
        HOLDS(aio_error(list[index]) == ERRORS[index] && aio_return(list[index]) == -1);
}

RULE(lio_listio, offset_maximum, "LIO_WRITE from the largest offset on that a file may have is EFBIG.")
{
    struct aiocb block = entry(LIO_WRITE, file_with("x", O_WRONLY), "x", 1, LLONG_MAX), *list[] = {&block};

    HOLDS(lio_listio(LIO_WAIT, list, 1, NULL) == -1 && errno == EIO);
    HOLDS(aio_error(&block) == EFBIG && aio_return(&block) == -1);
}

RULE(lio_listio, canceled, "A request of a list that was canceled has ECANCELED, and the list is complete with it.")
{
    int pair[2];
    char bytes[2];
    siginfo_t info;

    block_signal(SIGRTMIN);
    pipe_pair(pair);
    struct aiocb blocks[] = {entry(LIO_READ, pair[0], &bytes[0], 1, 0), entry(LIO_READ, pair[0], &bytes[1], 1, 0)};
    struct aiocb *list[] = {&blocks[0], &blocks[1]};
    struct sigevent event = signal_event(SIGRTMIN, 4);
    HOLDS(lio_listio(LIO_NOWAIT, list, 2, &event) == 0);
    HOLDS(aio_cancel(pair[0], &blocks[1]) == AIO_CANCELED && aio_error(&blocks[1]) == ECANCELED);
    HOLDS(!accept_signal(SIGRTMIN, &info, 0.05));
    HOLDS(write(pair[1], "x", 1) == 1);
    HOLDS(accept_signal(SIGRTMIN, &info, patience()) && aio_return(&blocks[0]) == 1);
}

RULE(lio_listio, mode, "A mode that is none gives -1 and EINVAL, and nothing is submitted.")
{
    static const int MODES[] = {-1, 77};
    int pair[2];
    char byte = '.';

    pipe_pair(pair);
    HOLDS(write(pair[1], "x", 1) == 1);
    struct aiocb block = entry(LIO_READ, pair[0], &byte, 1, 0), *list[] = {&block};
    for (int index = 0; index < 2; index++) {
        errno = 0;
        HOLDS(lio_listio(MODES[index], list, 1, NULL) == -1 && errno == EINVAL);
    }
    let_happen();
    HOLDS(byte == '.' && read(pair[0], &byte, 1) == 1);
}

RULE(lio_listio, interrupted, "With LIO_WAIT a signal handler ends it with -1 and EINTR, and the requests go on.")
{
    int pair[2];
    char byte;
    /* Again and again: the first may come before the wait. */
    struct itimerval soon = {{0, 50000}, {0, 50000}}, never = {{0, 0}, {0, 0}};

    catch_signal(SIGALRM);
    pipe_pair(pair);
    struct aiocb block = entry(LIO_READ, pair[0], &byte, 1, 0), *list[] = {&block};
    HOLDS(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    HOLDS(lio_listio(LIO_WAIT, list, 1, NULL) == -1 && errno == EINTR);
    HOLDS(setitimer(ITIMER_REAL, &never, NULL) == 0);
    HOLDS(caught.count >= 1 && in_progress(&block));
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&block) == 1);
}

RULE(lio_listio, no_resources,
     "Without the means to queue the requests it fails with EAGAIN, or the requests have that status.")
{
    char byte;
    struct aiocb block = entry(LIO_READ, file_with("x", O_RDONLY), &byte, 1, 0), *list[] = {&block};

    forbid_threads();
    HOLDS(lio_listio(LIO_NOWAIT, list, 1, NULL) == -1);
    HOLDS(errno == EAGAIN || (errno == EIO && aio_error(&block) == EAGAIN));
}

RULE(lio_listio, thread, "The list need not outlive the call, nor the thread that submitted it.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = entry(LIO_READ, pair[0], &byte, 1, 0);
    {
        struct aiocb *list[] = {&block};
        HOLDS(lio_listio(LIO_NOWAIT, list, 1, NULL) == 0);
        list[0] = NULL;
    }
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&block) == 1);
}

PROMISE(lio_listio, bad_entries,
        "An entry that can't be submitted has EINVAL, the others are submitted, and it gives -1 and EIO.")
{
    char bytes[3];
    int file = file_with("012", O_RDONLY);

    for (int mode = 0; mode < 2; mode++) {
        struct aiocb blocks[] = {entry(77, file, &bytes[0], 1, 0), entry(LIO_READ, file, &bytes[1], 1, 1),
                                 entry(LIO_READ, file, &bytes[2], 1, 2)};
        struct aiocb *list[] = {&blocks[0], &blocks[1], &blocks[2]};
        blocks[2].aio_reqprio = -1;
        errno = 0;
        HOLDS(lio_listio(mode ? LIO_WAIT : LIO_NOWAIT, list, 3, NULL) == -1 && errno == EIO);
        HOLDS(aio_error(&blocks[0]) == EINVAL && aio_error(&blocks[2]) == EINVAL);
        HOLDS(result_of(&blocks[1]) == 1 && bytes[1] == '1');
    }
}

PROMISE(lio_listio, empty, "The event of a list without requests comes at once.")
{
    siginfo_t info;
    struct aiocb nothing = entry(LIO_NOP, -1, NULL, 0, 0), *list[] = {NULL, &nothing};
    struct sigevent event = signal_event(SIGRTMIN, 3);

    block_signal(SIGRTMIN);
    for (int length = 0; length <= 2; length++) {
        HOLDS(lio_listio(LIO_NOWAIT, list, length, &event) == 0);
        HOLDS(accept_signal(SIGRTMIN, &info, patience()) && info.si_value.sival_int == 3);
    }
    HOLDS(lio_listio(LIO_WAIT, list, 2, NULL) == 0);
}

PROMISE(lio_listio, negative, "A negative length gives -1 and EINVAL.")
{
    struct aiocb *list[] = {NULL};

    HOLDS(lio_listio(LIO_WAIT, list, -1, NULL) == -1 && errno == EINVAL);
}
