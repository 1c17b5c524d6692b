/* See fit_list.h. The memory bandwidth is measured once for all models. */
#include "app/headless/fit_list.h"

#include "app/common/model_files.h"
#include "app/common/signals.h"
#include "app/setup/engine_options.h"
#include "app/setup/fit_row.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"
#include "engine/base/topology.h"
#include "engine/base/utf8.h"
#include "engine/model/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METER_MS 200
#define GIB ((double)(1 << 30))
#define MIB ((double)(1 << 20))

struct list {
    struct engine_setup setup;
    struct fit_look look;
    struct model_files files;
    struct fit_row *rows;
};

bool fit_list_wanted(const struct options *o)
{
    return o->fit_models.n || (o->model && model_files_folder(o->model));
}

/* ---- the table ---- */

static const char *size_text(uint64_t bytes, char out[24])
{
    if ((double)bytes >= GIB)
        snprintf(out, 24, "%.1f GiB", (double)bytes / GIB);
    else
        snprintf(out, 24, "%.1f MiB", (double)bytes / MIB);
    return out;
}

static double bits_of(const struct fit_row *r)
{
    return r->parameters ? 8.0 * (double)r->file_bytes / (double)r->parameters : 0.0;
}

/* Of a path that is too long, keeps the end, which is more specific. */
static void print_name(const char *path, int width)
{
    char safe[3 * 4096];
    int n;

    utf8_escape(safe, sizeof safe, path, strlen(path), 0);
    n = (int)strlen(safe);
    if (n > width)
        printf("  ..%-*s", width - 2, safe + n - width + 2);
    else
        printf("  %-*s", width, safe);
}

static void print_remedy(const struct fit_row *r)
{
    char missing[24], size[24];

    if (fit_fits(&r->fit))
        return;
    printf("      %s too much; ", size_text(fit_needed(&r->fit) - r->fit.available, missing));
    if (r->paged[0])
        printf("it fits with %s%s%s (experts on the disk)\n", r->remedy,
               r->remedy[0] ? ", or with " : "", r->paged);
    else if (r->remedy[0])
        printf("it fits with %s\n", r->remedy);
    else if (r->smaller)
        printf("--quantize %s makes about %s of it, which fit\n", r->smaller,
               size_text(r->smaller_bytes, size));
    else
        printf("no setting makes it fit\n");
}

/* Length of their common folder, its slash included. */
static size_t common_folder(const struct list *l)
{
    const char *first = l->files.paths[0], *slash = strrchr(first, '/');
    size_t n = slash ? (size_t)(slash + 1 - first) : 0;

    for (size_t i = 1; i < l->files.n; i++)
        while (n && strncmp(l->files.paths[i], first, n)) {
            n--;
            while (n && first[n - 1] != '/')
                n--;
        }
    return n;
}

static void print_device(const struct fit_row *r)
{
    const struct fit *f = &r->placed;
    char bytes[24], memory[24];

    for (int i = 0; i < f->n_on; i++)
        printf("      on %s: %s of its %s%s\n", f->on[i].name, size_text(f->on[i].bytes, bytes),
               size_text(f->on[i].memory, memory),
               f->on[i].bytes > f->on[i].memory ? ", which do not fit: --place memory:SIZE" : "");
}

static void print_row(const struct fit_row *r, size_t skipped, int width)
{
    char size[24], needs[24], context[24] = "-", rate[24] = "-";

    print_name(r->path + skipped, width);
    if (r->why.code) {
        printf("\n      %s\n", r->why.text);
        return;
    }
    if (r->context)
        snprintf(context, sizeof context, "%d", r->context);
    if (r->in_cache)
        snprintf(rate, sizeof rate, "in cache");
    else if (r->rate > 0)
        snprintf(rate, sizeof rate, r->rate < 10 ? "%.1f" : "%.0f", r->rate);
    printf("  %10s  %4.1f  %10s  %8s  %8s\n", size_text(r->file_bytes, size), bits_of(r),
           size_text(fit_needed(&r->fit), needs), context, rate);
    print_remedy(r);
    print_device(r);
}

