/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH, aio_suspend. */
#include "rule.h"

#include <limits.h>

/* Writes a byte a while later. */
static void *writes_later(void *pair)
{
    pause_ms(60);
    HOLDS(write(((int *)pair)[1], "x", 1) == 1);
    return pair;
}

static struct aiocb pending_read(int pair[2], char *byte)
{
    pipe_pair(pair);
    return request(pair[0], byte, 1, 0);
}

static int suspend_for(const struct aiocb *block, long milliseconds)
{
    const struct aiocb *list[] = {block};
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};

    return aio_suspend(list, 1, &time);
}

RULE(aio_suspend, waits, "It waits until one of the requests is complete, and returns 0.")
{
    int pairs[2][2];
    char bytes[2];
    struct aiocb first = pending_read(pairs[0], &bytes[0]), second = pending_read(pairs[1], &bytes[1]);
    const struct aiocb *list[] = {&first, &second};

    starts_read(&first);
    starts_read(&second);
    double begin = now();
    pthread_t writer = thread_of(writes_later, pairs[1]);
    HOLDS(aio_suspend(list, 2, NULL) == 0);
    HOLDS(now() - begin > 0.05);
    HOLDS(aio_error(&second) == 0 && in_progress(&first));
    HOLDS(joined(writer));
}

RULE(aio_suspend, complete_before,
     "When one is complete already it returns 0 without waiting, whatever else is pending.")
{
    int pair[2];
    char bytes[2];
    struct aiocb pending = pending_read(pair, &bytes[0]), done = request(file_with("x", O_RDONLY), &bytes[1], 1, 0);
    const struct aiocb *list[] = {&pending, &done};

    starts_read(&pending);
    starts_read(&done);
    HOLDS(result_of(&done) == 1);
    /* With nobody there who would complete the other. */
    for (int index = 0; index < 100; index++)
        HOLDS(aio_suspend(list, 2, NULL) == 0);
    HOLDS(in_progress(&pending));
}

RULE(aio_suspend, failed, "A request that failed is complete.")
{
    char byte;
    struct aiocb block = request(open(".", O_RDONLY), &byte, 1, 0);
    const struct aiocb *list[] = {&block};

    if (aio_read(&block) == 0)
        HOLDS(aio_suspend(list, 1, NULL) == 0 && aio_error(&block) == EISDIR);
}

RULE(aio_suspend, canceled, "A request that was canceled is complete.")
{
    int pair[2];
    char bytes[2];
    struct aiocb first = pending_read(pair, &bytes[0]), second = request(pair[0], &bytes[1], 1, 0);
    const struct aiocb *list[] = {&first, &second};

    starts_read(&first);
    starts_read(&second);
    HOLDS(aio_cancel(pair[0], &second) == AIO_CANCELED);
    HOLDS(aio_suspend(list, 2, NULL) == 0 && in_progress(&first));
}

RULE(aio_suspend, null_entries, "NULL entries are passed over.")
{
    int pair[2];
    char byte;
    struct aiocb block = pending_read(pair, &byte);
    const struct aiocb *list[] = {NULL, &block, NULL};
    struct timespec time = {0, 30000000};

    starts_read(&block);
    HOLDS(aio_suspend(list, 3, &time) == -1 && errno == EAGAIN);
    pthread_t writer = thread_of(writes_later, pair);
    HOLDS(aio_suspend(list, 3, NULL) == 0 && aio_error(&block) == 0);
    HOLDS(joined(writer));
}

RULE(aio_suspend, time_over, "When the time is over before one is complete it gives -1 and EAGAIN.")
{
    int pair[2];
    char byte;
    struct aiocb block = pending_read(pair, &byte);

    starts_read(&block);
    HOLDS(suspend_for(&block, 20) == -1 && errno == EAGAIN && in_progress(&block));
}

RULE(aio_suspend, clock, "The time is one of CLOCK_MONOTONIC, and it is not over before.")
{
    int pair[2];
    char byte;
    struct aiocb block = pending_read(pair, &byte);
    static const long TIMES[] = {1, 10, 100};

    starts_read(&block);
    for (int index = 0; index < 3; index++) {
        double begin = now();
        HOLDS(suspend_for(&block, TIMES[index]) == -1);
        HOLDS(now() - begin >= (double)TIMES[index] * 1e-3);
    }
}

RULE(aio_suspend, no_time, "A time of zero looks and does not wait.")
{
    int pair[2];
    char byte;
    struct aiocb block = pending_read(pair, &byte);

    starts_read(&block);
    HOLDS(suspend_for(&block, 0) == -1 && errno == EAGAIN);
    HOLDS(write(pair[1], "x", 1) == 1);
    COMES(suspend_for(&block, 0) == 0);
    HOLDS(aio_error(&block) == 0);
}

RULE(aio_suspend, in_time, "When one completes before the time is over it gives 0.")
{
    int pair[2];
    char byte;
    struct aiocb block = pending_read(pair, &byte);

    starts_read(&block);
    pthread_t writer = thread_of(writes_later, pair);
    HOLDS(suspend_for(&block, 100000) == 0 && aio_error(&block) == 0);
    HOLDS(joined(writer));
}

