/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Where two good things meet: each case is a place at which the library once hung, lost or misdirected data. */
#include "try.h"

#include <dirent.h>
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

/* The library looks what a file system is at the first request on it. The number that it opens for that has a request
 * already, which no hook saw closed. */
static void library_closes_its_own(void)
{
    int file = temporary("/dev/shm"), pair[2];
    char byte, bytes[4];

    HOLDS(write(file, "abcd", 4) == 4);
    start_library();
    stream_pair(pair);
    FILE *stream = fdopen(pair[0], "r+");
    struct aiocb pending = request(pair[0], &byte, 1, 0);
    HOLDS(aio_read(&pending) == 0);
    pause_ms(50);
    syscall(SYS_close, fileno(stream));
    struct aiocb read_file = request(file, bytes, 4, 0);
    HOLDS(aio_read(&read_file) == 0 && result_of(&read_file) == 4);
}

/* The same with a number that was never open. */
static void library_opens_what_was_not_open(void)
{
    int file = temporary("/dev/shm"), closed;
    char bytes[4], more[4];

    HOLDS(write(file, "abcd", 4) == 4);
    start_library();
    closed = dup(file);
    close(closed);
    struct aiocb good = request(file, bytes, 4, 0), bad = request(closed, more, 4, 0);
    struct aiocb *list[] = {&good, &bad};
    good.aio_lio_opcode = bad.aio_lio_opcode = LIO_READ;
    HOLDS(lio_listio(LIO_NOWAIT, list, 2, NULL) == 0);
    HOLDS(result_of(&good) == 4);
    HOLDS(result_of(&bad) == -1 && errno == EBADF);
    HOLDS(close(file) == 0);
}

static void refuse_close_range(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};

    HOLDS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    HOLDS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void closefrom_under_a_filter(void)
{
    int pair[2], secret = open("/dev/null", O_RDONLY);
    struct stat null, other;
    char byte;

    start_library();
    stream_pair(pair);
    struct aiocb pending = request(pair[0], &byte, 1, 0);
    HOLDS(aio_read(&pending) == 0);
    HOLDS(fstat(secret, &null) == 0 && fcntl(secret, F_DUPFD, 500) >= 500);
    refuse_close_range(EPERM);
    errno = 0;
    HOLDS(close_range((unsigned)pair[0], (unsigned)pair[0], 0) == -1 && errno == EPERM);
    /* What failed has done nothing. */
    HOLDS(aio_error(&pending) == EINPROGRESS);
    for (int number = 0; number < 300; number++)
        HOLDS(dup(secret) >= 0);
    closefrom(secret);
    /* The library's own descriptors are left. */
    for (int number = secret; number < 1024; number++)
        HOLDS(fstat(number, &other) == -1 || other.st_rdev != null.st_rdev);
    HOLDS(aio_error(&pending) == ECANCELED);
    HOLDS(open("/dev/null", O_RDONLY) == secret);
    start_library();
}

