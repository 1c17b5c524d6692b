/* Entry point: options from every source, then one mode. The only place that turns an error into a line and an exit code. */
#include "app/app.h"
#include "app/bench_args.h"
#include "app/config.h"
#include "app/crash.h"
#include "app/modes.h"
#include "app/options.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

extern char **environ;

static int read_options(struct options *o, int argc, char **argv, struct error *e)
{
    char model[PATH_MAX];
    struct error ignored;
    int rc;

    if ((rc = options_init(o, e)) < 0 || (rc = options_parse(o, argc, argv, e)) < 0)
        return rc;
    if (o->help || o->version)   /* these must work with a broken configuration too */
        return 0;
    if ((rc = options_environment(o, environ, e)) < 0 || (rc = config_read_all(o, e)) < 0)
        return rc;
    if (app_model_path(o, model, sizeof model, NULL, &ignored) < 0)
        return 0;                /* a mode that needs the model says so itself */
    return config_read_model(o, model, e);
}

/* What was printed must have arrived: a full disk behind stdout shows here at the latest. */
static int flush_stdout(struct error *e)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return error_set(e, ERR_IO, "cannot write to standard output: %s", strerror(errno));
}

int main(int argc, char **argv)
{
    static struct options o;
    struct error e = {0};
    int rc;

    setlocale(LC_ALL, "");
    crash_install();
    bench_respell(argc, argv);
    if ((rc = read_options(&o, argc, argv, &e)) >= 0 && (rc = mode_choose(&o)->run(&o, &e)) >= 0)
        rc = flush_stdout(&e);
    if (rc < 0 && e.text[0])
        fprintf(stderr, "moetop: %s\n", e.text);
    options_release(&o);
    return error_exit_code(rc);
}
