/* Entry point: options from every source, then one mode. The only place that turns an error into a
 * line and an exit code. */
#include "app/bench/args.h"
#include "app/options/config.h"
#include "app/setup/recommended.h"
#include "app/common/crash.h"
#include "app/common/memory_left.h"
#include "app/devices.h"
#include "app/fetch/hub.h"
#include "app/lab/lens_dump.h"
#include "app/lab/routing.h"
#include "app/modes.h"
#include "app/options/options.h"
#include "app/common/paths.h"
#include "app/common/signals.h"
#include "app/common/wrong_device.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/membw.h"
#include "engine/base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* Variables of other conventions that set one of our options. */
static int read_foreign(struct options *o, struct error *e)
{
    const char *accessible = getenv("ACCESSIBLE");

    if (!accessible || !*accessible || !strcmp(accessible, "0"))
        return 0;
    return options_set(o, &option_table[OPTION_ID_screen_reader], "true", ORIGIN_ENVIRONMENT,
                       "ACCESSIBLE", e);
}

/* Unknown variables with our prefix: a warning for each, with the nearest name. */
static void warn_of_unused(void)
{
    for (char **v = environ; *v; v++) {
        char name[80], text[400], safe[600], wanted[80];
        const struct option *option;
        size_t n = strcspn(*v, "=");
        int at;

        if (strncmp(*v, "MOETOP_", 7))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)n - 7, *v + 7);
        for (char *p = name; *p; p++)
            *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
        option = n < sizeof name ? options_find(name) : NULL;
        if (option && strcmp(option->name, name) == 0 && option->place & OPTION_FILE)
            continue;
        at = snprintf(text, sizeof text, "the variable %.*s is not used",
                      n < sizeof name ? (int)n : (int)sizeof name, *v);
        if (option && !(option->place & OPTION_FILE)) {
            snprintf(text + at, sizeof text - (size_t)at, ": --%s stands on the command line only",
                     option->name);
        } else if (option || (option = options_nearest(name, OPTION_FILE))) {
            option_variable(option, wanted, sizeof wanted);
            snprintf(text + at, sizeof text - (size_t)at, "; did you mean %s?", wanted);
        } else {
            snprintf(text + at, sizeof text - (size_t)at, "; moetop(1) lists those that are");
        }
        utf8_escape(safe, sizeof safe, text, strlen(text), 0);
        fprintf(stderr, "moetop: %s\n", safe);
    }
}

/* Modes that only print tables need no model, and must not download one. */
static bool model_is_needed(const struct options *o)
{
    return !o->print_config && !o->list_devices && !o->doctor && !o->routing_report.n &&
           !(o->place && !strcmp(o->place, "help"));
}

static void tell(void *ctx, const char *line)
{
    fprintf(stderr, "moetop: %s\n", line);
}

/* --json is short for --report-json -. */
static int choose_json(struct options *o, struct error *e)
{
    if (!o->fit && !o->doctor && !o->routing_report.n && !o->ablate && !(o->analyze && *o->analyze))
        return error_set(e, ERR_USAGE,
                         "--json goes with --fit, --analyze, --doctor, --routing-report or "
                         "--ablate");
    if (o->report_json && strcmp(o->report_json, "-"))
        return error_set(e, ERR_USAGE,
                         "--json prints what --report-json %s would write into that file; leave "
                         "one of the two away",
                         o->report_json);
    return options_set(o, &option_table[OPTION_ID_report_json], "-", ORIGIN_FLAG, NULL, e);
}

static int run_mode(struct options *o, struct error *e)
{
    const struct mode *m = mode_choose(o);
    struct error ignored = {0};
    int rc, ended;

    if (o->json && (rc = choose_json(o, e)) < 0)
        return rc;
    if (o->connect && !mode_connects(m))
        return error_set(e, ERR_USAGE,
                         "--connect: --%s computes with a model on this machine; leave one of the "
                         "two away",
                         m->name);
    if ((rc = lens_check(o, m->name, e)) == 0 && (rc = routing_begin(o, m->name, e)) == 0)
        rc = m->run(o, e);
    if ((ended = routing_end(rc < 0 ? &ignored : e)) < 0 && rc >= 0)
        rc = ended;
    return rc;
}

