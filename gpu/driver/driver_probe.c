/* See driver_probe.h. One child per driver, so that the bad one can be named; the loader is pointed
 * at a folder with only the good ones. Results are cached by the driver's file, size and time: a
 * new version is tried again. */
#include "gpu/driver/driver_probe.h"
#include "engine/base/cache.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "gpu/driver/functions.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DRIVERS_MAX 16
#define TOUCHED 16384   /* values in the child's test */
#define WRONG_VALUES 17 /* the child's exit code */
/* seconds: a slow compiler on a busy machine is no broken driver */
#define PATIENCE 30

extern char **environ;

struct driver {
    char icd[PATH_MAX]; /* its file in the vendors' folder */
    char library[256];  /* the library it names */
    char fault[128];    /* empty: good */
};

static struct {
    pthread_mutex_t lock;
    char program[PATH_MAX], vendors[PATH_MAX], cache[PATH_MAX];
    int seconds;
    bool set, done, again;
    char note[512];
} probe = {.lock = PTHREAD_MUTEX_INITIALIZER};

void driver_probe_set(const struct driver_probe *p)
{
    pthread_mutex_lock(&probe.lock);
    snprintf(probe.program, sizeof probe.program, "%s", p->program);
    snprintf(probe.vendors, sizeof probe.vendors, "%s",
             p->vendors && *p->vendors ? p->vendors : "/etc/OpenCL/vendors");
    snprintf(probe.cache, sizeof probe.cache, "%s", p->cache_dir ? p->cache_dir : "");
    probe.seconds = p->seconds ? p->seconds : PATIENCE;
    probe.again = p->again;
    probe.set = true;
    probe.done = false;
    probe.note[0] = '\0';
    pthread_mutex_unlock(&probe.lock);
}

/* The child: a small version of a driver's first use, in the order of a job: copy, kernel, copy,
 * none of them awaited. False: the results are wrong. A device that refuses something is not at
 * fault: opening it will report the error. */
static bool touch_device(cl_device_id id)
{
    static const char *const source = "__kernel void touch(__global const int *x, __global int *y) "
                                      "{ int i = get_global_id(0); y[i] = x[i] * 3 + 1; }";
    cl_context context = cl.CreateContext(NULL, 1, &id, NULL, NULL, NULL);
    cl_command_queue queue =
        context ? cl.CreateCommandQueue(context, id, CL_QUEUE_PROFILING_ENABLE, NULL) : NULL;
    cl_program program = queue ? cl.CreateProgramWithSource(
                                     context, 1, (const char **)(uintptr_t)&source, NULL, NULL)
                               : NULL;
    static int x[TOUCHED], y[TOUCHED];
    cl_mem in = program ? cl.CreateBuffer(context, CL_MEM_READ_WRITE, sizeof x, NULL, NULL) : NULL;
    cl_mem out = in ? cl.CreateBuffer(context, CL_MEM_READ_WRITE, sizeof y, NULL, NULL) : NULL;
    size_t n = TOUCHED;
    cl_event ev[3];

    if (!out || cl.BuildProgram(program, 1, &id, "", NULL, NULL) != CL_SUCCESS)
        return true;
    cl_kernel kernel = cl.CreateKernel(program, "touch", NULL);

    if (!kernel)
        return true;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < TOUCHED; i++) {
            x[i] = round * 1000 + i;
            y[i] = 0;
        }
        if (cl.SetKernelArg(kernel, 0, sizeof in, &in) != CL_SUCCESS ||
            cl.SetKernelArg(kernel, 1, sizeof out, &out) != CL_SUCCESS ||
            cl.EnqueueWriteBuffer(queue, in, CL_FALSE, 0, sizeof x, x, 0, NULL, &ev[0]) !=
                CL_SUCCESS ||
            cl.EnqueueNDRangeKernel(queue, kernel, 1, NULL, &n, NULL, 0, NULL, &ev[1]) !=
                CL_SUCCESS ||
            cl.EnqueueReadBuffer(queue, out, CL_FALSE, 0, sizeof y, y, 0, NULL, &ev[2]) !=
                CL_SUCCESS ||
            cl.Flush(queue) != CL_SUCCESS || cl.Finish(queue) != CL_SUCCESS)
            return true;
        for (int i = 0; i < 3; i++)
            cl.ReleaseEvent(ev[i]);
        for (int i = 0; i < TOUCHED; i++)
            if (y[i] != x[i] * 3 + 1)
                return false;
    }
    return true;
}

