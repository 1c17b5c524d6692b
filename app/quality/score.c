/* See score.h. */
#include "app/quality/score.h"

#include "app/common/paths.h"
#include "app/common/progress.h"
#include "app/common/signals.h"
#include "app/quality/log_probs.h"
#include "app/setup/engine_options.h"
#include "app/setup/test_text.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/text/tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM ((size_t)8 << 20) /* logits at a time */
#define BUNDLED "bench/stories.txt"

/* Checks all ids before they index logits. */
int score_check(const struct engine *g, const int *ids, int n, struct error *e)
{
    int vocabulary = engine_info(g)->model->hp.n_vocab;

    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return error_set(e, ERR_MODEL,
                             "the text has token %d, and the model's vocabulary is of %d: its "
                             "tokenizer belongs to another model",
                             ids[i], vocabulary);
    return 0;
}

int score_text(struct engine *g, const int *ids, int n, int first, score_row fn, void *ctx,
               struct error *e)
{
    return score_text_by(g, ids, n, first, SCORE_ROWS, fn, ctx, e);
}

int score_text_by(struct engine *g, const int *ids, int n, int first, int most_rows, score_row fn,
                  void *ctx, struct error *e)
{
    size_t vocabulary = (size_t)engine_info(g)->model->hp.n_vocab;
    int rows = (int)(ROOM / vocabulary), rc = 0;
    float *logits;

    if ((rc = score_check(g, ids, n, e)))
        return rc;
    rows = rows < 1 ? 1 : rows > most_rows ? most_rows : rows;
    if (!(logits = mem_alloc((size_t)rows * vocabulary, sizeof *logits)))
        return error_set(e, ERR_MEMORY, "out of memory for %d rows of logits", rows);
    engine_session_clear(g);
    for (int at = 0; at < first && !rc; at += SCORE_ROWS) {
        rc = engine_eval(g, ids + at, first - at < SCORE_ROWS ? first - at : SCORE_ROWS, NULL,
                         false, e);
        rc = rc ? rc : signals_check(e);
    }
    for (int at = first; at < n - 1 && !rc; at += rows) {
        int m = n - 1 - at < rows ? n - 1 - at : rows;

        rc = engine_eval(g, ids + at, m, logits, true, e);
        for (int r = 0; r < m && !rc; r++)
            rc = fn(ctx, at + r, logits + (size_t)r * vocabulary, e);
        rc = rc ? rc : signals_check(e);
    }
    mem_free(logits);
    return rc;
}

struct surprise {
    const int *ids;
    int vocabulary;
    double sum;
};

static int add_surprise(void *ctx, int at, const float *logits, struct error *e)
{
    struct surprise *s = ctx;

    s->sum += log_probs_surprise(logits, s->vocabulary, s->ids[at + 1]);
    return 0;
}

int score_surprise(struct engine *g, const int *ids, int n, int first, double *sum, struct error *e)
{
    struct surprise s = {.ids = ids, .vocabulary = engine_info(g)->model->hp.n_vocab};
    int rc = score_text(g, ids, n, first, add_surprise, &s, e);

    *sum = s.sum;
    return rc;
}

int score_open(struct options *o, int context, struct engine **g, struct error *e)
{
    if (o->ctx_size == 0)
        o->ctx_size = context;
    signals_catch();
    return engine_setup_open(o, g, e);
}

int score_bos(const struct engine *g, int *bos, struct error *e)
{
    bool add;

    *bos = -1;
    if (!engine_info(g)->tokenizer)
        return error_set(e, ERR_MODEL, "the model has no tokenizer: it cannot read a text");
    *bos = tokenizer_bos(engine_info(g)->tokenizer, &add);
    if (!add)
        *bos = -1;
    return 0;
}

int score_encode(const struct engine *g, int bos, const char *text, size_t size, bool special,
                 int **ids, int *n, struct error *e)
{
    int *read = NULL, rc;

    *ids = NULL;
    rc = tokenizer_encode(engine_info(g)->tokenizer, text, size, special, &read, n, e);
    if (rc == 0 && !(*ids = mem_alloc((size_t)*n + 1, sizeof **ids)))
        rc = error_set(e, ERR_MEMORY, "out of memory for %d tokens", *n);
    if (rc == 0) {
        (*ids)[0] = bos;
        memcpy(*ids + (bos >= 0), read, (size_t)*n * sizeof *read);
        *n += bos >= 0;
    }
    mem_free(read);
    return rc;
}

int score_file(const struct engine *g, const char *name, bool special, int *bos, int **ids, int *n,
               struct error *e)
{
    char path[PATH_MAX], *text = NULL;
    int rc = 0;
    size_t size;

    if (strcmp(name, TEST_TEXT_DEFAULT) == 0)
        rc = paths_data(BUNDLED, path, sizeof path, e);
    else
        snprintf(path, sizeof path, "%s", name);
    if (rc == 0 && (rc = score_bos(g, bos, e)) == 0 &&
        (rc = test_text_read(path, &text, &size, e)) == 0)
        rc = score_encode(g, *bos, text, size, special, ids, n, e);
    mem_free(text);
    return rc;
}

int score_lines(const char *what, const char *text, size_t size,
                int (*fn)(void *ctx, const char *line, size_t n, int number, struct error *e),
                void *ctx, struct error *e)
{
    struct progress p;
    int number = 0, lines = 0, rc = 0;

    progress_begin(&p, what);
    for (size_t at = 0, end; at < size && rc == 0; at = end + 1) {
        const char *newline = memchr(text + at, '\n', size - at);

        end = newline ? (size_t)(newline - text) : size;
        number++;
        if (end == at)
            continue;
        progress_draw(&p, (double)at, (double)size, NULL);
        lines++;
        if ((rc = fn(ctx, text + at, end - at, number, e)) < 0)
            error_prefix(e, "line %d", number);
    }
    progress_end(&p);
    return rc == 0 && !lines ? error_set(e, ERR_INPUT, "no lines in it") : rc;
}

int score_report(const struct options *o, const struct engine *g, json_t *result, struct error *e)
{
    const struct engine_info *info;
    char *text;
    int rc;

    if (!o->quality_json) {
        json_decref(result);
        return 0;
    }
    if (!result)
        return error_set(e, ERR_VALUE, "%s: not written: a figure is infinite or no number",
                         o->quality_json);
    info = engine_info(g);
    json_object_set_new(result, "model", json_string(info->model->name));
    json_object_set_new(result, "type", json_string(dtype_info(info->model->type)->word));
    json_object_set_new(result, "kernels", json_string(info->kernels));
    text = json_dumps(result, JSON_INDENT(2));
    json_decref(result);
    if (!text)
        return error_set(e, ERR_MEMORY, "out of memory for %s", o->quality_json);
    rc = file_replace(o->quality_json, text, strlen(text), e);
    free(text);
    return rc;
}

int score_chunks(const struct options *o, const char *text, int n, int context, int *chunks,
                 struct error *e)
{
    if (*chunks < 1)
        return error_set(e, ERR_INPUT,
                         "%s: %d tokens are fewer than one chunk of %d; take a longer text or a "
                         "smaller -c",
                         text, n, context);
    if (o->chunks > 0 && o->chunks < *chunks)
        *chunks = o->chunks;
    return 0;
}
