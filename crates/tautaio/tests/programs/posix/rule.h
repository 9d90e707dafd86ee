/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Rules of POSIX.1-2024 for asynchronous I/O: one function each, named by the page that has it. */
#include "../try.h"

#include <dirent.h>
#include <sys/resource.h>

/* Whether POSIX says that it shall be so, or leaves it to the implementation, and tautaio(3) says how it is. */
enum kind { SHALL, OPEN };

struct rule {
    enum kind kind;
    int line;
    const char *page, *name, *text;
    void (*hold)(void);
};

/* Pointers, which have no gaps between them; the linker lines them up. */
#define RULE_OF_KIND(kind, page, name, text)                                                                          \
    static void page##_##name(void);                                                                                  \
    static const struct rule page##_##name##_rule = {kind, __LINE__, #page, #name, text, page##_##name};              \
    static const struct rule *const page##_##name##_entry __attribute__((used, section("rules"))) =                   \
        &page##_##name##_rule;                                                                                        \
    static void page##_##name(void)

/* A function that holds the rule, in a process of its own. The text is a sentence that begins with the name of the page
 * or with what it is about. */
#define RULE(page, name, text) RULE_OF_KIND(SHALL, page, name, text)
#define PROMISE(page, name, text) RULE_OF_KIND(OPEN, page, name, text)

/* Exit code of a rule that can't be tried here. */
enum { NOT_HERE = 77 };

/* Waits until something is so that is bound to become so. */
#define COMES(claim)                                                                                                  \
    do {                                                                                                              \
        for (double begin = now(); !(claim) && now() - begin < patience();)                                           \
            pause_ms(1);                                                                                              \
        HOLDS(claim);                                                                                                 \
    } while (0)

/* Whether all other threads of the process wait for something. */
static inline int others_sleep(void)
{
    DIR *threads = opendir("/proc/self/task");
    int asleep = 1;

    HOLDS(threads);
    for (struct dirent *thread; (thread = readdir(threads));) {
        char path[300], line[300] = "";
        if (thread->d_name[0] == '.' || atoi(thread->d_name) == gettid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t length = file < 0 ? 0 : read(file, line, sizeof line - 1);
        /* The state stands behind the name, which is in parentheses. */
        char *state = length > 0 ? strrchr(line, ')') : NULL;
        asleep &= !state || state[2] == 'S';
        if (file >= 0)
            close(file);
    }
    closedir(threads);
    return asleep;
}

/* Nothing that would happen wrongly takes longer: until no thread has anything to do, however busy the machine. */
static inline void let_happen(void)
{
    int quiet = 0;

    pause_ms(20);
    for (double begin = now(); quiet < 3 && now() - begin < patience(); pause_ms(4))
        quiet = others_sleep() ? quiet + 1 : 0;
}

static inline void pipe_pair(int pair[2])
{
    HOLDS(pipe(pair) == 0);
}

/* A file with this text, opened with these flags, its position at the start. */
static inline int file_with(const char *text, int flags)
{
    char name[] = "file-XXXXXX";
    int made = mkstemp(name);

    HOLDS(made >= 0 && write(made, text, strlen(text)) == (ssize_t)strlen(text));
    int fd = open(name, flags);
    HOLDS(fd >= 0 && unlink(name) == 0);
    HOLDS(close(made) == 0);
    return fd;
}

static inline void starts_read(struct aiocb *block)
{
    HOLDS(aio_read(block) == 0);
}

static inline void starts_write(struct aiocb *block)
{
    HOLDS(aio_write(block) == 0);
}

static inline int in_progress(const struct aiocb *block)
{
    return aio_error(block) == EINPROGRESS;
}

/* The error of a request that must fail, by the call or by its error status: POSIX allows both for most errors. */
static inline int error_of(int call, struct aiocb *block)
{
    if (call != 0) {
        HOLDS(call == -1);
        return errno;
    }
    HOLDS(result_of(block) == -1);
    return errno;
}

/* What handlers saw. */
static struct {
    volatile sig_atomic_t count;
    siginfo_t last;
} caught __attribute__((unused));

static inline void note_signal(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    caught.last = *info;
    caught.count++;
}

static inline void catch_signal(int number)
{
    struct sigaction action = {.sa_sigaction = note_signal, .sa_flags = SA_SIGINFO};

    HOLDS(sigaction(number, &action, NULL) == 0);
}

static inline sigset_t only(int number)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, number);
    return set;
}

static inline void block_signal(int number)
{
    sigset_t set = only(number);

    HOLDS(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}

/* The next pending signal of this number within that time. */
static inline int accept_signal(int number, siginfo_t *info, double seconds)
{
    sigset_t set = only(number);
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    return sigtimedwait(&set, info, &time) == number;
}

static inline struct sigevent signal_event(int number, int value)
{
    struct sigevent event;

    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = number;
    event.sigev_value.sival_int = value;
    return event;
}

static inline struct sigevent thread_event(void (*function)(union sigval), void *value)
{
    struct sigevent event;

    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD;
    event.sigev_notify_function = function;
    event.sigev_value.sival_ptr = value;
    return event;
}

static inline pthread_t thread_of(void *(*function)(void *), void *value)
{
    pthread_t thread;

    HOLDS(pthread_create(&thread, NULL, function, value) == 0);
    return thread;
}

/* The exit code of a child that ends in good time. */
static inline int exit_code_of(pid_t child)
{
    int status = 0;
    pid_t ended = 0;

    HOLDS(child > 0);
    COMES(ended != 0 || (ended = waitpid(child, &status, WNOHANG)) != 0);
    HOLDS(ended == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static inline void *does_nothing(void *value)
{
    return value;
}

/* From here on this process gets no thread more; ends the test where that can't be. */
static inline void forbid_threads(void)
{
    struct rlimit limit = {0, 0};
    pthread_t thread;

    /* The limit does not bind root. */
    if (geteuid() == 0 && setuid(65534) != 0)
        _exit(NOT_HERE);
    HOLDS(setrlimit(RLIMIT_NPROC, &limit) == 0);
    if (pthread_create(&thread, NULL, does_nothing, NULL) == 0)
        _exit(NOT_HERE);
}