static int read_options(struct options *o, int argc, char **argv, struct error *e)
{
    char model[PATH_MAX];
    struct error ignored;
    int rc;

    if ((rc = options_init(o, e)) < 0 || (rc = options_parse(o, argc, argv, e)) < 0)
        return rc;
    /* these must work with a broken configuration too */
    if (o->help || o->version || o->completion || o->print_man)
        return 0;
    if ((rc = options_environment(o, environ, e)) < 0 || (rc = read_foreign(o, e)) < 0 ||
        (rc = config_read_all(o, e)) < 0)
        return rc;
    warn_of_unused();
    if (o->connect)
        return 0; /* -m names one of the server's models */
    if (model_is_needed(o) && (rc = hub_fetch(o, e)) < 0)
        return rc;
    if (paths_model(o->model, model, sizeof model, &ignored) < 0)
        return 0; /* a mode that needs the model reports it itself */
    rc = recommended_read(o, model, tell, NULL, e);
    return rc < 0 ? rc : config_read_model(o, model, e);
}

/* Checks that the output was written: errors such as a full disk behind stdout appear here at the
 * latest. */
static int flush_stdout(struct error *e)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return output_failed(NULL, errno, e);
}

/* --log-file: appends every line at once, so that a crash or a kill loses none. */
static int log_open(const struct options *o, int *fd, struct error *e)
{
    *fd = -1;
    if (!o->log_file)
        return 0;
    *fd = file_open_write(o->log_file, O_CREAT | O_APPEND, 0666, e);
    if (*fd < 0)
        return error_prefix(e, "--log-file");
    log_follow(*fd);
    log_write(LOG_LEVEL_INFO, "moetop %s, process %ld", MOETOP_VERSION, (long)getpid());
    return 0;
}

static void log_close(const struct options *o, int fd)
{
    int failed = log_follow(-1);

    if (failed)
        fprintf(stderr, "moetop: --log-file %s is not whole: %s\n", o->log_file, strerror(failed));
    if (fd >= 0)
        close(fd);
}

/* The caller may have closed the first three descriptors; the next file opened would get one of
 * them, and output would be written into it. Standard input is then empty and diagnostics are
 * discarded; standard output is opened for reading, so that writing a lost answer fails. */
static void fill_descriptors(void)
{
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};

    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[fd]) < 0)
            _exit(error_exit_code(ERR_IO));
}

/* hwloc, which OpenCL drivers use too, writes lines to standard error in containers; the engine
 * logs what is missing (engine/base/topology.c). Before any thread. */
static void quiet_libraries(void)
{
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
}

static uint64_t left_here(void)
{
    return memory_left("");
}

int main(int argc, char **argv)
{
    static struct options o;
    struct error e = {0};
    char line[700];
    bool wrong = false;
    int rc, log_fd = -1;

    fill_descriptors();
    /* beyond the limit of ulimit -f, writing fails with EFBIG, which the mode reports */
    signal(SIGXFSZ, SIG_IGN);
    quiet_libraries();
    devices_child(argc, argv);
    setlocale(LC_ALL, "");
    setlocale(LC_NUMERIC, "C"); /* 0.5 is 0.5 in files and flags, whatever the locale */
    crash_install();
    crash_guard_libraries();
    membw_limit(left_here);
    bench_respell(argc, argv);
    rc = read_options(&o, argc, argv, &e);
    if (log_open(&o, &log_fd, rc >= 0 ? &e : NULL) < 0 && rc >= 0)
        rc = ERR_IO;
    if (rc >= 0)
        devices_guard(paths_cache(o.cache_dir), o.list_devices);
    if (rc >= 0 && (rc = run_mode(&o, &e)) >= 0)
        rc = flush_stdout(&e);
    if (rc >= 0 && (wrong = wrong_device_found(line, sizeof line)))
        fprintf(stderr, "moetop: %s\n", line);
    if (rc < 0 && e.text[0])
        log_write(LOG_LEVEL_ERROR, "%s", e.text);
    if (rc < 0 && e.text[0])
        fprintf(stderr, "moetop: %s\n", e.text);
    log_close(&o, log_fd);
    options_release(&o);
    if (wrong)
        return WRONG_DEVICE_EXIT;
    return rc < 0 && output_is_gone() ? OUTPUT_EXIT_GONE : error_exit_code(rc);
}
