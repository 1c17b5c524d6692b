/* Crash handler. Installed by the main thread, run by whichever thread the signal hits, on a stack
 * of its own; everything it calls is async-signal-safe (backtrace is loaded beforehand, which is
 * when it allocates). Afterwards the signal is raised again with its default action, so core dumps
 * and exit statuses are what they would have been. */
#include "app/common/crash.h"

#include "app/common/paths.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "ui/terminal.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <execinfo.h>
#endif

static char folder[PATH_MAX], path[PATH_MAX + 16];
static char stack[64 * 1024];
static atomic_flag entered = ATOMIC_FLAG_INIT;

static void write_text(int fd, const char *text)
{
    ssize_t put = write(fd, text, strlen(text));

    (void)put; /* an error cannot be handled here */
}

static const char *name_of(int number)
{
    switch (number) {
    case SIGSEGV: return "segmentation fault";
    case SIGBUS: return "bus error";
    case SIGILL: return "illegal instruction";
    case SIGFPE: return "arithmetic fault";
    case SIGABRT: return "failed assertion";
    default: return "signal";
    }
}

static void hexadecimal(unsigned long v, char out[20])
{
    char digits[20];
    int n = 0, at = 2;

    do {
        digits[n++] = "0123456789abcdef"[v & 15];
        v >>= 4;
    } while (v);
    memcpy(out, "0x", 2);
    while (n)
        out[at++] = digits[--n];
    out[at] = 0;
}

/* mkdir of every part; the folders are usually there. */
static void make_folder(void)
{
    for (char *p = folder + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(folder, 0700);
            *p = '/';
        }
    mkdir(folder, 0700);
}

static int write_log(int number, const char *address)
{
    int fd;
#ifdef __GLIBC__
    void *frames[64];
#endif

    if (!*path)
        return -1;
    make_folder();
    if ((fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                   0600)) < 0)
        return -1;
    write_text(fd, "moetop " MOETOP_VERSION ": ");
    write_text(fd, name_of(number));
    write_text(fd, " at ");
    write_text(fd, address);
    write_text(fd, "\n\n");
#ifdef __GLIBC__
    backtrace_symbols_fd(frames, backtrace(frames, 64), fd);
#else
    write_text(fd, "this C library lists no frames\n");
#endif
    write_text(fd, "\nnewest log lines:\n");
    log_dump(fd);
    close(fd);
    return 0;
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    char address[24];

    signal(number, SIG_DFL);
    /* a crash while reporting one, or of a second thread */
    if (atomic_flag_test_and_set(&entered)) {
        raise(number);
        return;
    }
    terminal_emergency_restore();
    hexadecimal((unsigned long)info->si_addr, address);
    write_text(STDERR_FILENO, "moetop: crashed (");
    write_text(STDERR_FILENO, name_of(number));
    if (write_log(number, address) == 0) {
        write_text(STDERR_FILENO, "); details are in ");
        write_text(STDERR_FILENO, path);
        write_text(STDERR_FILENO, "\n");
    } else {
        write_text(STDERR_FILENO, "); no log could be written\n");
    }
    raise(number);
}

static void *json_memory(size_t bytes)
{
    void *p = mem_resize(NULL, bytes, 1);

    if (p)
        return p;
    terminal_emergency_restore();
    write_text(STDERR_FILENO, "moetop: out of memory for JSON\n");
    _exit(error_exit_code(ERR_MEMORY));
}

void crash_guard_libraries(void)
{
    json_set_alloc_funcs(json_memory, mem_free);
}

void crash_install(void)
{
    paths_home("STATE", folder, sizeof folder);
    if (*folder) {
        strcpy(path, folder);
        strcat(path, "/crash.log");
    }
    atexit(terminal_emergency_restore);
/* sanitizers report more */
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    {
        static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
        struct sigaction a = {.sa_sigaction = on_crash,
                              .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
        stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
#ifdef __GLIBC__
        void *warm[1];

        backtrace(warm, 1);
#endif
        sigaltstack(&own, NULL);
        sigemptyset(&a.sa_mask);
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            sigaction(numbers[i], &a, NULL);
    }
#else
    (void)stack;
    (void)on_crash;
#endif
}
