/* What the doctor measures, all of it by the code that the other modes measure with. The main
 * thread asks (environment, options, terminal); any thread measures, with copies. */
#include "app/doctor/doctor.h"

#include "app/common/devices.h"
#include "app/common/model_places.h"
#include "app/common/paths.h"
#include "app/setup/engine_options.h"
#include "app/setup/fit_row.h"
#include "engine/base/cache.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"
#include "engine/base/topology.h"
#include "engine/file/direct_rate.h"
#include "engine/model/expert_reader.h"
#include "ui/terminal.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define METER_MS 200
#define DISK_MS 300

struct doctor_asked {
    struct engine_setup setup;
    struct error why; /* the chosen model is not there; code 0: it is */
    char chosen[PATH_MAX];
    struct model_files files;
    const char *cache;
    int threads;
};

static bool may_use(const char *path)
{
    return access(path, R_OK | W_OK) == 0;
}

static void ask_terminal(struct doctor_place *p, const struct options *o)
{
    const char *no = getenv("NO_COLOR");
    struct winsize w = {0};

    p->term = getenv("TERM");
    p->codeset = nl_langinfo(CODESET);
    p->no_color = o->color != 1 && (o->color == 2 || (no && *no));
    p->colours = terminal_colours(p->term);
    p->terminal = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col;
    p->columns = w.ws_col;
    p->rows = w.ws_row;
}

static void ask_cache(struct doctor_asked *a, struct doctor_place *p, const struct options *o)
{
    char usual[PATH_MAX];
    struct error why = {0};

    p->cache = a->cache = paths_cache(o->cache_dir);
    if (p->cache)
        return;
    paths_home("CACHE", usual, sizeof usual);
    if (cache_check(o->cache_dir ? o->cache_dir : usual, &why) < 0)
        snprintf(p->cache_why, sizeof p->cache_why, "%.290s", why.text);
}

/* The settings, by which all models are looked at: they do not depend on the model. Where the
 * chosen one is missing the bundled one stands in, else any path that exists. */
static int ask_setup(struct doctor_asked *a, const struct options *o, struct error *e)
{
    static char root[] = "/";
    char *const stands_in[] = {NULL, root};
    int rc = engine_setup_init(o, &a->setup, &a->why);
    struct options *other;

    if (rc != ERR_MODEL) {
        if (rc < 0)
            *e = a->why;
        else
            a->why = (struct error){0};
        return rc;
    }
    snprintf(a->chosen, sizeof a->chosen, "%s", o->model ? o->model : "the bundled model");
    if (!(other = mem_alloc(1, sizeof *other)))
        return error_set(e, ERR_MEMORY, "out of memory for the doctor");
    *other = *o;
    for (int i = o->model ? 0 : 1; rc == ERR_MODEL && i < 2; i++) {
        other->model = stands_in[i];
        rc = engine_setup_init(other, &a->setup, e);
    }
    mem_free(other);
    return rc;
}

static int ask_models(struct doctor_asked *a, const struct options *o, struct error *e)
{
    char bundled[PATH_MAX];
    struct error ignored;
    int rc = model_places_find(&a->files, o->models_dir.items, o->models_dir.n, &ignored);

    if (rc != ERR_MEMORY && paths_model(NULL, bundled, sizeof bundled, &ignored) == 0)
        rc = model_files_find(&a->files, bundled, &ignored);
    if (rc != ERR_MEMORY && !a->chosen[0]) {
        snprintf(a->chosen, sizeof a->chosen, "%s", a->setup.model_path);
        rc = model_files_find(&a->files, a->chosen, &ignored);
    }
    return rc == ERR_MEMORY ? error_set(e, rc, "out of memory for the list of models") : 0;
}

int doctor_ask(struct doctor_asked **out, const struct options *o, struct doctor_place *place,
               struct error *e)
{
    struct doctor_asked *a = mem_alloc(1, sizeof *a);
    int rc;

    if (!a)
        return error_set(e, ERR_MEMORY, "out of memory for the doctor");
    if ((rc = ask_setup(a, o, e)) < 0) {
        mem_free(a);
        return rc;
    }
    if ((rc = ask_models(a, o, e)) < 0) {
        doctor_asked_free(a);
        return rc;
    }
    *place =
        (struct doctor_place){.root = "", .vendors = getenv("OCL_ICD_VENDORS"), .may_use = may_use};
    ask_terminal(place, o);
    ask_cache(a, place, o);
    a->threads = o->threads > 0 ? o->threads : topology_default_threads();
    *out = a;
    return 0;
}

void doctor_asked_free(struct doctor_asked *a)
{
    if (!a)
        return;
    engine_setup_release(&a->setup);
    model_files_release(&a->files);
    mem_free(a);
}

/* ---- measuring ---- */