static void print_table(const struct list *l)
{
    size_t skipped = common_folder(l);
    int width = 20, fit = 0, read = 0;
    double disk = 0;
    char free_text[24] = "an unknown amount";

    for (size_t i = 0; i < l->files.n; i++) {
        int n = (int)(strlen(l->rows[i].path) - skipped);

        width = n > width ? n : width;
        read += l->rows[i].why.code == 0;
        fit += l->rows[i].why.code == 0 && fit_fits(&l->rows[i].fit);
    }
    width = width > 40 ? 40 : width;
    if (l->look.available != UINT64_MAX)
        size_text(l->look.available, free_text);
    printf("%d of %zu models", fit, l->files.n);
    if (skipped) {
        char safe[3 * 4096];

        utf8_escape(safe, sizeof safe, l->files.paths[0], skipped, 0);
        printf(" in %s", safe);
    }
    printf(" fit as they are");
    if (read < (int)l->files.n)
        printf(", %d cannot be read", (int)l->files.n - read);
    printf("; %s free, memory reads %.1f GB/s with %d thread%s.\n", free_text,
           l->look.bandwidth * 1e-9, l->look.threads, l->look.threads == 1 ? "" : "s");
    printf("  %-*s  %10s  %4s  %10s  %8s  %8s\n", width, "model", "size", "bits", "needs",
           "context", "tok/s");
    for (size_t i = 0; i < l->files.n; i++)
        print_row(&l->rows[i], skipped, width);
    printf("context: the largest that fits. tok/s: what the memory's speed allows behind %d "
           "tokens;\ncomputing may take longer.\n",
           FIT_ROW_DEPTH);
    for (size_t i = 0; i < l->files.n && !disk; i++)
        if ((disk = l->rows[i].disk) > 0)
            printf("Where experts stay on the disk: with this context, and what the disk allows, "
                   "too (random reads\nat %.2f GB/s).\n",
                   disk * 1e-9);
}

/* ---- JSON ---- */

static json_t *number_or_null(double v)
{
    return v > 0 ? json_real(v) : json_null();
}

/* Names of files and models may contain any bytes. */
static json_t *text_json(const char *s)
{
    char safe[4096];
    json_t *v = json_string(s);

    if (v)
        return v;
    utf8_escape(safe, sizeof safe, s, strlen(s), 0);
    return json_string(safe);
}

static json_t *text_or_null(const char *s)
{
    return s && *s ? text_json(s) : json_null();
}

static json_t *row_json(const struct fit_row *r)
{
    const struct fit *f = &r->fit;

    if (r->why.code)
        return json_pack("{s:o, s:o}", "path", text_json(r->path), "error", text_json(r->why.text));
    return json_pack(
        "{s:o, s:o, s:s, s:s, s:I, s:I, s:f, s:b, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:I, "
        "s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "path", text_json(r->path), "name", text_json(f->name), "family", r->family, "type",
        dtype_info(f->type)->word, "file_bytes", (json_int_t)r->file_bytes, "parameters",
        (json_int_t)r->parameters, "bits_per_weight", bits_of(r), "fits", fit_fits(f),
        "needed_bytes", (json_int_t)fit_needed(f), "weight_bytes",
        (json_int_t)(f->weights.packed + f->weights.mapped), "kv_bytes", (json_int_t)f->kv,
        "scratch_bytes", (json_int_t)f->scratch, "context", f->context, "context_that_fits",
        r->context, "context_trained", f->context_max, "sessions", f->sessions, "bytes_per_token",
        (json_int_t)r->token_bytes, "tokens_per_second", number_or_null(r->rate), "in_cache",
        r->in_cache, "fits_with", text_or_null(r->remedy), "fits_paged_with",
        text_or_null(r->paged), "quantize_to", text_or_null(r->smaller), "quantized_bytes",
        r->smaller ? json_integer((json_int_t)r->smaller_bytes) : json_null(), "device",
        text_or_null(r->placed.on[0].name), "device_bytes",
        r->placed.n_on ? json_integer((json_int_t)r->placed.on[0].bytes) : json_null(),
        "disk_bytes_per_second", number_or_null(r->disk));
}

