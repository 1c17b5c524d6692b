/* See lens_dump.h. How many tokens there are is known before the first one, so every column has its
 * place at once: each token's values are written there, nothing but one token is in memory. */
#include "app/lab/lens_dump.h"

#include "app/lab/lens_top.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/strbuf.h"
#include "engine/file/weights.h"
#include "engine/model/model.h"
#include "engine/run/lens/lens.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Columns: name, type, and up to three dimensions behind the tokens' (0: none). l: the lens. */
/* clang-format off */
#define COLUMNS(X)                                                     \
    X(POSITION,     "position",     "I32", 1, 0, 0)                    \
    X(TOKEN,        "token",        "I32", 1, 0, 0)                    \
    X(TARGET,       "target",       "I32", 1, 0, 0)                    \
    X(LOGIT,        "logit",        "F32", 1, 0, 0)                    \
    X(STREAM,       "stream",       "F32", l->layers + 1, l->hidden, 0) \
    X(LENS_LOGIT,   "lens_logit",   "F32", l->layers + 1, 0, 0)        \
    X(LENS_RANK,    "lens_rank",    "I32", l->layers + 1, 0, 0)        \
    X(LENS_TOP,     "lens_top",     "I32", l->layers + 1, LENS_TOP, 0) \
    X(LENS_TOP_LOGIT, "lens_top_logit", "F32", l->layers + 1, LENS_TOP, 0) \
    X(BY_EMBEDDING, "by_embedding", "F32", l->attributes, 0, 0)        \
    X(BY_MIXER,     "by_mixer",     "F32", l->attributes * l->layers, 0, 0) \
    X(BY_EXPERT,    "by_expert",    "F32", l->attributes * l->layers, l->slots, 0) \
    X(BY_CONSTANT,  "by_constant",  "F32", l->attributes, 0, 0)        \
    X(EXPERTS,      "experts",      "I32", l->layers, l->slots, 0)     \
    X(WEIGHTS,      "weights",      "F32", l->layers, l->slots, 0)     \
    X(SCORES,       "scores",       "F32", l->layers, l->experts, 0)   \
    X(RUNNER_UP,    "runner_up",    "I32", l->layers, 0, 0)            \
    X(SWAP_TOKEN,   "swap_token",   "I32", swaps * l->layers, 0, 0)    \
    X(SWAP_LOGIT,   "swap_logit",   "F32", swaps * l->layers, 0, 0)    \
    X(ATTENTION,    "attention",    "F32", l->layers, l->heads, l->positions)
/* clang-format on */

enum column {
#define X(name, word, type, a, b, c) COLUMN_##name,
    COLUMNS(X)
#undef X
        N_COLUMNS
};

struct dump {
    struct engine *g;
    struct lens *l;
    const char *path;
    int fd, n, n_vocab;
    bool swaps;
    uint64_t at[N_COLUMNS];   /* where a column begins in the file */
    size_t values[N_COLUMNS]; /* of a token; each of 4 bytes */
    int dims[N_COLUMNS][3];
    float *logits, *by;
    struct strbuf row; /* of the column being written */
};

static const char *const names[] = {
#define X(name, word, type, a, b, c) word,
    COLUMNS(X)
#undef X
};
static const char *const types[] = {
#define X(name, word, type, a, b, c) type,
    COLUMNS(X)
#undef X
};

int lens_check(const struct options *o, const char *mode, struct error *e)
{
    size_t n = o->lens ? strlen(o->lens) : 0;
    static const char ending[] = ".safetensors";

    if (o->lens_swaps && !o->lens)
        return error_set(e, ERR_USAGE, "--lens-swaps belongs to --lens FILE");
    if (!o->lens)
        return 0;
    if (strcmp(mode, "one-shot") != 0)
        return error_set(e, ERR_USAGE,
                         "--lens looks at one answer: it goes with -p TEXT or -f FILE");
    if (o->connect)
        return error_set(e, ERR_USAGE,
                         "--lens is of a model on this machine: leave --connect away");
    if (o->control_vector.n || o->control_vector_scaled.n)
        return error_set(e, ERR_USAGE,
                         "--lens takes a logit apart into what the model's own parts add: leave "
                         "--control-vector out");
    if (n <= sizeof ending - 1 || strcmp(o->lens + n - (sizeof ending - 1), ending) != 0)
        return error_set(e, ERR_USAGE, "--lens %s: a .safetensors file, by its ending", o->lens);
    return 0;
}

