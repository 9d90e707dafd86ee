/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH 2.9.5, Thread Cancellation. */
#include "rule.h"

static struct aiocb pending;
static int pair[2];
static char byte;
static volatile sig_atomic_t waiting, cleaned, went_on;

static void start_pending(void)
{
    pipe_pair(pair);
    pending = request(pair[0], &byte, 1, 0);
    starts_read(&pending);
}

static void cleans(void *value)
{
    (void)value;
    cleaned = 1;
}

static void *suspends(void *value)
{
    const struct aiocb *list[] = {&pending};

    pthread_cleanup_push(cleans, NULL);
    waiting = 1;
    aio_suspend(list, 1, NULL);
    went_on = 1;
    pthread_cleanup_pop(0);
    return value;
}

RULE(threads, wakes, "A thread that waits in aio_suspend is woken and ended when it is canceled.")
{
    start_pending();
    pthread_t thread = thread_of(suspends, &pending);
    COMES(waiting);
    let_happen();
    HOLDS(pthread_cancel(thread) == 0);
    HOLDS(joined(thread) == PTHREAD_CANCELED && !went_on);
}

RULE(threads, cleanup, "Its cleanup handlers are run, and the request goes on.")
{
    start_pending();
    pthread_t thread = thread_of(suspends, &pending);
    COMES(waiting);
    let_happen();
    HOLDS(pthread_cancel(thread) == 0);
    HOLDS(joined(thread) == PTHREAD_CANCELED && cleaned);
    HOLDS(in_progress(&pending));
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&pending) == 1 && byte == 'x');
}

RULE(threads, others_wait_on, "Other threads that wait for the same request wait on.")
{
    start_pending();
    pthread_t first = thread_of(suspends, &pending), second = thread_of(suspends, &pending);
    COMES(waiting);
    let_happen();
    HOLDS(pthread_cancel(first) == 0 && joined(first) == PTHREAD_CANCELED);
    HOLDS(!went_on && write(pair[1], "x", 1) == 1);
    HOLDS(joined(second) == &pending && went_on);
}

static void *is_canceled_before(void *value)
{
    HOLDS(pthread_cancel(pthread_self()) == 0);
    return suspends(value);
}

RULE(threads, before, "A cancellation from before the call is acted upon in aio_suspend.")
{
    start_pending();
    HOLDS(joined(thread_of(is_canceled_before, &pending)) == PTHREAD_CANCELED && !went_on);
}

static void *is_canceled_in_vain(void *value)
{
    HOLDS(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    HOLDS(pthread_cancel(pthread_self()) == 0);
    return suspends(value);
}

RULE(threads, disabled, "With cancellation disabled aio_suspend waits and returns as ever.")
{
    start_pending();
    pthread_t thread = thread_of(is_canceled_in_vain, &pending);
    COMES(waiting);
    let_happen();
    HOLDS(!went_on && write(pair[1], "x", 1) == 1);
    HOLDS(joined(thread) == &pending && went_on);
}

/* Calls of functions that must not be cancellation points; each gives whether it did what it should. */
static int calls_read(void)
{
    return aio_read(&pending) == 0;
}

static int calls_write(void)
{
    return aio_write(&pending) == 0;
}

static int calls_fsync(void)
{
    return aio_fsync(O_SYNC, &pending) == 0;
}

static int calls_error(void)
{
    return aio_error(&pending) == 0;
}

static int calls_return(void)
{
    return aio_return(&pending) == 1;
}

static int calls_cancel(void)
{
    return aio_cancel(pending.aio_fildes, NULL) == AIO_ALLDONE;
}

static int (*call)(void);

/* A thread that is canceled before such a call. */
static void *is_canceled_and_calls(void *value)
{
    HOLDS(pthread_cancel(pthread_self()) == 0);
    went_on = call();
    pthread_testcancel();
    return value;
}

static void is_no_point(int (*function)(void))
{
    call = function;
    pending = request(file_with("x", O_RDWR), &byte, 1, 0);
    starts_read(&pending);
    HOLDS(done_within(&pending, patience()));
    HOLDS(joined(thread_of(is_canceled_and_calls, NULL)) == PTHREAD_CANCELED);
    HOLDS(went_on);
}

RULE(threads, aio_read, "aio_read is no cancellation point.")
{
    is_no_point(calls_read);
}

RULE(threads, aio_write, "aio_write is no cancellation point.")
{
    is_no_point(calls_write);
}

RULE(threads, aio_fsync, "aio_fsync is no cancellation point.")
{
    is_no_point(calls_fsync);
}

RULE(threads, aio_error, "aio_error is no cancellation point.")
{
    is_no_point(calls_error);
}

RULE(threads, aio_return, "aio_return is no cancellation point.")
{
    is_no_point(calls_return);
}

RULE(threads, aio_cancel, "aio_cancel is no cancellation point.")
{
    is_no_point(calls_cancel);
}

static void *closes(void *value)
{
    HOLDS(pthread_cancel(pthread_self()) == 0);
    close(pair[0]);
    went_on = 1;
    return value;
}

RULE(threads, close, "close is a cancellation point, also with requests on the descriptor.")
{
    start_pending();
    HOLDS(joined(thread_of(closes, &pending)) == PTHREAD_CANCELED && !went_on);
}