static json_t *list_json(const struct list *l)
{
    json_t *rows = json_array();

    for (size_t i = 0; i < l->files.n; i++)
        if (json_array_append_new(rows, row_json(&l->rows[i])) < 0) {
            json_decref(rows);
            return NULL;
        }
    return json_pack("{s:o, s:f, s:i, s:i, s:o}", "available_bytes",
                     l->look.available == UINT64_MAX ? json_null()
                                                     : json_integer((json_int_t)l->look.available),
                     "memory_bytes_per_second", l->look.bandwidth, "threads", l->look.threads,
                     "tokens_before", FIT_ROW_DEPTH, "models", rows);
}

int fit_report_write(const struct options *o, json_t *report, struct error *e)
{
    char *text;
    int rc;

    if (!o->report_json) {
        json_decref(report);
        return 0;
    }
    text = report ? json_dumps(report, JSON_INDENT(2)) : NULL;
    json_decref(report);
    if (!text)
        return error_set(e, ERR_MEMORY, "out of memory for %s", o->report_json);
    if (strcmp(o->report_json, "-") == 0)
        rc = puts(text) < 0 ? output_failed("the report", errno, e) : 0;
    else
        rc = file_replace(o->report_json, text, strlen(text), e);
    free(text);
    return rc;
}

/* ---- the mode ---- */

static int find(struct list *l, const struct options *o, struct error *e)
{
    int rc = 0;

    if (!o->fit_models.n || (o->model && o->origin[OPTION_ID_model].from == ORIGIN_FLAG))
        rc = model_files_find(&l->files, l->setup.model_path, e);
    for (size_t i = 0; i < o->fit_models.n && rc == 0; i++)
        rc = model_files_find(&l->files, o->fit_models.items[i], e);
    if (rc == 0 && !l->files.n)
        rc = error_set(e, ERR_MODEL, "%s: no model in it: neither a GGUF file nor a config.json",
                       o->fit_models.n ? o->fit_models.items[0] : l->setup.model_path);
    if (rc == 0 && !(l->rows = mem_alloc(l->files.n, sizeof *l->rows)))
        rc = error_set(e, ERR_MEMORY, "out of memory for %zu models", l->files.n);
    return rc;
}

int fit_list_run(struct options *o, bool table, struct error *e)
{
    struct list *l = mem_alloc(1, sizeof *l); /* too large for the stack */
    int rc;

    if (!l)
        return error_set(e, ERR_MEMORY, "out of memory for the list of models");
    *l = (struct list){.look = {.uncached = UINT64_MAX}};
    if ((rc = engine_setup_init(o, &l->setup, e)) < 0)
        goto out;
    if ((rc = find(l, o, e)) == 0) {
        l->look.threads = o->threads > 0 ? o->threads : topology_default_threads();
        l->look.available = fit_available();
        if (o->place_prompt && *o->place_prompt && strcmp(o->place_prompt, "same"))
            l->look.prompts = o->place_prompt;
        if (o->device || l->look.prompts || (o->place && *o->place && strcmp(o->place, "cpu")))
            l->look.place = o->place && *o->place ? o->place : l->look.prompts ? "cpu" : "gpu";
        l->look.bandwidth = membw_read(NULL, 0, l->look.threads, METER_MS);
        l->look.config = &l->setup.config;
        for (size_t i = 0; i < l->files.n; i++)
            fit_row_look(&l->look, l->files.paths[i], &l->rows[i]);
        if (table)
            print_table(l);
        rc = fit_report_write(o, o->report_json ? list_json(l) : NULL, e);
    }
    engine_setup_release(&l->setup);
out:
    model_files_release(&l->files);
    mem_free(l->rows);
    mem_free(l);
    return rc;
}