static void closefrom_without_a_number_left(void)
{
    struct rlimit limit = {64, 64};
    int first = open("/dev/null", O_RDONLY);

    HOLDS(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (dup(first) >= 0)
        ;
    refuse_close_range(ENOSYS);
    closefrom(first);
    for (int number = first; number < 64; number++)
        HOLDS(fcntl(number, F_GETFD) == -1);
}

static void closefrom_that_can_not_tell(void)
{
    if (fork() == 0) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 1, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {5, filter};
        struct rlimit none = {0, 0};

        setrlimit(RLIMIT_CORE, &none);
        HOLDS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        HOLDS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        closefrom(3);
        _exit(0);
    }
    int status;
    HOLDS(wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void reads_of_nothing(void)
{
    int datagrams[2], silent[2], tube[2];
    char bytes[8];

    HOLDS(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0);
    HOLDS(write(datagrams[1], "one", 3) == 3);
    stream_pair(silent);
    HOLDS(pipe(tube) == 0);
    int each[] = {datagrams[0], silent[0], tube[0]};
    for (int index = 0; index < 3; index++) {
        struct aiocb nothing = request(each[index], bytes, 0, 0);
        HOLDS(read(each[index], bytes, 0) == 0);
        HOLDS(aio_read(&nothing) == 0 && result_of(&nothing) == 0);
    }
    /* The datagram is still there. */
    HOLDS(recv(datagrams[0], bytes, 8, MSG_DONTWAIT) == 3);
}

static void a_sync_looks_at_two_members(void)
{
    int file = temporary(".");
    struct aiocb sync;

    memset(&sync, 0xaa, sizeof sync);
    sync.aio_fildes = file;
    sync.aio_sigevent.sigev_notify = SIGEV_NONE;
    HOLDS(aio_fsync(O_SYNC, &sync) == 0 && result_of(&sync) == 0);
    memset(&sync, 0xff, sizeof sync);
    sync.aio_fildes = file;
    sync.aio_sigevent.sigev_notify = SIGEV_NONE;
    HOLDS(aio_fsync(O_DSYNC, &sync) == 0 && result_of(&sync) == 0);
}

/* Of the library alone. */
ssize_t aio_waitcomplete(struct aiocb **block, struct timespec *time) __attribute__((weak));

/* aio_waitcomplete(2) gives what was complete before anybody called it. */
static void completed_before_it_was_asked_for(void)
{
    int file = temporary(".");
    struct aiocb write_it = request(file, "abc", 3, 0), *given = NULL;
    struct timespec time = {5, 0};

    HOLDS(aio_waitcomplete != NULL);
    signal(SIGUSR1, SIG_IGN);
    write_it.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
    write_it.aio_sigevent.sigev_signo = SIGUSR1;
    HOLDS(aio_write(&write_it) == 0 && done_within(&write_it, 20));
    HOLDS(aio_waitcomplete(&given, &time) == 3 && given == &write_it);
    /* What was collected otherwise does not come up. */
    HOLDS(aio_write(&write_it) == 0 && result_of(&write_it) == 3);
    time.tv_sec = 0;
    HOLDS(aio_waitcomplete(&given, &time) == -1 && errno == EAGAIN && given == NULL);
}

static int policy_of_function = -1;
static char name_of_function[32];

static void look_at_itself(union sigval value)
{
    pthread_getname_np(pthread_self(), name_of_function, sizeof name_of_function);
    __atomic_store_n((int *)value.sival_ptr, sched_getscheduler(0), __ATOMIC_SEQ_CST);
}

/* The policies of the library's threads, one bit each; its functions' in `policy_of_function`. */
static unsigned policies_of_library(void)
{
    int file = temporary(".");
    struct aiocb write_it = request(file, "abc", 3, 0);
    unsigned policies = 0;

    write_it.aio_sigevent.sigev_notify = SIGEV_THREAD;
    write_it.aio_sigevent.sigev_notify_function = look_at_itself;
    write_it.aio_sigevent.sigev_value.sival_ptr = &policy_of_function;
    HOLDS(aio_write(&write_it) == 0 && result_of(&write_it) == 3);
    while (__atomic_load_n(&policy_of_function, __ATOMIC_SEQ_CST) == -1)
        pause_ms(1);
    HOLDS(strncmp(name_of_function, "tautaio", 7) != 0);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *comm = fopen(path, "r");
        if (comm && fgets(name, sizeof name, comm) && strncmp(name, "tautaio", 7) == 0)
            policies |= 1u << sched_getscheduler(atoi(entry->d_name));
        if (comm)
            fclose(comm);
    }
    closedir(tasks);
    HOLDS(policies != 0);
    return policies;
}

static void set_policy(int policy, int priority)
{
    struct sched_param parameters = {priority};

    if (sched_setscheduler(0, policy, &parameters) != 0)
        _exit(77);
}

static void ordinary_functions_stay_ordinary(void)
{
    policies_of_library();
    HOLDS(policy_of_function == SCHED_OTHER);
}

static void real_time_is_not_demoted(void)
{
    set_policy(SCHED_FIFO, 1);
    HOLDS(policies_of_library() == 1u << SCHED_FIFO);
    HOLDS(policy_of_function == SCHED_FIFO);
}

static void idle_is_not_lifted(void)
{
    set_policy(SCHED_IDLE, 0);
    HOLDS(policies_of_library() == 1u << SCHED_IDLE);
    HOLDS(policy_of_function == SCHED_IDLE);
}

/* On one processor, whoever asks all the time keeps it from the library's thread. Prints nanoseconds a read. */
static void polls_on_one_processor(void)
{
    int file = temporary("/dev/shm");
    static char page[4096];
    cpu_set_t one;
    long reads = 0;

    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    HOLDS(sched_setaffinity(0, sizeof one, &one) == 0);
    HOLDS(pwrite(file, page, sizeof page, 0) == sizeof page);
    double begin = now();
    while (now() - begin < 1) {
        struct aiocb read_it = request(file, page, sizeof page, 0);
        HOLDS(aio_read(&read_it) == 0);
        while (aio_error(&read_it) == EINPROGRESS)
            ;
        HOLDS(aio_return(&read_it) == sizeof page);
        reads++;
    }
    printf("%.0f\n", (now() - begin) * 1e9 / (double)reads);
}

/* A pipe write goes in parts. The number is closed by system call between them and used for a file. */
static void a_write_in_parts_keeps_its_pipe(void)
{
    enum { LENGTH = 400000 };
    int tube[2], victim;
    char *data = malloc(LENGTH), taken[65536];
    size_t got = 0;
    struct stat status;

    start_library();
    HOLDS(pipe(tube) == 0);
    memset(data, 'P', LENGTH);
    struct aiocb write_it = request(tube[1], data, LENGTH, 0);
    HOLDS(aio_write(&write_it) == 0);
    pause_ms(100);
    syscall(SYS_close, tube[1]);
    victim = temporary(".");
    HOLDS(victim == tube[1]);
    while (got < LENGTH) {
        ssize_t part = read(tube[0], taken, sizeof taken);
        HOLDS(part > 0);
        got += (size_t)part;
    }
    HOLDS(result_of(&write_it) == LENGTH);
    HOLDS(fstat(victim, &status) == 0 && status.st_size == 0);
}

/* Nothing is written to a file that gets the number before the library's thread comes to the request. */
static void a_number_used_again_at_once(int by_name)
{
    char secret[8] = "secret";

    start_library();
    for (int turn = 0; turn < 300; turn++) {
        struct stat status;
        int first = temporary(".");
        struct aiocb write_it = request(first, secret, 6, 0);
        HOLDS(aio_write(&write_it) == 0);
        if (by_name) {
            FILE *stream = fdopen(first, "r+");
            fclose(stream);
        } else {
            syscall(SYS_close, first);
        }
        int second = temporary(".");
        HOLDS(second == first);
        ssize_t result = result_of(&write_it);
        HOLDS(result == 6 || errno == ECANCELED);
        HOLDS(fstat(second, &status) == 0 && status.st_size == 0);
        close(second);
    }
}

static void a_file_closed_by_system_call(void) { a_number_used_again_at_once(0); }
static void a_file_closed_by_fclose(void) { a_number_used_again_at_once(1); }

/* A socket's data go to that socket, also when its number is another socket's before the thread looks. */
static void a_socket_closed_at_once(void)
{
    start_library();
    for (int turn = 0; turn < 300; turn++) {
        int first[2], second[2];
        char byte = 'x', taken;
        stream_pair(first);
        stream_pair(second);
        struct aiocb write_it = request(first[0], &byte, 1, 0);
        HOLDS(aio_write(&write_it) == 0);
        HOLDS(syscall(SYS_dup2, second[0], first[0]) == first[0]);
        HOLDS(result_of(&write_it) == 1);
        HOLDS(read(first[1], &taken, 1) == 1 && taken == 'x');
        /* The library keeps nothing of it. */
        HOLDS(read(first[1], &taken, 1) == 0);
        HOLDS(recv(second[1], &taken, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
        close(first[0]), close(first[1]), close(second[0]), close(second[1]);
    }
}

/* All eventfds have one inode; what is queued on one never reads the other. */
static void anonymous_files_are_told_apart(void)
{
    uint64_t first = 0, second = 0, one = 1;
    int old = eventfd(0, 0), copy = dup(old), young;

    start_library();
    struct aiocb begun = request(old, &first, 8, 0), waiting = request(old, &second, 8, 0);
    HOLDS(aio_read(&begun) == 0 && aio_read(&waiting) == 0);
    pause_ms(50);
    syscall(SYS_close, old);
    young = eventfd(77, 0);
    HOLDS(young == old);
    HOLDS(write(copy, &one, 8) == 8 && result_of(&begun) == 8 && first == 1);
    HOLDS(write(copy, &one, 8) == 8 && result_of(&waiting) == 8 && second == 1);
    /* Nor does what comes later go to the old one. */
    struct aiocb later = request(young, &second, 8, 0);
    HOLDS(aio_read(&later) == 0 && result_of(&later) == 8 && second == 77);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    struct aiocb tick = request(timer, &first, 8, 0);
    HOLDS(aio_read(&tick) == 0 && timerfd_settime(timer, 0, &soon, NULL) == 0);
    HOLDS(result_of(&tick) == 8 && first >= 1);
}

/* What is queued behind a pending read has the file that it was queued on. */
static void what_waits_keeps_its_file(void)
{
    int first[2], second[2];
    char one, two;

    start_library();
    stream_pair(first);
    stream_pair(second);
    struct aiocb begun = request(first[0], &one, 1, 0), waiting = request(first[0], &two, 1, 0);
    HOLDS(aio_read(&begun) == 0 && aio_read(&waiting) == 0);
    pause_ms(50);
    HOLDS(syscall(SYS_dup2, second[0], first[0]) == first[0]);
    HOLDS(write(second[1], "BB", 2) == 2);
    HOLDS(write(first[1], "A", 1) == 1 && result_of(&begun) == 1 && one == 'A');
    HOLDS(write(first[1], "a", 1) == 1 && result_of(&waiting) == 1 && two == 'a');
    struct aiocb other = request(first[0], &one, 1, 0);
    HOLDS(aio_read(&other) == 0 && result_of(&other) == 1 && one == 'B');
}

/* Somebody closes all that he does not know, by system call: no file of his gets anything, and requests go on. */
static void its_own_descriptors_are_closed(void)
{
    int pair[2], tube[2], files[64];
    char byte;
    struct stat status;

    start_library();
    stream_pair(pair);
    HOLDS(pipe(tube) == 0);
    struct aiocb pending = request(tube[0], &byte, 1, 0);
    HOLDS(aio_read(&pending) == 0);
    pause_ms(50);
    for (int turn = 0; turn < 2; turn++) {
        for (int number = 3; number < 1024; number++)
            if (number != pair[0] && number != pair[1] && number != tube[0] && number != tube[1])
                syscall(SYS_close, number);
        for (int index = 0; index < 64; index++) {
            files[index] = temporary(".");
            HOLDS(files[index] >= 0);
            /* Where the library's were. */
            HOLDS(syscall(SYS_dup2, files[index], 960 + index) == 960 + index);
        }
        for (int requests = 0; requests < 20; requests++) {
            struct aiocb read_one = request(pair[0], &byte, 1, 0), write_one = request(pair[1], "y", 1, 0);
            HOLDS(aio_read(&read_one) == 0 && aio_write(&write_one) == 0);
            HOLDS(result_of(&write_one) == 1 && result_of(&read_one) == 1 && byte == 'y');
        }
        for (int index = 0; index < 64; index++)
            HOLDS(fstat(files[index], &status) == 0 && status.st_size == 0);
    }
    HOLDS(write(tube[1], "z", 1) == 1);
    HOLDS(result_of(&pending) == 1 || errno == ECANCELED);
}

/* Record locks of the process stay: they go when any descriptor of the file is closed. */
static void record_locks_stay(void)
{
    char name[] = "lockedXXXXXX", bytes[4] = "abc";
    int file = mkstemp(name);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    HOLDS(fcntl(file, F_SETLK, &lock) == 0);
    for (int turn = 0; turn < 20; turn++) {
        struct aiocb write_it = request(file, bytes, 3, 0), sync = request(file, NULL, 0, 0);
        HOLDS(aio_write(&write_it) == 0 && aio_fsync(O_SYNC, &sync) == 0);
        HOLDS(result_of(&write_it) == 3 && result_of(&sync) == 0);
    }
    pause_ms(50);
    if (fork() == 0) {
        int again = open(name, O_RDWR);
        _exit(fcntl(again, F_SETLK, &lock) == -1 && errno == EAGAIN ? 0 : 1);
    }
    int status;
    HOLDS(wait(&status) > 0 && status == 0);
}

/* With few descriptors left, requests go on, and the program finds room for its own. */
static void descriptors_run_out(void)
{
    struct rlimit limit = {128, 128};
    int pairs[40][2], spare;
    char bytes[40], more[40][10];
    struct aiocb reads[40], queued[40][10];

    HOLDS(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    start_library();
    for (int index = 0; index < 40; index++) {
        stream_pair(pairs[index]);
        reads[index] = request(pairs[index][0], &bytes[index], 1, 0);
        HOLDS(aio_read(&reads[index]) == 0);
        for (int place = 0; place < 10; place++) {
            queued[index][place] = request(pairs[index][0], &more[index][place], 1, 0);
            HOLDS(aio_read(&queued[index][place]) == 0);
        }
    }
    HOLDS((spare = dup(0)) >= 0);
    while (dup(0) >= 0)
        ;
    for (int index = 0; index < 40; index++) {
        HOLDS(write(pairs[index][1], "0123456789a", 11) == 11);
        HOLDS(result_of(&reads[index]) == 1 && bytes[index] == '0');
        for (int place = 0; place < 10; place++)
            HOLDS(result_of(&queued[index][place]) == 1 && more[index][place] == "123456789a"[place]);
        struct aiocb write_it = request(pairs[index][0], "w", 1, 0);
        HOLDS(aio_write(&write_it) == 0 && result_of(&write_it) == 1);
    }
}

static void *waits_in_suspend(void *pointer)
{
    struct aiocb *pending = pointer;
    const struct aiocb *list[] = {pending};

    aio_suspend(list, 1, NULL);
    return pointer;
}

/* POSIX, XSH 2.9.5.2: aio_suspend() shall be a cancellation point. */
static void aio_suspend_is_a_cancellation_point(void)
{
    int pair[2];
    char byte;

    stream_pair(pair);
    for (int turn = 0; turn < 50; turn++) {
        struct aiocb pending = request(pair[0], &byte, 1, 0);
        pthread_t thread;
        HOLDS(aio_read(&pending) == 0);
        HOLDS(pthread_create(&thread, NULL, waits_in_suspend, &pending) == 0);
        /* Some of them before they wait. */
        if (turn % 5 != 0)
            pause_ms(turn % 5);
        HOLDS(pthread_cancel(thread) == 0);
        HOLDS(joined(thread) == PTHREAD_CANCELED);
        /* The request goes on, and others may wait for it. */
        HOLDS(aio_error(&pending) == EINPROGRESS);
        HOLDS(write(pair[1], "x", 1) == 1 && result_of(&pending) == 1);
    }
}

static struct aiocb shared_request;
static int writer_pair[2];
static volatile int writer_turns, writer_stop;

static void *writes_for_ever(void *pointer)
{
    while (!writer_stop) {
        shared_request = request(writer_pair[0], "hello", 5, 0);
        HOLDS(aio_write(&shared_request) == 0);
        while (aio_error(&shared_request) == EINPROGRESS)
            ;
        HOLDS(aio_return(&shared_request) == 5);
        writer_turns++;
    }
    return pointer;
}

static void *drains(void *pointer)
{
    char bytes[4096];

    while (read(writer_pair[1], bytes, sizeof bytes) > 0)
        ;
    return pointer;
}

/* POSIX lists aio_write neither among those that shall nor among those that may be cancellation points. */
static void aio_write_is_no_cancellation_point(void)
{
    pthread_t thread, other;

    stream_pair(writer_pair);
    pthread_create(&other, NULL, drains, NULL);
    pthread_create(&thread, NULL, writes_for_ever, &writer_pair);
    while (writer_turns < 3)
        pause_ms(1);
    HOLDS(pthread_cancel(thread) == 0);
    int before = writer_turns;
    pause_ms(200);
    HOLDS(writer_turns > before);
    writer_stop = 1;
    HOLDS(joined(thread) == &writer_pair);
    struct aiocb last = request(writer_pair[0], "last", 4, 0);
    HOLDS(aio_write(&last) == 0 && result_of(&last) == 4);
}

static volatile long handled;
static struct aiocb in_handler;

static void writes_in_handler(int number)
{
    int before = errno;
    const struct aiocb *list[] = {&in_handler};

    in_handler = request(writer_pair[0], "h", 1, 0);
    HOLDS(aio_write(&in_handler) == 0);
    while (aio_error(&in_handler) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    HOLDS(aio_return(&in_handler) == 1);
    handled += number > 0;
    errno = before;
}

/* aio_write and aio_suspend are async-signal-safe: also in a handler that interrupts a write on the same socket. */
static void a_handler_waits_for_its_write(void)
{
    sigset_t all, before;
    pthread_t other;
    struct sigaction action = {.sa_handler = writes_in_handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};

    stream_pair(writer_pair);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    start_library();
    pthread_create(&other, NULL, drains, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    HOLDS(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (double begin = now(); now() - begin < 2 || handled < 200;) {
        struct aiocb block = request(writer_pair[0], "m", 1, 0);
        const struct aiocb *list[] = {&block};
        HOLDS(aio_write(&block) == 0);
        while (aio_error(&block) == EINPROGRESS)
            aio_suspend(list, 1, NULL);
        HOLDS(aio_return(&block) == 1);
    }
    setitimer(ITIMER_REAL, &never, NULL);
}

/* A fork while another thread submits on the socket that the child uses. */
static void forks_amid_submissions(void)
{
    pthread_t thread, other;

    stream_pair(writer_pair);
    pthread_create(&other, NULL, drains, NULL);
    pthread_create(&thread, NULL, writes_for_ever, &writer_pair);
    while (writer_turns < 3)
        pause_ms(1);
    for (int turn = 0; turn < 200; turn++) {
        pid_t child = fork();
        if (child == 0) {
            struct aiocb block = request(writer_pair[0], "c", 1, 0);
            _exit(aio_write(&block) == 0 && result_of(&block) == 1 ? 0 : 1);
        }
        int status;
        HOLDS(waitpid(child, &status, 0) == child && status == 0);
    }
    writer_stop = 1;
    HOLDS(joined(thread) == &writer_pair);
}

static pid_t early_child;

/* Stands before the C library's function: forks in the moment in which the library registers its handlers, if that is in the
 * middle of its start. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *handle);
static int starts;

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *handle)
{
    static int (*next)(void (*)(void), void (*)(void), void (*)(void), void *);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "__register_atfork");
    if (starts && early_child == 0 && (early_child = fork()) == 0) {
        struct aiocb block = request(writer_pair[0], "c", 1, 0);
        _exit(aio_write(&block) == 0 && result_of(&block) == 1 ? 0 : 1);
    }
    return next(prepare, parent, child, handle);
}

static void a_fork_amid_the_start(void)
{
    int status;

    stream_pair(writer_pair);
    starts = 1;
    start_library();
    starts = 0;
    if (early_child > 0) {
        for (double begin = now(); waitpid(early_child, &status, WNOHANG) == 0; pause_ms(10))
            if (now() - begin > 20) {
                kill(early_child, SIGKILL);
                HOLDS(!"the child's start ends");
            }
        HOLDS(status == 0);
    }
}

enum { MANY = 19000 };
static int sockets[MANY];
static struct aiocb socket_reads[MANY];

static void read_from_sockets(int count)
{
    static char bytes[MANY];

    for (int index = 0; index < count; index++)
        if ((sockets[index] = socket(AF_INET, SOCK_DGRAM, 0)) < 0)
            _exit(77);
    for (int index = 0; index < count; index++) {
        socket_reads[index] = request(sockets[index], &bytes[index], 1, 0);
        HOLDS(aio_read(&socket_reads[index]) == 0);
    }
}

/* Processor time of this process, in microseconds. */
static double used_time(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Closes these sockets; gives the processor time. */
static double close_sockets(int from, int to)
{
    double begun = used_time();

    for (int index = from; index < to; index++)
        HOLDS(close(sockets[index]) == 0);
    return used_time() - begun;
}

/* Prints microseconds of processor time for closing a descriptor with a pending read: one of ten;
   the first 1000 of 19,000, the oldest first, which the kernel takes longest to find; and all. */
static void closes_many(void)
{
    enum { FEW = 10, ROUNDS = 200, PART = 1000 };
    struct rlimit limit;
    double few = 0, part, all;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int round = 0; round < ROUNDS; round++) {
        read_from_sockets(FEW);
        pause_ms(1);
        few += close_sockets(0, FEW);
    }
    read_from_sockets(MANY);
    pause_ms(500);
    part = close_sockets(0, PART);
    all = part + close_sockets(PART, MANY);
    printf("%.2f %.2f %.2f\n", few / (FEW * ROUNDS), part / PART, all / MANY);
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
#define CASE(name) {#name, name}
    CASE(library_closes_its_own),
    CASE(library_opens_what_was_not_open),
    CASE(closefrom_under_a_filter),
    CASE(closefrom_without_a_number_left),
    CASE(closefrom_that_can_not_tell),
    CASE(reads_of_nothing),
    CASE(a_sync_looks_at_two_members),
    CASE(completed_before_it_was_asked_for),
    CASE(ordinary_functions_stay_ordinary),
    CASE(real_time_is_not_demoted),
    CASE(idle_is_not_lifted),
    CASE(polls_on_one_processor),
    CASE(a_write_in_parts_keeps_its_pipe),
    CASE(a_file_closed_by_system_call),
    CASE(a_file_closed_by_fclose),
    CASE(a_socket_closed_at_once),
    CASE(anonymous_files_are_told_apart),
    CASE(what_waits_keeps_its_file),
    CASE(its_own_descriptors_are_closed),
    CASE(record_locks_stay),
    CASE(descriptors_run_out),
    CASE(aio_suspend_is_a_cancellation_point),
    CASE(aio_write_is_no_cancellation_point),
    CASE(a_handler_waits_for_its_write),
    CASE(forks_amid_submissions),
    CASE(a_fork_amid_the_start),
    CASE(closes_many),
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