/* ---- the file ---- */

static void set_dims(struct dump *d)
{
    const struct lens *l = d->l;
    const int swaps = d->swaps, dims[N_COLUMNS][3] = {
#define X(name, word, type, a, b, c) {a, b, c},
                                    COLUMNS(X)
#undef X
                                };

    for (int i = 0; i < N_COLUMNS; i++) {
        size_t values = (size_t)dims[i][0];

        memcpy(d->dims[i], dims[i], sizeof dims[i]);
        for (int k = 1; k < 3; k++)
            values *= dims[i][k] > 0 ? (size_t)dims[i][k] : 1;
        if ((i == COLUMN_EXPERTS || i == COLUMN_WEIGHTS || i == COLUMN_BY_EXPERT) && !l->slots)
            values = 0;
        if (i == COLUMN_SCORES && !l->experts)
            values = 0;
        if (i == COLUMN_ATTENTION && !l->heads)
            values = 0;
        d->values[i] = values;
    }
}

/* What of each layer: its mixer in a word, and whether it chooses experts. */
static json_t *about(const struct dump *d)
{
    const struct model *m = engine_info(d->g)->model;
    json_t *mixers = json_array(), *routed = json_array();
    char hash[20], *text;
    json_t *o;

    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)m->hash);
    for (int i = 0; i < d->l->layers; i++) {
        const struct layer_shape *s = hparams_layer(&m->hp, i);

        json_array_append_new(mixers, json_string(shape_mixer_word(s->mixer.kind)));
        json_array_append_new(routed, json_integer(s->ffn.used));
    }
    o = json_pack("{s:i, s:s, s:s, s:s, s:o, s:o, s:b, s:f, s:f}", "moetop_lens", 1, "model",
                  path_name(weight_file_path(m->file)), "family", m->family, "model_hash", hash,
                  "mixers", mixers, "used", routed, "attributes", d->l->attributes, "logit_divisor",
                  (double)m->hp.logit_divisor, "logit_cap", (double)m->hp.logit_cap);
    text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    o = text ? json_pack("{s:s, s:s}", "format", "moetop-lens", "moetop_lens", text) : NULL;
    free(text); /* jansson's */
    return o;
}

