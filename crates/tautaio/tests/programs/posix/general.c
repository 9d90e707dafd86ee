/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH 2.8.2, Asynchronous I/O. */
#include "rule.h"

#include <sys/mman.h>
#include <termios.h>

RULE(general, silent, "With SIGEV_NONE no signal is sent, and the error and the result are set all the same.")
{
    int pair[2];
    char byte;

    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        catch_signal(number);
    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    block.aio_sigevent.sigev_signo = SIGRTMIN;
    starts_read(&block);
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&block) == 1);
    let_happen();
    HOLDS(caught.count == 0);
}

RULE(general, handle, "The block's address is the request's handle: equal blocks at two addresses are two requests.")
{
    int pair[2];
    char bytes[2];

    pipe_pair(pair);
    struct aiocb first = request(pair[0], bytes, 1, 0), second = first;
    starts_read(&first);
    starts_read(&second);
    HOLDS(aio_cancel(pair[0], &second) == AIO_CANCELED);
    HOLDS(aio_error(&second) == ECANCELED && in_progress(&first));
}

RULE(general, memory, "Once the error status is not EINPROGRESS, neither block nor buffer is used any more.")
{
    enum { ROUNDS = 200 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int pair[2];

    pipe_pair(pair);
    for (int round = 0; round < ROUNDS; round++) {
        char *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        HOLDS(memory != MAP_FAILED);
        struct aiocb *block = (struct aiocb *)(void *)memory;
        *block = request(pair[0], memory + 2048, 1, 0);
        starts_read(block);
        HOLDS(write(pair[1], "x", 1) == 1);
        while (in_progress(block))
            ;
        /* Whoever touches it now ends the process. */
        HOLDS(munmap(memory, page) == 0);
    }
    let_happen();
}

RULE(general, used_again, "A block may be used for another request once its own is complete.")
{
    int pair[2];
    char byte;
    struct aiocb block;

    pipe_pair(pair);
    for (int round = 0; round < 500; round++) {
        char sent = (char)round;
        block = request(pair[0], &byte, 1, 0);
        starts_read(&block);
        HOLDS(write(pair[1], &sent, 1) == 1);
        HOLDS(result_of(&block) == 1 && byte == sent);
    }
}

RULE(general, result, "The result is the number of bytes that were moved.")
{
    static char bytes[100000];
    int file = file_with("", O_RDWR);
    struct aiocb whole = request(file, bytes, sizeof bytes, 0), part = request(file, bytes, sizeof bytes, 40000);

    starts_write(&whole);
    HOLDS(result_of(&whole) == sizeof bytes);
    starts_read(&part);
    HOLDS(result_of(&part) == 60000);
}

RULE(general, priorities, "Each aio_reqprio from 0 to {AIO_PRIO_DELTA_MAX} is accepted.")
{
    int file = file_with("x", O_RDWR);
    long most = sysconf(_SC_AIO_PRIO_DELTA_MAX);

    for (int priority = 0; priority <= most; priority++) {
        char byte;
        struct aiocb block = request(file, &byte, 1, 0);
        block.aio_reqprio = priority;
        starts_read(&block);
        HOLDS(result_of(&block) == 1);
    }
}

RULE(general, own_priority, "aio_reqprio does not change how the process is scheduled.")
{
    int file = file_with("x", O_RDWR);
    char byte;
    struct sched_param before, after;
    int policy = sched_getscheduler(0), nice_before = getpriority(PRIO_PROCESS, 0);

    HOLDS(sched_getparam(0, &before) == 0);
    struct aiocb block = request(file, &byte, 1, 0);
    block.aio_reqprio = (int)sysconf(_SC_AIO_PRIO_DELTA_MAX);
    starts_read(&block);
    HOLDS(result_of(&block) == 1);
    HOLDS(sched_getscheduler(0) == policy && getpriority(PRIO_PROCESS, 0) == nice_before);
    HOLDS(sched_getparam(0, &after) == 0 && before.sched_priority == after.sched_priority);
}

/* Both ends of a terminal that hands on what it gets. */
static void raw_terminal(int ends[2])
{
    struct termios settings;

    ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
    HOLDS(ends[0] >= 0 && grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0);
    ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
    HOLDS(ends[1] >= 0 && tcgetattr(ends[1], &settings) == 0);
    cfmakeraw(&settings);
    HOLDS(tcsetattr(ends[1], TCSANOW, &settings) == 0);
}

RULE(general, device_reads, "Reads of a character device with one priority are served first in, first out.")
{
    enum { MANY = 20 };
    struct aiocb blocks[MANY];
    char bytes[MANY];
    int ends[2];

    raw_terminal(ends);
    for (int index = 0; index < MANY; index++) {
        blocks[index] = request(ends[1], &bytes[index], 1, 0);
        starts_read(&blocks[index]);
    }
    for (int index = 0; index < MANY; index++) {
        char byte = (char)('a' + index);
        HOLDS(write(ends[0], &byte, 1) == 1);
        HOLDS(result_of(&blocks[index]) == 1 && bytes[index] == byte);
    }
}

RULE(general, device_writes, "Writes to a character device with one priority are served first in, first out.")
{
    enum { MANY = 20 };
    struct aiocb blocks[MANY];
    char bytes[MANY], got[MANY];
    int ends[2], count = 0;

    raw_terminal(ends);
    for (int index = 0; index < MANY; index++) {
        bytes[index] = (char)('a' + index);
        blocks[index] = request(ends[1], &bytes[index], 1, 0);
        starts_write(&blocks[index]);
    }
    while (count < MANY) {
        ssize_t more = read(ends[0], got + count, (size_t)(MANY - count));
        HOLDS(more > 0);
        count += (int)more;
    }
    HOLDS(memcmp(got, bytes, MANY) == 0);
    for (int index = 0; index < MANY; index++)
        HOLDS(result_of(&blocks[index]) == 1);
}

static struct aiocb from_thread;
static char byte_of_thread;

static void *submits(void *fd)
{
    from_thread = request(*(int *)fd, &byte_of_thread, 1, 0);
    starts_read(&from_thread);
    return fd;
}

RULE(general, thread_ends, "Requests are the process's: they go on when the thread that submitted them has ended.")
{
    int pair[2];

    pipe_pair(pair);
    pthread_t thread = thread_of(submits, &pair[0]);
    HOLDS(pthread_join(thread, NULL) == 0);
    let_happen();
    HOLDS(in_progress(&from_thread));
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&from_thread) == 1 && byte_of_thread == 'x');
}

static void *works(void *value)
{
    int file = *(int *)value;

    for (int round = 0; round < 200; round++) {
        char byte = 0;
        struct aiocb block = request(file, &byte, 1, round % 10);
        starts_read(&block);
        HOLDS(result_of(&block) == 1 && byte == '0' + round % 10);
    }
    return value;
}

RULE(general, thread_safe, "The functions may be called by several threads at a time.")
{
    pthread_t threads[8];
    int file = file_with("0123456789", O_RDONLY);

    for (int index = 0; index < 8; index++)
        threads[index] = thread_of(works, &file);
    for (int index = 0; index < 8; index++)
        HOLDS(pthread_join(threads[index], NULL) == 0);
}

PROMISE(general, bad_events, "An unknown sigev_notify and a signal that is none are EINVAL at once.")
{
    char byte;
    struct aiocb block = request(file_with("x", O_RDONLY), &byte, 1, 0);

    block.aio_sigevent.sigev_notify = 77;
    HOLDS(aio_read(&block) == -1 && errno == EINVAL);
    errno = 0;
    block.aio_sigevent = signal_event(SIGRTMAX + 1, 0);
    HOLDS(aio_read(&block) == -1 && errno == EINVAL);
}
