/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Signal handlers that do what they may, in any moment: they fork and return, jump out of a call, and close. */
#include "try.h"

#include <setjmp.h>

#define SECONDS 2.0

static void every(long microseconds, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, microseconds}, {0, microseconds}};

    sigemptyset(&action.sa_mask);
    HOLDS(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void no_more(void)
{
    struct itimerval never = {{0, 0}, {0, 0}};

    HOLDS(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static void pair_of_sockets(int pair[2])
{
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
}

/* What the library does before signals come: its start holds them up. */
static void start(void)
{
    int pair[2];
    char byte = 0;

    pair_of_sockets(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    HOLDS(aio_write(&block) == 0 && done_within(&block, patience()) && aio_return(&block) == 1);
    close(pair[0]);
    close(pair[1]);
}

static volatile pid_t child;
static volatile sig_atomic_t is_child, children;

static void forks(int number)
{
    int before = errno;

    (void)number;
    if (!child && !is_child) {
        pid_t made = fork();
        if (made == 0) {
            is_child = 1;
            /* Whatever hangs ends it. */
            signal(SIGALRM, SIG_DFL);
            alarm(60);
        } else if (made > 0)
            child = made;
    }
    errno = before;
}

/* A write, a read, a cancellation and a close with a pending read: each of them may be interrupted. */
static void one_turn(void)
{
    int pair[2];
    char from = 1, to = 0, never = 0;

    pair_of_sockets(pair);
    /* Parent and child have the sockets in common: when a fork comes between the write and the read, both read. */
    HOLDS(write(pair[0], "abc", 3) == 3);
    struct aiocb write_block = request(pair[0], &from, 1, 0);
    struct aiocb read_block = request(pair[1], &to, 1, 0);
    struct aiocb left = request(pair[0], &never, 1, 0);
    HOLDS(aio_write(&write_block) == 0 && aio_read(&read_block) == 0 && aio_read(&left) == 0);
    HOLDS(done_within(&write_block, patience()));
    /* What was the parent's at the time of the fork is canceled in the child. */
    if (aio_error(&write_block) == 0 && !is_child)
        HOLDS(done_within(&read_block, patience()) && (is_child || aio_return(&read_block) == 1));
    aio_cancel(pair[1], &read_block);
    HOLDS(close(pair[0]) == 0);
    HOLDS(done_within(&left, patience()) && aio_error(&left) == ECANCELED);
    HOLDS(close(pair[1]) == 0);
}

/* The child returns from the handler into whatever was interrupted, and goes on. */
static void handlers_that_fork(void)
{
    start();
    every(700, forks);
    for (double begin = now(); now() - begin < SECONDS || children < 50;) {
        one_turn();
        if (is_child) {
            for (int turn = 0; turn < 3; turn++)
                one_turn();
            _exit(0);
        }
        if (child) {
            int status = -1;
            pid_t waited;
            while ((waited = waitpid(child, &status, 0)) < 0 && errno == EINTR)
                ;
            HOLDS(waited == child && status == 0);
            children++;
            child = 0;
        }
    }
    no_more();
}

static sigjmp_buf back;
static volatile sig_atomic_t may_jump, jumps;

static void leaps(int number)
{
    (void)number;
    if (may_jump) {
        may_jump = 0;
        jumps++;
        siglongjmp(back, 1);
    }
}

/* Fills the stack where the call was that was left, and sees that it stays so. */
static __attribute__((noinline)) void watch_the_stack(void)
{
    volatile unsigned char filled[16384];

    for (size_t place = 0; place < sizeof filled; place++)
        filled[place] = 0x5a;
    pause_ms(5);
    for (size_t place = 0; place < sizeof filled; place++)
        HOLDS(filled[place] == 0x5a);
}

/* A close with thousands of reads takes a while. More often than there are places for those who wait. */
static void handlers_that_leap(void)
{
    enum { READS = 3000, JUMPS = 80 };
    static struct aiocb reads[READS];
    static char bytes[READS];
    int pair[2];

    start();
    for (volatile int turn = 0; turn < 1000 && jumps < JUMPS; turn++) {
        pair_of_sockets(pair);
        for (int index = 0; index < READS; index++) {
            reads[index] = request(pair[0], &bytes[index], 1, 0);
            HOLDS(aio_read(&reads[index]) == 0);
        }
        if (sigsetjmp(back, 1) == 0) {
            every(200, leaps);
            may_jump = 1;
            close(pair[0]);
            may_jump = 0;
        } else
            watch_the_stack();
        no_more();
        /* The call may have been left before it closed anything. */
        close(pair[0]);
        for (int index = 0; index < READS; index++)
            HOLDS(done_within(&reads[index], patience()) && aio_error(&reads[index]) == ECANCELED);
        close(pair[1]);
    }
    printf("%d jumps\n", (int)jumps);
    HOLDS(jumps > 0);
}

/* Whoever left a wait is as cancelable as before, and others wait on. */
static void handlers_that_leap_out_of_a_wait(void)
{
    static struct aiocb never;
    static char byte;
    int pair[2];

    start();
    pair_of_sockets(pair);
    never = request(pair[0], &byte, 1, 0);
    HOLDS(aio_read(&never) == 0);
    jumps = 0;
    for (volatile int turn = 0; turn < 300; turn++) {
        const struct aiocb *list[] = {&never};
        int type, wanted = turn % 2 ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;

        HOLDS(pthread_setcanceltype(wanted, &type) == 0);
        if (sigsetjmp(back, 1) == 0) {
            may_jump = 1;
            every(20 + turn, leaps);
            for (;;)
                aio_suspend(list, 1, NULL);
        }
        no_more();
        HOLDS(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type) == 0 && type == wanted);
        HOLDS(aio_error(&never) == EINPROGRESS);
    }
    HOLDS(jumps == 300);
    HOLDS(write(pair[1], "x", 1) == 1 && done_within(&never, patience()) && aio_return(&never) == 1);
}

static volatile sig_atomic_t to_be_closed = -1;

static void closes(int number)
{
    int before = errno, fd = to_be_closed;

    (void)number;
    if (fd >= 0) {
        to_be_closed = -1;
        close(fd);
    }
    errno = before;
}

/* The descriptor of a submission is closed in its middle: it is canceled, refused, or goes on with
   its file. It ends. */
static void handlers_that_close(void)
{
    start();
    every(300, closes);
    for (double begin = now(); now() - begin < SECONDS;) {
        int pair[2];
        char byte = 0, sent = 7;

        pair_of_sockets(pair);
        struct aiocb read_block = request(pair[0], &byte, 1, 0), write_block = request(pair[0], &sent, 1, 0);
        to_be_closed = pair[0];
        int submitted = aio_read(&read_block) == 0, written = aio_write(&write_block) == 0;
        while (to_be_closed >= 0)
            pause_ms(0);
        HOLDS(close(pair[1]) == 0);
        HOLDS(!submitted || done_within(&read_block, patience()));
        HOLDS(!written || done_within(&write_block, patience()));
    }
    no_more();
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
#define CASE(name) {#name, name}
    CASE(handlers_that_fork),
    CASE(handlers_that_leap),
    CASE(handlers_that_leap_out_of_a_wait),
    CASE(handlers_that_close),
};

int main(int count, char **arguments)
{
    for (size_t index = 0; count == 2 && index < sizeof CASES / sizeof *CASES; index++)
        if (strcmp(arguments[1], CASES[index].name) == 0) {
            CASES[index].run();
            fflush(NULL);
            _exit(0);
        }
    fprintf(stderr, "one of the cases' names is wanted\n");
    return 2;
}
