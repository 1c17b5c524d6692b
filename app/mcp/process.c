/* See process.h. posix_spawn, not fork: a copy of a process with a large model is expensive. */
#include "app/mcp/process.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLITE_NS (500 * CLOCK_MILLI) /* after its input was closed, */
#define TERM_NS (2 * CLOCK_SECOND)    /* and after SIGTERM */

extern char **environ;

/* ---- the environment ---- */

/* Names of variables that are passed on; one with a "_" at its end stands for all that begin so. */
static const char *const passed_on[] = {"HOME",
                                        "LOGNAME",
                                        "USER",
                                        "SHELL",
                                        "PATH",
                                        "TERM",
                                        "LANG",
                                        "LC_",
                                        "TZ",
                                        "TMPDIR",
                                        "XDG_",
                                        "SSL_",
                                        "NODE_EXTRA_CA_CERTS"};

static bool is_passed_on(const char *variable)
{
    size_t n = strcspn(variable, "=");

    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        size_t m = strlen(passed_on[i]);

        if (strncmp(variable, passed_on[i], m) == 0 && (n == m || passed_on[i][m - 1] == '_'))
            return true;
    }
    return false;
}

static bool is_set(char *const *env, const char *variable)
{
    size_t n = strcspn(variable, "=") + 1;

    for (; *env; env++)
        if (strncmp(*env, variable, n) == 0)
            return true;
    return false;
}

/* A list of borrowed strings, mem_*; NULL: no memory. */
static char **environment_of(const struct mcp_server_config *config)
{
    size_t ours = 0, own = 0, n = 0;
    char **list;

    while (environ && environ[ours])
        ours++;
    while (config->env[own])
        own++;
    if (!(list = mem_alloc(ours + own + 1, sizeof *list)))
        return NULL;
    for (size_t i = 0; i < ours; i++)
        if (is_passed_on(environ[i]) && !is_set(config->env, environ[i]))
            list[n++] = environ[i];
    memcpy(list + n, config->env, own * sizeof *list);
    return list;
}

/* ---- start ---- */

static void close_all(int fds[6])
{
    for (int i = 0; i < 6; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* fds: reading and writing ends of input, output and error. */
static int make_pipes(int fds[6])
{
    for (int i = 0; i < 6; i += 2)
        if (pipe2(fds + i, O_CLOEXEC) < 0)
            return -1;
    return 0;
}

/* What the child does before it becomes the server. No pipe is below 3: the program starts with
 * these descriptors open. */
static int set_up(posix_spawn_file_actions_t *files, posix_spawnattr_t *how, const int fds[6],
                  const char *cwd)
{
    sigset_t all, none;
    int rc = 0;

    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(how, &all);
    posix_spawnattr_setsigmask(how, &none);
    rc |= posix_spawnattr_setflags(how, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
                                            POSIX_SPAWN_SETSIGMASK);
    rc |= posix_spawn_file_actions_adddup2(files, fds[0], 0);
    rc |= posix_spawn_file_actions_adddup2(files, fds[3], 1);
    rc |= posix_spawn_file_actions_adddup2(files, fds[5], 2);
    rc |= posix_spawn_file_actions_addclosefrom_np(files, 3);
    if (cwd)
        rc |= posix_spawn_file_actions_addchdir_np(files, cwd);
    return rc;
}

static int spawn(pid_t *pid, const struct mcp_server_config *config, const int fds[6])
{
    char **env = environment_of(config);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    int rc;

    if (!env)
        return ENOMEM;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    rc = set_up(&files, &how, fds, config->cwd)
             ? ENOMEM
             : posix_spawnp(pid, config->command, &files, &how, config->argv, env);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    mem_free(env);
    return rc;
}

int mcp_process_start(struct mcp_process *p, const struct mcp_server_config *config,
                      struct error *e)
{
    int fds[6] = {-1, -1, -1, -1, -1, -1}, rc;

    *p = (struct mcp_process){0, -1, -1, -1};
    if (make_pipes(fds) < 0) {
        rc = errno;
        close_all(fds);
        return error_set(e, ERR_IO, "no pipe for it: %s", strerror(rc));
    }
    rc = spawn(&p->pid, config, fds);
    if (rc) {
        p->pid = 0;
        close_all(fds);
        return error_set(e, ERR_IO, "%s cannot be started: %s%s%s", config->command, strerror(rc),
                         config->cwd ? " in " : "", config->cwd ? config->cwd : "");
    }
    close(fds[0]);
    close(fds[3]);
    close(fds[5]);
    p->in = fds[1];
    p->out = fds[2];
    p->err = fds[4];
    fcntl(p->in, F_SETFL, O_NONBLOCK);
    fcntl(p->out, F_SETFL, O_NONBLOCK);
    fcntl(p->err, F_SETFL, O_NONBLOCK);
    return 0;
}

/* ---- end ---- */

/* Whether it has ended; it is not reaped, so that its process group cannot become another one. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == pid;
}

static bool ends_within(pid_t pid, uint64_t ns)
{
    uint64_t until = clock_now() + ns;

    while (!has_ended(pid)) {
        if (clock_now() >= until)
            return false;
        clock_sleep(5 * CLOCK_MILLI);
    }
    return true;
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void mcp_process_end(struct mcp_process *p, bool at_once, char *text, size_t size)
{
    int status = 0;
    bool itself;

    if (size)
        *text = 0;
    close_one(&p->in);
    if (p->pid) {
        itself = has_ended(p->pid) || ends_within(p->pid, at_once ? 0 : POLITE_NS);
        if (!itself) {
            kill(-p->pid, SIGTERM);
            ends_within(p->pid, TERM_NS);
        }
        kill(-p->pid, SIGKILL); /* what it started and left behind, too */
        while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (itself && WIFEXITED(status))
            snprintf(text, size, "exit status %d", WEXITSTATUS(status));
        else if (itself && WIFSIGNALED(status))
            snprintf(text, size, "signal %d", WTERMSIG(status));
    }
    close_one(&p->out);
    close_one(&p->err);
    *p = (struct mcp_process){0, -1, -1, -1};
}
