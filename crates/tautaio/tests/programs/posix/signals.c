/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH 2.4, Signal Concepts: how an event is told, and what handlers may call. */
#include "rule.h"

static struct aiocb told_read(int fd, char *byte, struct sigevent event)
{
    struct aiocb block = request(fd, byte, 1, 0);

    block.aio_sigevent = event;
    return block;
}

RULE(signals, value, "With SA_SIGINFO the handler gets sigev_value, and SI_ASYNCIO as si_code.")
{
    char byte;
    struct aiocb block = told_read(file_with("x", O_RDONLY), &byte, signal_event(SIGUSR1, 12345));

    catch_signal(SIGUSR1);
    starts_read(&block);
    COMES(caught.count == 1);
    HOLDS(caught.last.si_signo == SIGUSR1 && caught.last.si_code == SI_ASYNCIO);
    HOLDS(caught.last.si_value.sival_int == 12345);
}

RULE(signals, pointer, "sigev_value may be a pointer.")
{
    char byte;
    struct sigevent event = signal_event(SIGRTMIN, 0);

    event.sigev_value.sival_ptr = &byte;
    struct aiocb block = told_read(file_with("x", O_RDONLY), &byte, event);
    catch_signal(SIGRTMIN);
    starts_read(&block);
    COMES(caught.count == 1);
    HOLDS(caught.last.si_value.sival_ptr == &byte);
}

RULE(signals, queued, "The signals of several requests are queued, each with its value.")
{
    enum { MANY = 20 };
    struct aiocb blocks[MANY];
    char bytes[MANY];
    unsigned seen = 0;
    siginfo_t info;
    int file = file_with("x", O_RDONLY);

    block_signal(SIGRTMIN);
    for (int index = 0; index < MANY; index++) {
        blocks[index] = told_read(file, &bytes[index], signal_event(SIGRTMIN, index));
        starts_read(&blocks[index]);
    }
    for (int index = 0; index < MANY; index++) {
        HOLDS(accept_signal(SIGRTMIN, &info, patience()) && info.si_code == SI_ASYNCIO);
        seen |= 1u << info.si_value.sival_int;
    }
    HOLDS(seen == (1u << MANY) - 1 && !accept_signal(SIGRTMIN, &info, 0.03));
}

RULE(signals, in_order, "The queued signals of one number come in the order in which the requests ended.")
{
    enum { MANY = 10 };
    struct aiocb blocks[MANY];
    char bytes[MANY];
    siginfo_t info;
    int pair[2];

    block_signal(SIGRTMIN);
    pipe_pair(pair);
    for (int index = 0; index < MANY; index++) {
        blocks[index] = told_read(pair[0], &bytes[index], signal_event(SIGRTMIN, index));
        starts_read(&blocks[index]);
    }
    for (int index = 0; index < MANY; index++)
        HOLDS(write(pair[1], "x", 1) == 1 && done_within(&blocks[index], patience()));
    for (int index = 0; index < MANY; index++)
        HOLDS(accept_signal(SIGRTMIN, &info, patience()) && info.si_value.sival_int == index);
}

RULE(signals, pending, "A blocked signal stays pending until it is accepted.")
{
    char byte;
    sigset_t pending;
    siginfo_t info;
    struct aiocb block = told_read(file_with("x", O_RDONLY), &byte, signal_event(SIGRTMIN, 7));

    block_signal(SIGRTMIN);
    starts_read(&block);
    HOLDS(result_of(&block) == 1);
    COMES(sigpending(&pending) == 0 && sigismember(&pending, SIGRTMIN) == 1);
    HOLDS(accept_signal(SIGRTMIN, &info, 0) && info.si_value.sival_int == 7);
}

static volatile sig_atomic_t waits, took;