RULE(aio_suspend, interrupted, "A signal handler ends it with -1 and EINTR.")
{
    int pair[2];
    char byte;
    struct aiocb block = pending_read(pair, &byte);
    const struct aiocb *list[] = {&block};
    /* Again and again: the first may come before the wait. */
    struct itimerval soon = {{0, 50000}, {0, 50000}};

    catch_signal(SIGALRM);
    starts_read(&block);
    HOLDS(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    HOLDS(aio_suspend(list, 1, NULL) == -1 && errno == EINTR);
    HOLDS(caught.count >= 1 && in_progress(&block));
}

RULE(aio_suspend, own_signal,
     "The signal of the very request may end it: with EINTR, or 0, and the request is complete.")
{
    int pair[2];
    char byte;
    struct aiocb block = pending_read(pair, &byte);
    const struct aiocb *list[] = {&block};

    catch_signal(SIGRTMIN);
    block.aio_sigevent = signal_event(SIGRTMIN, 0);
    starts_read(&block);
    pthread_t writer = thread_of(writes_later, pair);
    int answer = aio_suspend(list, 1, NULL);
    HOLDS(answer == 0 || (answer == -1 && errno == EINTR));
    HOLDS(aio_error(&block) == 0);
    HOLDS(joined(writer));
}

RULE(aio_suspend, scanning, "Which one is complete is found by aio_error and aio_return.")
{
    enum { MANY = 8 };
    int pairs[MANY][2], found = 0;
    char bytes[MANY];
    struct aiocb blocks[MANY];
    const struct aiocb *list[MANY];

    for (int index = 0; index < MANY; index++) {
        blocks[index] = pending_read(pairs[index], &bytes[index]);
        list[index] = &blocks[index];
        starts_read(&blocks[index]);
    }
    pthread_t writer = thread_of(writes_later, pairs[5]);
    HOLDS(aio_suspend(list, MANY, NULL) == 0);
    for (int index = 0; index < MANY; index++)
        if (aio_error(&blocks[index]) != EINPROGRESS)
            HOLDS(index == 5 && aio_return(&blocks[index]) == 1 && ++found);
    HOLDS(found == 1 && joined(writer));
}

RULE(aio_suspend, write, "It waits for writes as well.")
{
    struct aiocb block = request(file_with("", O_WRONLY), "x", 1, 0);
    const struct aiocb *list[] = {&block};

    starts_write(&block);
    HOLDS(aio_suspend(list, 1, NULL) == 0 && aio_return(&block) == 1);
}

RULE(aio_suspend, list, "It waits for requests of lio_listio as well.")
{
    int pair[2];
    char byte;
    struct aiocb block = pending_read(pair, &byte), *list[] = {&block};
    const struct aiocb *waited[] = {&block};

    block.aio_lio_opcode = LIO_READ;
    HOLDS(lio_listio(LIO_NOWAIT, list, 1, NULL) == 0);
    pthread_t writer = thread_of(writes_later, pair);
    HOLDS(aio_suspend(waited, 1, NULL) == 0 && aio_return(&block) == 1);
    HOLDS(joined(writer));
}

RULE(aio_suspend, fsync, "It waits for synchronisations as well.")
{
    struct aiocb block = request(file_with("x", O_WRONLY), NULL, 0, 0);
    const struct aiocb *list[] = {&block};

    HOLDS(aio_fsync(O_SYNC, &block) == 0);
    HOLDS(aio_suspend(list, 1, NULL) == 0 && aio_return(&block) == 0);
}

static struct aiocb shared;

static void *suspends(void *none)
{
    const struct aiocb *list[] = {&shared};

    (void)none;
    HOLDS(aio_suspend(list, 1, NULL) == 0 && aio_error(&shared) == 0);
    return &shared;
}

RULE(aio_suspend, threads, "All threads that wait for a request go on when it is complete.")
{
    pthread_t threads[4];
    int pair[2];
    char byte;

    shared = pending_read(pair, &byte);
    starts_read(&shared);
    for (int index = 0; index < 4; index++)
        threads[index] = thread_of(suspends, NULL);
    pause_ms(50);
    HOLDS(write(pair[1], "x", 1) == 1);
    for (int index = 0; index < 4; index++)
        HOLDS(joined(threads[index]));
}

PROMISE(aio_suspend, nothing_to_wait_for, "A list with no entry or only NULL returns 0 at once.")
{
    const struct aiocb *list[] = {NULL, NULL};

    HOLDS(aio_suspend(list, 2, NULL) == 0 && aio_suspend(list, 0, NULL) == 0);
}

PROMISE(aio_suspend, invalid, "A negative length or an invalid time is EINVAL.")
{
    int pair[2];
    char byte;
    struct aiocb block = pending_read(pair, &byte);
    const struct aiocb *list[] = {&block};
    static const struct timespec TIMES[] = {{-1, 0}, {0, -1}, {0, 1000000000}};

    starts_read(&block);
    HOLDS(aio_suspend(list, -1, NULL) == -1 && errno == EINVAL);
    for (int index = 0; index < 3; index++) {
        errno = 0;
        HOLDS(aio_suspend(list, 1, &TIMES[index]) == -1 && errno == EINVAL);
    }
}

PROMISE(aio_suspend, long_time, "A time beyond all clocks is waited for.")
{
    int pair[2];
    char byte;
    struct aiocb block = pending_read(pair, &byte);
    const struct aiocb *list[] = {&block};
    struct timespec time = {LONG_MAX, 999999999};

    starts_read(&block);
    pthread_t writer = thread_of(writes_later, pair);
    HOLDS(aio_suspend(list, 1, &time) == 0 && joined(writer));
}
