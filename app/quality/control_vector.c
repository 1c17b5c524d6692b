/* --make-control-vector A B: the difference of the means of the residual stream behind every layer
 * but the first, between two files of lines (difference in means; Rimsky et al. 2023,
 * arXiv:2312.06681, Marks and Tegmark 2023, arXiv:2310.06824), or the principal direction of the
 * differences of pairs of lines (Zou et al. 2023, arXiv:2310.01405), as a file of llama.cpp's form
 * (engine/adapter/control.h). Main thread. */
#include "app/quality/quality.h"

#include "app/common/signals.h"
#include "app/quality/score.h"
#include "app/setup/test_text.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/file/gguf_write.h"
#include "engine/model/model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ITERATIONS 1000 /* and tolerance: those of llama.cpp's tools/cvector-generator/pca.hpp */
#define TOLERANCE 1e-7

bool control_wanted(const struct options *o)
{
    return o->make_control_vector.n > 0;
}

struct run {
    struct engine *g;
    int bos, layers, hidden, lines;
    int done;     /* rows of the line that were computed before this pass */
    double *line; /* (layers, hidden) sums over the line's rows but the first */
    double *rows; /* (lines, layers, hidden): of A's lines, then less B's; NULL: not asked for */
    size_t kept;
    bool pairs, second; /* second: B's lines */
    double *mean;       /* (layers, hidden): of A's lines, then less B's; now of the file's */
};

static void take(void *ctx, int layer, const float *x, int rows)
{
    struct run *r = ctx;
    double *to = r->line + (size_t)layer * (size_t)r->hidden;

    for (int i = 0; i < rows; i++)
        for (int k = 0; k < r->hidden && r->done + i > 0; k++)
            to[k] += (double)x[(size_t)i * (size_t)r->hidden + (size_t)k];
    if (layer == r->layers - 1)
        r->done += rows;
}

/* Of a line of A a row more; of one of B it is taken from its pair's. */
static int keep_line(struct run *r, int tokens, struct error *e)
{
    size_t values = (size_t)r->layers * (size_t)r->hidden;
    double *row;

    if (r->second && (size_t)r->lines >= r->kept)
        return error_set(e, ERR_INPUT, "--method pca takes pairs of lines: the other file has %zu",
                         r->kept);
    if (!r->second && !MEM_FIT(r->rows, (r->kept + 1) * values))
        return error_set(e, ERR_MEMORY, "out of memory for the lines' directions");
    row = r->rows + (size_t)r->lines * values;
    if (!r->second) {
        r->kept++;
        memset(row, 0, values * sizeof *row);
    }
    for (size_t i = 0; i < values; i++)
        row[i] += (r->second ? -1 : 1) * r->line[i] / tokens;
    return 0;
}

/* The eigenvector of the largest eigenvalue of D'D, D being a layer's rows (pairs, hidden), not
 * centred: power iteration from the mean difference, all of whose sides it keeps; into all, which
 * holds that mean, times the mean's projection on it. */
static void principal(const struct run *r, int layer, double *all, double *v, double *w)
{
    size_t n = (size_t)r->hidden, at = (size_t)layer * n, values = (size_t)r->layers * n;
    double norm = 0, length = 0;

    for (size_t i = 0; i < n; i++)
        norm += all[at + i] * all[at + i];
    for (size_t i = 0; i < n; i++)
        v[i] = norm > 0 ? all[at + i] / sqrt(norm) : 0;
    for (int k = 0; k < ITERATIONS && norm > 0; k++) {
        double off = 0;

        memset(w, 0, n * sizeof *w);
        norm = 0;
        for (size_t p = 0; p < r->kept; p++) {
            const double *d = r->rows + p * values + at;
            double dot = 0;

            for (size_t i = 0; i < n; i++)
                dot += d[i] * v[i];
            for (size_t i = 0; i < n; i++)
                w[i] += dot * d[i];
        }
        for (size_t i = 0; i < n; i++)
            norm += w[i] * w[i];
        for (size_t i = 0; i < n && norm > 0; i++) {
            double u = w[i] / sqrt(norm);

            off += (u - v[i]) * (u - v[i]);
            v[i] = u;
        }
        if (sqrt(off) < TOLERANCE)
            break;
    }
    for (size_t i = 0; i < n; i++)
        length += all[at + i] * v[i];
    for (size_t i = 0; i < n; i++)
        all[at + i] = length * v[i];
}

static int make_principal(struct run *r, double *all, struct error *e)
{
    double *v = mem_alloc((size_t)r->hidden, sizeof *v),
           *w = mem_alloc((size_t)r->hidden, sizeof *w);
    int rc = v && w ? 0 : error_set(e, ERR_MEMORY, "out of memory for the directions");

    if (rc == 0 && r->kept != (size_t)r->lines)
        rc = error_set(e, ERR_INPUT, "--method pca takes pairs of lines: A has %zu, B %d", r->kept,
                       r->lines);
    for (int l = 1; l < r->layers && rc == 0; l++)
        principal(r, l, all, v, w);
    mem_free(v);
    mem_free(w);
    return rc;
}