static void *takes_signal(void *none)
{
    sigset_t set = only(SIGRTMIN);

    HOLDS(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    waits = 1;
    COMES(caught.count == 1);
    took = 1;
    return none;
}

RULE(signals, process, "The signal is the process's: a thread that does not block it gets it.")
{
    char byte;
    struct aiocb block = told_read(file_with("x", O_RDONLY), &byte, signal_event(SIGRTMIN, 7));

    catch_signal(SIGRTMIN);
    block_signal(SIGRTMIN);
    pthread_t thread = thread_of(takes_signal, &block);
    COMES(waits);
    starts_read(&block);
    COMES(took);
    HOLDS(joined(thread));
}

RULE(signals, ignored, "An ignored signal is nothing to the request.")
{
    char byte;
    struct aiocb block = told_read(file_with("x", O_RDONLY), &byte, signal_event(SIGRTMIN, 7));

    signal(SIGRTMIN, SIG_IGN);
    starts_read(&block);
    HOLDS(result_of(&block) == 1);
    let_happen();
}

static struct aiocb observed;
static volatile sig_atomic_t status_in_handler = -2, result_in_handler = -2, suspended_in_handler = -2;

static void looks(int number)
{
    const struct aiocb *list[] = {&observed};

    (void)number;
    status_in_handler = aio_error(&observed);
    suspended_in_handler = aio_suspend(list, 1, NULL);
    result_in_handler = (sig_atomic_t)aio_return(&observed);
}

RULE(signals, after_status, "When the handler runs the error status is final, and the result may be collected.")
{
    char byte;

    observed = told_read(file_with("x", O_RDONLY), &byte, signal_event(SIGRTMIN, 0));
    signal(SIGRTMIN, looks);
    starts_read(&observed);
    COMES(result_in_handler != -2);
    HOLDS(status_in_handler == 0 && suspended_in_handler == 0 && result_in_handler == 1);
}

static volatile sig_atomic_t handled;

static void looks_often(int number)
{
    const struct aiocb *list[] = {&observed};
    struct timespec none = {0, 0};
    int saved = errno;

    (void)number;
    if (aio_error(&observed) != 0 || aio_suspend(list, 1, &none) != 0 || aio_return(&observed) < 0)
        _exit(3);
    handled++;
    errno = saved;
}

RULE(signals, safe,
     "aio_error, aio_return and aio_suspend may be called in a handler that interrupts any of the functions.")
{
    int file = file_with("x", O_RDONLY);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = looks_often, .sa_flags = SA_RESTART};
    char bytes[2];

    observed = request(file, &bytes[0], 1, 0);
    starts_read(&observed);
    HOLDS(done_within(&observed, patience()));
    HOLDS(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (double begin = now(); now() - begin < 0.2;) {
        struct aiocb block = request(file, &bytes[1], 1, 0);
        starts_read(&block);
        HOLDS(result_of(&block) == 1 && aio_cancel(file, NULL) == AIO_ALLDONE);
    }
    HOLDS(setitimer(ITIMER_REAL, &never, NULL) == 0 && handled > 0);
}

static struct {
    volatile sig_atomic_t calls;
    void *value;
    pthread_t self;
    int state, blocked;
    size_t stack;
} call;

static void is_called(union sigval value)
{
    pthread_attr_t attributes;
    sigset_t mask;

    call.value = value.sival_ptr;
    call.self = pthread_self();
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getdetachstate(&attributes, &call.state);
        pthread_attr_getstacksize(&attributes, &call.stack);
        pthread_attr_destroy(&attributes);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int number = 1; number <= SIGRTMAX; number++)
        call.blocked += sigismember(&mask, number) == 1;
    call.calls++;
}

RULE(signals, function, "With SIGEV_THREAD the function is called once, with sigev_value, in another thread.")
{
    char byte;
    struct aiocb block = told_read(file_with("x", O_RDONLY), &byte, thread_event(is_called, &byte));

    starts_read(&block);
    COMES(call.calls == 1);
    HOLDS(call.value == &byte && !pthread_equal(call.self, pthread_self()) && aio_return(&block) == 1);
    let_happen();
    HOLDS(call.calls == 1);
}

RULE(signals, detached, "Without attributes its thread is a detached one.")
{
    char byte;
    struct aiocb block = told_read(file_with("x", O_RDONLY), &byte, thread_event(is_called, NULL));

    starts_read(&block);
    COMES(call.calls == 1);
    HOLDS(call.state == PTHREAD_CREATE_DETACHED);
}

RULE(signals, attributes, "With attributes its thread has them, as the size of its stack.")
{
    enum { STACK = 3 << 20 };
    char byte;
    pthread_attr_t attributes;
    struct sigevent event = thread_event(is_called, NULL);

    HOLDS(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK) == 0);
    HOLDS(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    event.sigev_notify_attributes = &attributes;
    struct aiocb block = told_read(file_with("x", O_RDONLY), &byte, event);
    starts_read(&block);
    COMES(call.calls == 1);
    HOLDS(call.stack == STACK);
}

static volatile sig_atomic_t leaves;

static void exits(union sigval value)
{
    (void)value;
    leaves++;
    pthread_exit(NULL);
}

RULE(signals, exit, "The function is as a thread's start routine: it may end with pthread_exit.")
{
    char byte;
    int file = file_with("x", O_RDONLY);

    for (int round = 1; round <= 5; round++) {
        struct aiocb block = told_read(file, &byte, thread_event(exits, NULL));
        starts_read(&block);
        COMES(leaves == round);
    }
}

static struct aiocb again;
static char again_byte;

static void submits_again(union sigval value)
{
    (void)value;
    if (++handled < 20) {
        HOLDS(aio_return(&again) == 1);
        starts_read(&again);
    }
}

RULE(signals, from_function, "The function may submit requests, the same block among them.")
{
    again = told_read(file_with("x", O_RDONLY), &again_byte, thread_event(submits_again, NULL));
    starts_read(&again);
    COMES(handled == 20);
}

PROMISE(signals, mask, "The function's thread blocks no signal.")
{
    char byte;
    struct aiocb block = told_read(file_with("x", O_RDONLY), &byte, thread_event(is_called, NULL));

    starts_read(&block);
    COMES(call.calls == 1);
    HOLDS(call.blocked == 0);
}

PROMISE(signals, sender, "The signal's sender is the process itself and its user.")
{
    char byte;
    struct aiocb block = told_read(file_with("x", O_RDONLY), &byte, signal_event(SIGRTMIN, 0));

    catch_signal(SIGRTMIN);
    starts_read(&block);
    COMES(caught.count == 1);
    HOLDS(caught.last.si_pid == getpid() && caught.last.si_uid == getuid());
}

PROMISE(signals, no_interruption, "Without a handler no request of its own interrupts a thread that waits.")
{
    int pair[2];
    char byte;
    struct timespec time = {0, 80000000};

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    if (fork() == 0) {
        pause_ms(30);
        _exit(write(pair[1], "x", 1) == 1 ? 0 : 1);
    }
    HOLDS(nanosleep(&time, NULL) == 0);
    HOLDS(result_of(&block) == 1);
}