int driver_probe_child(void)
{
    struct rlimit none = {0, 0};
    cl_platform_id platforms[DRIVERS_MAX];
    cl_uint n = 0;
    bool right = true;

    if (opencl_load(NULL) < 0)
        return 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    if (cl.GetPlatformIDs(DRIVERS_MAX, platforms, &n) == CL_SUCCESS)
        for (cl_uint p = 0; p < n && p < DRIVERS_MAX; p++) {
            cl_device_id devices[8];
            cl_uint m = 0;

            if (cl.GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 8, devices, &m) == CL_SUCCESS)
                for (cl_uint i = 0; i < m && i < 8; i++)
                    right = touch_device(devices[i]) && right;
        }
    return right ? 0 : WRONG_VALUES;
}

/* ---- The parent ---- */

static bool add_driver(struct driver *d, const char *path)
{
    size_t n = strlen(path);
    FILE *f;

    memset(d, 0, sizeof *d);
    snprintf(d->icd, sizeof d->icd, "%s", path);
    /* loaders also accept a library's path */
    if (n < 4 || strcmp(path + n - 4, ".icd") != 0) {
        snprintf(d->library, sizeof d->library, "%.255s", path);
        return strstr(path, ".so") != NULL && access(path, R_OK) == 0;
    }
    if (!(f = fopen(path, "r")))
        return false;
    if (!fgets(d->library, sizeof d->library, f))
        d->library[0] = '\0';
    fclose(f);
    d->library[strcspn(d->library, "\r\n")] = '\0';
    return d->library[0] != '\0';
}

static int find_drivers(struct driver *list)
{
    struct dirent *entry;
    char path[PATH_MAX];
    int n = 0;
    DIR *dir = opendir(probe.vendors);

    if (!dir)
        return add_driver(&list[0], probe.vendors) ? 1 : 0;
    while ((entry = readdir(dir)) && n < DRIVERS_MAX) {
        size_t len = strlen(entry->d_name);

        if (len > 4 && strcmp(entry->d_name + len - 4, ".icd") == 0 &&
            snprintf(path, sizeof path, "%s/%s", probe.vendors, entry->d_name) < (int)sizeof path &&
            add_driver(&list[n], path))
            n++;
    }
    closedir(dir);
    return n;
}

/* Path of a driver's cached verdict; empty: none. */
static void verdict_path(const struct driver *d, char *out, size_t size)
{
    static const char *const folders[] = {"",
                                          "/usr/lib/x86_64-linux-gnu/",
                                          "/usr/lib/aarch64-linux-gnu/",
                                          "/usr/lib64/",
                                          "/usr/lib/",
                                          "/usr/local/lib/"};
    uint64_t h = hash_bytes(hash_bytes(HASH_START, d->icd, strlen(d->icd)), d->library,
                            strlen(d->library));
    char path[PATH_MAX];
    struct stat st;

    for (size_t i = d->library[0] != '/'; i < sizeof folders / sizeof folders[0]; i++)
        if (snprintf(path, sizeof path, "%s%s", folders[i], d->library) < (int)sizeof path &&
            stat(path, &st) == 0) {
            h = hash_bytes(hash_bytes(h, &st.st_mtim, sizeof st.st_mtim), &st.st_size,
                           sizeof st.st_size);
            break;
        }
    if (!probe.cache[0] || snprintf(out, size, "%s/opencl-driver-%016llx.verdict", probe.cache,
                                    (unsigned long long)h) >= (int)size)
        out[0] = '\0';
}

static bool verdict_read(const char *path, struct driver *d)
{
    char *line;
    size_t n;
    bool known;

    if (!path[0] || probe.again || cache_read(path, 4096, &line, &n, NULL) < 0 || !line)
        return false;
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "bad: ", 5) == 0)
        snprintf(d->fault, sizeof d->fault, "%.127s", line + 5);
    known = d->fault[0] || strcmp(line, "good") == 0;
    mem_free(line);
    return known;
}

static void verdict_write(const char *path, const struct driver *d)
{
    char line[sizeof d->fault + 8];
    int n = snprintf(line, sizeof line, d->fault[0] ? "bad: %s\n" : "good\n", d->fault);

    if (path[0])
        cache_write(path, line, (size_t)n, NULL);
}

/* Creates a folder with exactly these drivers. */
static int make_folder(char *folder, size_t size, const struct driver *list, int n)
{
    bool kept = probe.cache[0] && cache_check(probe.cache, NULL) == 0 &&
                access(probe.cache, W_OK) == 0;

    if (snprintf(folder, size, "%s/opencl-XXXXXX", kept ? probe.cache : P_tmpdir) >= (int)size ||
        !mkdtemp(folder))
        return -1;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX + 32];
        FILE *f;

        if (list[i].fault[0])
            continue;
        snprintf(path, sizeof path, "%s/%02d.icd", folder, i);
        if ((f = fopen(path, "w"))) {
            fprintf(f, "%s\n", list[i].library);
            fclose(f);
        }
    }
    return 0;
}