static int add_line(void *ctx, const char *line, size_t size, int number, struct error *e)
{
    struct run *r = ctx;
    size_t values = (size_t)r->layers * (size_t)r->hidden;
    int *ids = NULL, n, rc = score_encode(r->g, r->bos, line, size, true, &ids, &n, e);

    if (rc == 0 && n < 2)
        rc = error_set(e, ERR_INPUT, "one token alone: the first of a line does not count");
    if (rc == 0 && n > engine_info(r->g)->context)
        rc = error_set(e, ERR_INPUT, "%d tokens; the context (-c) holds %d", n,
                       engine_info(r->g)->context);
    if (rc == 0)
        rc = score_check(r->g, ids, n, e);
    if (rc == 0) {
        memset(r->line, 0, values * sizeof *r->line);
        r->done = 0;
        engine_session_clear(r->g);
        rc = engine_eval(r->g, ids, n, NULL, false, e);
    }
    for (size_t i = 0; i < values && rc == 0; i++)
        r->mean[i] += r->line[i] / (n - 1);
    if (rc == 0 && r->pairs)
        rc = keep_line(r, n - 1, e);
    r->lines++;
    mem_free(ids);
    return rc;
}

/* Adds the mean of a file's lines, times sign, to all. */
static int add_file(struct run *r, const char *path, double sign, double *all, struct error *e)
{
    size_t values = (size_t)r->layers * (size_t)r->hidden, size;
    char *text = NULL;
    int rc = test_text_read(path, &text, &size, e);

    memset(r->mean, 0, values * sizeof *r->mean);
    r->lines = 0;
    if (rc == 0 && (rc = score_lines("control vector", text, size, add_line, r, e)) < 0)
        error_prefix(e, "%s", path);
    for (size_t i = 0; i < values && rc == 0; i++)
        all[i] += sign * r->mean[i] / r->lines;
    mem_free(text);
    return rc;
}

static int write_file(const struct run *r, const char *path, const double *all, struct error *e)
{
    const char *hint = engine_info(r->g)->model->family;
    int64_t dims[] = {r->hidden};
    float *row = mem_alloc((size_t)r->hidden, sizeof *row);
    struct gguf_writer *w;
    char name[32];
    int rc = row ? gguf_write_open(&w, path, e) : error_set(e, ERR_MEMORY, "out of memory");

    if (rc < 0) {
        mem_free(row);
        return rc;
    }
    gguf_put_string(w, "general.architecture", "controlvector", strlen("controlvector"));
    gguf_put_string(w, "controlvector.model_hint", hint, strlen(hint));
    gguf_put_u32(w, "controlvector.layer_count", (uint32_t)(r->layers - 1));
    for (int l = 1; l < r->layers; l++) {
        snprintf(name, sizeof name, "direction.%d", l);
        gguf_write_tensor(w, name, DTYPE_F32, 1, dims);
    }
    rc = gguf_write_begin(w, e);
    for (int l = 1; l < r->layers && rc == 0; l++) {
        for (int i = 0; i < r->hidden; i++)
            row[i] = (float)all[(size_t)l * (size_t)r->hidden + (size_t)i];
        rc = gguf_write_data(w, row, (size_t)r->hidden * sizeof *row, e);
    }
    mem_free(row);
    if (rc < 0) {
        gguf_write_abort(w);
        return rc;
    }
    return gguf_write_finish(w, e);
}

static int report(const struct run *r, const char *path, const double *all, int a, int b,
                  struct error *e)
{
    printf("%s: %d lines less %d; length of the direction behind each layer:\n", path, a, b);
    for (int l = 1; l < r->layers; l++) {
        double squares = 0;

        for (int i = 0; i < r->hidden; i++) {
            double v = all[(size_t)l * (size_t)r->hidden + (size_t)i];

            squares += v * v;
        }
        printf("  %3d  %.5g\n", l, sqrt(squares));
    }
    return fflush(stdout) ? output_failed("the directions", errno, e) : 0;
}

int control_run(struct options *o, struct error *e)
{
    const char *const *files = (const char *const *)o->make_control_vector.items;
    const char *path = o->output && *o->output ? o->output : "control_vector.gguf";
    struct run r = {0};
    double *all = NULL;
    size_t values;
    int rc, a = 0;

    if (o->make_control_vector.n != 2)
        return error_set(e, ERR_USAGE, "--make-control-vector A B: two files of lines, once");
    if ((rc = score_open(o, 0, &r.g, e)) < 0 || (rc = score_bos(r.g, &r.bos, e)) < 0)
        goto out;
    r.pairs = o->method == 1; /* mean|pca */
    r.layers = engine_info(r.g)->model->hp.n_layers;
    r.hidden = engine_info(r.g)->model->hp.hidden;
    values = (size_t)r.layers * (size_t)r.hidden;
    r.line = mem_alloc(values, sizeof *r.line);
    r.mean = mem_alloc(values, sizeof *r.mean);
    all = mem_alloc(values, sizeof *all);
    if (!r.line || !r.mean || !all) {
        rc = error_set(e, ERR_MEMORY, "out of memory for the directions");
        goto out;
    }
    engine_observe_stream(r.g, take, &r);
    if ((rc = add_file(&r, files[0], 1, all, e)) == 0) {
        a = r.lines;
        r.second = true;
        rc = add_file(&r, files[1], -1, all, e);
    }
    engine_observe_stream(r.g, NULL, NULL);
    if (rc == 0 && r.pairs)
        rc = make_principal(&r, all, e);
    if (rc == 0 && (rc = write_file(&r, path, all, e)) == 0)
        rc = report(&r, path, all, a, r.lines, e);
out:
    mem_free(r.line);
    mem_free(r.mean);
    mem_free(r.rows);
    mem_free(all);
    engine_close(r.g);
    return rc;
}