static int put(struct dump *d, const void *data, size_t n, uint64_t at, struct error *e)
{
    const uint8_t *p = data;

    while (n) {
        ssize_t done = pwrite(d->fd, p, n, (off_t)at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return error_set(e, ERR_IO, "%s cannot be written: %s", d->path, strerror(errno));
        p += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

static int put_head(struct dump *d, struct error *e)
{
    json_t *o = json_pack("{s:o}", "__metadata__", about(d));
    uint64_t at = 0, n;
    char *text;
    int rc;

    for (int i = 0; i < N_COLUMNS && o; i++) {
        uint64_t bytes = 4 * (uint64_t)d->values[i] * (uint64_t)d->n;
        json_t *shape = json_pack("[i]", d->n);

        d->at[i] = at;
        for (int k = 0; k < 3 && (k == 0 || d->dims[i][k]); k++)
            if (k > 0 || d->dims[i][1] || d->dims[i][0] > 1)
                json_array_append_new(shape, json_integer(d->dims[i][k]));
        if (d->values[i])
            json_object_set_new(o, names[i],
                                json_pack("{s:s, s:o, s:[I, I]}", "dtype", types[i], "shape", shape,
                                          "data_offsets", (json_int_t)at,
                                          (json_int_t)(at + bytes)));
        else
            json_decref(shape);
        at += bytes;
    }
    text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!text)
        return error_set(e, ERR_MEMORY, "out of memory for the head of %s", d->path);
    strbuf_clear(&d->row);
    n = (strlen(text) + 7) / 8 * 8;
    strbuf_put(&d->row, (const char *)&n, sizeof n);
    strbuf_puts(&d->row, text);
    while (d->row.len < n + sizeof n)
        strbuf_putc(&d->row, ' ');
    free(text); /* jansson's */
    for (int i = 0; i < N_COLUMNS; i++)
        d->at[i] += n + sizeof n;
    rc = d->row.failed ? error_set(e, ERR_MEMORY, "out of memory for the head of %s", d->path)
                       : put(d, d->row.data, d->row.len, 0, e);
    if (rc == 0 && ftruncate(d->fd, (off_t)(at + n + sizeof n)) < 0)
        rc = error_set(e, ERR_IO, "%s cannot have %llu bytes: %s", d->path,
                       (unsigned long long)(at + n), strerror(errno));
    return rc;
}

static int put_column(struct dump *d, int token, enum column c, const void *values, struct error *e)
{
    size_t bytes = 4 * d->values[c];

    return bytes ? put(d, values, bytes, d->at[c] + (uint64_t)token * bytes, e) : 0;
}

/* ---- a token ---- */

static int put_lens(struct dump *d, int token, int target, struct error *e)
{
    const struct lens *l = d->l;
    size_t n = (size_t)l->layers + 1;
    float *logit = mem_alloc(n * (1 + LENS_TOP), sizeof *logit), *best = logit ? logit + n : NULL;
    int *rank = mem_alloc(n * (1 + LENS_TOP), sizeof *rank), *ids = rank ? rank + n : NULL;
    int rc = logit && rank ? 0 : error_set(e, ERR_MEMORY, "out of memory for a lens");

    for (int i = 0; i <= l->layers && rc == 0; i++) {
        if ((rc = engine_lens_logits(d->g, l, i, d->logits, e)) < 0)
            break;
        logit[i] = d->logits[target];
        rank[i] = lens_rank(d->logits, d->n_vocab, target);
        lens_top(d->logits, d->n_vocab, ids + i * LENS_TOP, best + i * LENS_TOP);
    }
    if (rc == 0 && (rc = put_column(d, token, COLUMN_LENS_LOGIT, logit, e)) == 0 &&
        (rc = put_column(d, token, COLUMN_LENS_RANK, rank, e)) == 0 &&
        (rc = put_column(d, token, COLUMN_LENS_TOP, ids, e)) == 0)
        rc = put_column(d, token, COLUMN_LENS_TOP_LOGIT, best, e);
    mem_free(logit);
    mem_free(rank);
    return rc;
}

static int put_parts(struct dump *d, int token, int target, struct error *e)
{
    const struct lens *l = d->l;
    const float *by = d->by;
    int rc;

    if (!l->attributes)
        return 0;
    if ((rc = engine_lens_parts(d->g, l, target, d->by, e)) < 0 ||
        (rc = put_column(d, token, COLUMN_BY_EMBEDDING, by, e)) < 0 ||
        (rc = put_column(d, token, COLUMN_BY_MIXER, by + 1, e)) < 0 ||
        (rc = put_column(d, token, COLUMN_BY_EXPERT, by + 1 + l->layers, e)) < 0)
        return rc;
    return put_column(d, token, COLUMN_BY_CONSTANT, by + 1 + l->layers * (1 + l->slots), e);
}

static int put_runners_up(struct dump *d, int token, struct error *e)
{
    const struct lens *l = d->l;
    int *other = mem_alloc((size_t)l->layers * 2, sizeof *other), id, rc = 0;
    float *logit = mem_alloc((size_t)l->layers, sizeof *logit), value;

    if (!other || !logit)
        rc = error_set(e, ERR_MEMORY, "out of memory for a lens");
    for (int i = 0; i < l->layers && rc == 0; i++) {
        int ids[LENS_TOP];
        float values[LENS_TOP];

        other[i] = lens_runner_up(d->g, l, i);
        id = -1;
        value = 0;
        if (d->swaps && other[i] >= 0 && (rc = engine_lens_swap(d->g, l, i, d->logits, e)) == 0) {
            lens_top(d->logits, d->n_vocab, ids, values);
            id = ids[0];
            value = values[0];
        }
        other[l->layers + i] = id;
        logit[i] = value;
    }
    if (rc == 0 && (rc = put_column(d, token, COLUMN_RUNNER_UP, other, e)) == 0 &&
        (rc = put_column(d, token, COLUMN_SWAP_TOKEN, other + l->layers, e)) == 0)
        rc = put_column(d, token, COLUMN_SWAP_LOGIT, logit, e);
    mem_free(other);
    mem_free(logit);
    return rc;
}

static int put_token(struct dump *d, int token, const int *ids, int pos, struct error *e)
{
    struct lens *l = d->l;
    int target = ids[pos + 1], rc = engine_lens(d->g, l, ids[pos], pos, e);
    const struct {
        enum column c;
        const void *values;
    } plain[] = {{COLUMN_POSITION, &pos},       {COLUMN_TOKEN, &ids[pos]},
                 {COLUMN_TARGET, &target},      {COLUMN_LOGIT, &l->logits[target]},
                 {COLUMN_STREAM, l->stream},    {COLUMN_EXPERTS, l->chosen},
                 {COLUMN_WEIGHTS, l->weights},  {COLUMN_SCORES, l->scores},
                 {COLUMN_ATTENTION, l->pattern}};

    for (size_t i = 0; i < sizeof plain / sizeof *plain && rc == 0; i++)
        rc = put_column(d, token, plain[i].c, plain[i].values, e);
    if (rc == 0 && (rc = put_lens(d, token, target, e)) == 0 &&
        (rc = put_parts(d, token, target, e)) == 0)
        rc = put_runners_up(d, token, e);
    if (rc == 0 && d->swaps) { /* the position as it was */
        engine_session_rewind(d->g, pos);
        rc = engine_eval(d->g, &ids[pos], 1, NULL, false, e);
    }
    return rc;
}

int lens_dump(struct engine *g, int from, bool swaps, const char *path, struct error *e)
{
    struct dump d = {.g = g, .path = path, .fd = -1, .swaps = swaps};
    const int *held;
    int n = engine_session_tokens(g, &held), rc, *ids = NULL;
    char *beside = NULL;

    if (from < 1 || from >= n)
        return error_set(e, ERR_USAGE, "--lens: the answer has no token to look at");
    d.n = n - from;
    d.n_vocab = engine_info(g)->model->hp.n_vocab;
    if ((rc = lens_new(&d.l, g, n - 1, e)) < 0)
        return rc;
    set_dims(&d);
    d.logits = mem_alloc((size_t)d.n_vocab, sizeof *d.logits);
    d.by = mem_alloc((size_t)(2 + d.l->layers * (1 + d.l->slots)), sizeof *d.by);
    ids = mem_alloc((size_t)n, sizeof *ids);
    beside = mem_alloc(strlen(path) + 8, 1);
    if (!d.logits || !d.by || !ids || !beside) {
        rc = error_set(e, ERR_MEMORY, "out of memory for %s", path);
        goto out;
    }
    memcpy(ids, held, (size_t)n * sizeof *ids);
    sprintf(beside, "%s.part", path);
    if ((d.fd = file_open_write(beside, O_CREAT | O_TRUNC, 0666, e)) < 0) {
        rc = d.fd;
        goto out;
    }
    engine_counting_set(g, false);
    rc = put_head(&d, e);
    for (int i = 0; i < d.n && rc == 0; i++)
        rc = put_token(&d, i, ids, from - 1 + i, e);
    engine_session_rewind(g, from - 1);
    if (rc == 0)
        rc = engine_eval(g, ids + from - 1, n - from + 1, NULL, false, e);
    engine_counting_set(g, true);
    if (rc == 0 && (fsync(d.fd) < 0 || rename(beside, path) < 0))
        rc = error_set(e, ERR_IO, "%s cannot be written: %s", path, strerror(errno));
    close(d.fd);
    if (rc < 0)
        unlink(beside);
out:
    lens_free(d.l);
    mem_free(d.logits);
    mem_free(d.by);
    mem_free(ids);
    mem_free(beside);
    strbuf_release(&d.row);
    return rc;
}