static void remove_folder(const char *folder)
{
    for (int i = 0; i < DRIVERS_MAX; i++) {
        char path[PATH_MAX + 32];

        snprintf(path, sizeof path, "%s/%02d.icd", folder, i);
        unlink(path);
    }
    rmdir(folder);
}

static pid_t start_child(const char *folder, int *alive)
{
    char vendors[PATH_MAX + 32],
        *argv[] = {probe.program, (char *)(uintptr_t)DRIVER_PROBE_CHILD, NULL}, **env;
    posix_spawn_file_actions_t files;
    int pipes[2], n = 0, rc;
    pid_t pid;

    while (environ[n])
        n++;
    if (!(env = mem_alloc((size_t)n + 2, sizeof *env)) || pipe2(pipes, O_CLOEXEC) != 0) {
        mem_free(env);
        return -1;
    }
    n = 0;
    for (char **v = environ; *v; v++)
        if (strncmp(*v, "OCL_ICD_VENDORS=", 16) != 0)
            env[n++] = *v;
    snprintf(vendors, sizeof vendors, "OCL_ICD_VENDORS=%s", folder);
    env[n] = vendors;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, pipes[1], 1);
    rc = posix_spawn(&pid, probe.program, &files, NULL, argv, env);
    posix_spawn_file_actions_destroy(&files);
    close(pipes[1]);
    mem_free(env);
    if (rc != 0) {
        close(pipes[0]);
        return -1;
    }
    *alive = pipes[0]; /* readable or closed: the child has ended */
    return pid;
}

/* Negative if no child could be run at all, which tells nothing about the driver. */
static int try_driver(struct driver *d)
{
    char folder[PATH_MAX];
    int alive = -1, status = 0;
    uint64_t end = clock_now() + (uint64_t)probe.seconds * CLOCK_SECOND;
    pid_t pid = make_folder(folder, sizeof folder, d, 1) == 0 ? start_child(folder, &alive) : -1;
    bool late = true;

    if (pid < 0)
        return -1;
    while (clock_now() < end && late) {
        struct pollfd p = {alive, POLLIN, 0};
        char drop[256];

        if (poll(&p, 1, (int)((end - clock_now()) / 1000000) + 1) <= 0)
            continue;
        ssize_t got = read(alive, drop, sizeof drop);

        late = got > 0 || (got < 0 && errno == EINTR); /* else its end of the pipe is closed */
    }
    if (late)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(alive);
    remove_folder(folder);
    if (late)
        snprintf(d->fault, sizeof d->fault, "did not answer within %d s", probe.seconds);
    else if (WIFSIGNALED(status))
        snprintf(d->fault, sizeof d->fault, "crashed when it was tried (%s)",
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == WRONG_VALUES)
        snprintf(d->fault, sizeof d->fault,
                 "computes wrong values where copies and kernels follow each other");
    else if (WEXITSTATUS(status) != 0)
        snprintf(d->fault, sizeof d->fault, "ended the process that tried it (exit code %d)",
                 WEXITSTATUS(status));
    return 0;
}

/* The loader reads its list only at the first call. */
static void load_good_ones(const struct driver *list, int n)
{
    char folder[PATH_MAX];
    cl_uint count;

    if (make_folder(folder, sizeof folder, list, n) < 0)
        return;
    setenv("OCL_ICD_VENDORS", folder, 1);
    cl.GetPlatformIDs(0, NULL, &count);
    remove_folder(folder);
}

void driver_probe_run(char *out, size_t size)
{
    static struct driver list[DRIVERS_MAX];
    int n, bad = 0;
    size_t at = 0;

    pthread_mutex_lock(&probe.lock);
    if (probe.set && !probe.done && opencl_load(NULL) == 0) {
        probe.done = true;
        n = find_drivers(list);
        for (int i = 0; i < n; i++) {
            char path[PATH_MAX + 64];

            verdict_path(&list[i], path, sizeof path);
            if (!verdict_read(path, &list[i]) && try_driver(&list[i]) == 0)
                verdict_write(path, &list[i]);
            if (!list[i].fault[0])
                continue;
            if (at < sizeof probe.note)
                at += (size_t)snprintf(probe.note + at, sizeof probe.note - at,
                                       "%sthe OpenCL driver %.120s (%.120s) %s and is left out",
                                       bad ? "; " : "", list[i].library, list[i].icd,
                                       list[i].fault);
            bad++;
        }
        if (bad)
            load_good_ones(list, n);
    }
    snprintf(out, size, "%s", probe.note);
    pthread_mutex_unlock(&probe.lock);
}