static void measure_device(const struct doctor_asked *a, const struct device_ops *ops,
                           struct doctor_device *d, void (*tell)(void *ctx, const char *line),
                           void *ctx)
{
    struct device_report report;
    struct error e = {0};

    /* what is really the CPU is used only when named: its test takes a minute */
    if (d->info.is_cpu_type || d->info.why_not[0] || !ops->report)
        return;
    if (ops->report(d->info.selector, a->cache, tell, ctx, &report, &e) < 0) {
        snprintf(d->failed, sizeof d->failed, "%.290s", e.text);
        return;
    }
    memcpy(d->selftest, report.selftest, sizeof d->selftest);
    d->read_rate = report.read_rate;
}

static void nothing(void *ctx, const char *line)
{
}

static void measure_devices(const struct doctor_asked *a, struct doctor_measures *out,
                            void (*tell)(void *ctx, const char *line), void *ctx)
{
    struct device_info found[DEVICE_MAX];

    /* the last one is the CPU */
    for (const struct device_ops *const *b = device_backends; b[1]; b++) {
        char why[512] = "";
        int n;

        memset(found, 0, sizeof found);
        n = (*b)->probe(found, DEVICE_MAX, why, sizeof why);
        if (why[0] && !out->drivers[0])
            memcpy(out->drivers, why, sizeof why);
        for (int i = 0; i < n && i < DEVICE_MAX && out->n_devices < DEVICE_MAX; i++) {
            struct doctor_device *d = &out->devices[out->n_devices++];

            d->info = found[i];
            measure_device(a, *b, d, tell ? tell : nothing, ctx);
        }
    }
}

static void measure_disk(struct doctor_measures *out)
{
    const struct doctor_model *largest = NULL;
    struct weight_file *f;
    struct error ignored;

    for (size_t i = 0; i < out->n_models; i++)
        if (!out->models[i].why_not[0] && (!largest || out->models[i].bytes > largest->bytes))
            largest = &out->models[i];
    if (!largest)
        return;
    memcpy(out->disk_of, largest->path, sizeof out->disk_of);
    if (weight_file_open(&f, largest->path, false, &ignored) < 0)
        return;
    out->disk_rate = direct_rate(f, EXPERT_READERS, DISK_MS);
    weight_file_close(f);
}

/* Why a model cannot be opened, without its name, which the finding begins with. */
static void put_why(const struct error *why, const char *named, char *out, size_t size)
{
    size_t n = strlen(named);
    bool begins = strncmp(why->text, named, n) == 0 && why->text[n] == ':';

    snprintf(out, size, "%.290s", why->text + (begins ? n + 1 + (why->text[n + 1] == ' ') : 0));
}

static void measure_model(const struct doctor_asked *a, struct fit_look *look, const char *path,
                          struct doctor_measures *out)
{
    struct doctor_model *m = &out->models[out->n_models];
    struct fit_row *row = mem_alloc(1, sizeof *row); /* too large for a stack */

    if (!row)
        return;
    out->n_models++;
    snprintf(m->path, sizeof m->path, "%s", path);
    model_places_name(path, m->name, sizeof m->name);
    m->chosen = strcmp(path, a->chosen) == 0;
    fit_row_look(look, path, row);
    if (row->why.code) {
        put_why(&row->why, path, m->why_not, sizeof m->why_not);
    } else {
        m->bytes = row->file_bytes;
        m->fits = fit_fits(&row->fit);
        m->needed = fit_needed(&row->fit);
        m->context = row->context;
        m->in_cache = row->in_cache;
        m->rate = row->rate;
        if (!m->fits)
            snprintf(m->fits_with, sizeof m->fits_with, "%s",
                     row->remedy[0] ? row->remedy : row->paged);
    }
    mem_free(row);
}

static void measure_models(const struct doctor_asked *a, uint64_t held, struct doctor_measures *out)
{
    struct fit_look look = {.config = &a->setup.config,
                            .threads = out->threads,
                            .available = fit_available(),
                            .bandwidth = out->memory_rate,
                            .uncached = UINT64_MAX};

    if (look.available != UINT64_MAX)
        look.available += held;
    out->all_models = a->files.n;
    if (a->why.code) {
        struct doctor_model *m = &out->models[out->n_models++];

        out->all_models++;
        snprintf(m->path, sizeof m->path, "%s", a->chosen);
        snprintf(m->name, sizeof m->name, "%.190s", a->chosen);
        put_why(&a->why, a->chosen, m->why_not, sizeof m->why_not);
        m->chosen = true;
    } else {
        measure_model(a, &look, a->chosen, out);
    }
    for (size_t i = 0; i < a->files.n && out->n_models < DOCTOR_MODELS; i++)
        if (!file_same(a->files.paths[i], a->chosen))
            measure_model(a, &look, a->files.paths[i], out);
}

void doctor_measure(const struct doctor_asked *a, uint64_t held, struct doctor_measures *out,
                    void (*tell)(void *ctx, const char *line), void *ctx)
{
    *out = (struct doctor_measures){.threads = a->threads};
    snprintf(out->kernels, sizeof out->kernels, "%s", cpu_kernels_name());
    out->memory_rate = membw_read(NULL, 0, out->threads, METER_MS);
    measure_devices(a, out, tell, ctx);
    measure_models(a, held, out);
    measure_disk(out);
    if (a->cache)
        tune_folder_count(a->cache, &out->tuned);
}
