/* The tuning table and its file (shape_table.h). A hundred lines at most, read once at open, so it
 * is text that a user can read, delete or edit. */
#include "engine/device/cpu/shape_table.h"
#include "engine/base/cache.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/base/pool.h"
#include "engine/device/numerics.h"
#include "engine/model/block.h"

#include <assert.h>
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MOST 65536
/* a threshold with a smaller gain does not replace the built-in one */
#define GAIN 0.05
/* Tokens from which oneDNN, if chosen, multiplies if nothing was measured. */
#define LIBRARY_FROM_BF16 6
#define LIBRARY_FROM_F32 24
/* the slowest sample to the fastest, without the two extremes */
#define BUSY 1.2
/* 95 % for the five pairs left without the extremes */
#define STUDENT 2.78

const struct tune_entry *tune_find(const struct tune *t, enum dtype type, int rows, int cols)
{
    for (int i = 0; i < t->n; i++)
        if (t->entry[i].type == type && t->entry[i].cols == cols && t->entry[i].rows == rows)
            return &t->entry[i];
    return NULL;
}

int tune_from(const struct tune *t, enum dtype type, int rows, int cols, int otherwise)
{
    const struct tune_entry *best = NULL;

    for (int i = 0; i < t->n; i++) {
        const struct tune_entry *p = &t->entry[i];

        if (p->type == type && p->cols == cols &&
            (!best || abs(p->rows - rows) < abs(best->rows - rows)))
            best = p;
    }
    return best ? best->from : otherwise;
}

bool tune_set(struct tune *t, struct tune_entry entry)
{
    struct tune_entry *old = (struct tune_entry *)tune_find(t, entry.type, entry.rows, entry.cols);

    assert(entry.from == 0 || (entry.from >= 2 && entry.from <= TUNE_NEVER));
    if (!old && t->n == TUNE_MAX)
        return false;
    *(old ? old : &t->entry[t->n++]) = entry;
    return true;
}

bool tune_again(struct tune_when w, int busy)
{
    return !w.here && w.busy >= TUNE_BUSY && 2 * busy <= w.busy;
}

int tune_default(enum dtype type, int quantised_from, bool bf16)
{
    if (dtype_is_quantised(type))
        return quantised_from;
    return type == DTYPE_BF16 && bf16 ? LIBRARY_FROM_BF16 : LIBRARY_FROM_F32;
}

static struct tune_decode *find_decode(struct tune *t, enum dtype type, int threads)
{
    for (int i = 0; i < t->n_decode; i++)
        if (t->decode[i].type == type && t->decode[i].threads == threads)
            return &t->decode[i];
    return NULL;
}

const struct tune_decode *tune_decode_find(const struct tune *t, enum dtype type, int threads)
{
    return find_decode((struct tune *)t, type, threads);
}

int tune_decode(const struct tune *t, enum dtype type, int threads)
{
    const struct tune_decode *p = tune_decode_find(t, type, threads);

    return p ? p->use : 0;
}

bool tune_decode_set(struct tune *t, struct tune_decode entry)
{
    struct tune_decode *old = find_decode(t, entry.type, entry.threads);

    assert(entry.use > 0 && entry.use <= entry.threads);
    if (!old && t->n_decode == TUNE_DECODE_MAX)
        return false;
    *(old ? old : &t->decode[t->n_decode++]) = entry;
    return true;
}

const struct tune_pattern *tune_pattern(const struct tune *t, enum dtype type, int cols,
                                        int threads)
{
    for (int i = 0; i < t->n_pattern; i++)
        if (t->pattern[i].type == type && t->pattern[i].cols == cols &&
            t->pattern[i].threads == threads)
            return &t->pattern[i];
    return NULL;
}

bool tune_pattern_set(struct tune *t, struct tune_pattern entry)
{
    struct tune_pattern *old = (struct tune_pattern *)tune_pattern(t, entry.type, entry.cols,
                                                                   entry.threads);

    assert(entry.cols > 0 && entry.threads > 0 && entry.id < READ_PATTERNS);
    if (!old && t->n_pattern == TUNE_PATTERN_MAX)
        return false;
    *(old ? old : &t->pattern[t->n_pattern++]) = entry;
    return true;
}

static void add_shape(struct tune *out, const struct matrix *w, int rows)
{
    tune_set(out, (struct tune_entry){
                      .type = w->type, .rows = rows < w->rows ? rows : w->rows, .cols = w->cols});
}

/* The division in the phases of attention.c, experts.c and device.c. */
int tune_heads(int head_dim)
{
    int n = 1;

    while (n * head_dim % NUM_LANES)
        n++;
    return n;
}

void tune_shapes(const struct model *m, struct tune *out)
{
    struct block_matrix list[BLOCK_MATRICES];

    out->n = out->n_decode = out->n_pattern = 0;
    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);) {
        const struct mixer_shape *s = &hparams_layer(&m->hp, id.layer)->mixer;
        bool heads = s->kind == MIXER_ATTENTION || s->kind == MIXER_MLA;
        int keys = heads ? tune_heads(s->key_dim) * s->key_dim : CPU_WIDE,
            values = heads ? tune_heads(shape_value_dim(s)) * shape_value_dim(s) : CPU_WIDE;
        const int rows[MATRIX_PARTS] = {[MATRIX_Q] = keys,
                                        [MATRIX_K] = keys,
                                        [MATRIX_V] = values,
                                        [MATRIX_O] = CPU_WIDE,
                                        [MATRIX_V_BEFORE] = CPU_WIDE,
                                        [MATRIX_NGRAM_KEY] = 2 * CPU_UNIT,
                                        [MATRIX_NGRAM_VALUE] = 2 * CPU_UNIT,
                                        [MATRIX_IN] = CPU_WIDE,
                                        [MATRIX_Z] = s->kind == MIXER_ATTENTION ? values : CPU_WIDE,
                                        [MATRIX_B] = CPU_WIDE,
                                        [MATRIX_A] = CPU_WIDE,
                                        [MATRIX_Z_IN] = CPU_WIDE,
                                        [MATRIX_A_IN] = CPU_WIDE,
                                        [MATRIX_Q_A] = CPU_WIDE,
                                        [MATRIX_KV_A] = CPU_WIDE,
                                        [MATRIX_K_B] = s->kv_rank,
                                        [MATRIX_V_B] = values,
                                        [MATRIX_INDEX_Q] = s->index_dim,
                                        [MATRIX_INDEX_K] = CPU_WIDE,
                                        [MATRIX_INDEX_WEIGHTS] = CPU_WIDE,
                                        [MATRIX_INDEX_GATE] = CPU_WIDE,
                                        [MATRIX_COMPRESS_KEYS] = CPU_WIDE,
                                        [MATRIX_COMPRESS_GATES] = CPU_WIDE,
                                        [MATRIX_O_A] = CPU_WIDE,
                                        [MATRIX_INPUT_GATE] = 2 * CPU_UNIT,
                                        [MATRIX_INPUT_OUT] = 2 * CPU_UNIT,
                                        [MATRIX_INPUT_PROJECT] = 2 * CPU_UNIT,
                                        [MATRIX_LAUREL_IN] = 2 * CPU_UNIT,
                                        [MATRIX_LAUREL_OUT] = 2 * CPU_UNIT,
                                        [MATRIX_STREAM_IN] = 2 * CPU_UNIT,
                                        [MATRIX_STREAM_OUT] = 2 * CPU_UNIT,
                                        [MATRIX_JOIN] = 2 * CPU_UNIT,
                                        [MATRIX_GATE] = CPU_UNIT,
                                        [MATRIX_UP] = CPU_UNIT,
                                        [MATRIX_DOWN] = CPU_WIDE,
                                        [MATRIX_HEAD] = 2 * CPU_UNIT};

        for (int i = 0, n = model_block_matrices(m, id, list); i < n; i++)
            add_shape(out, list[i].w, rows[list[i].part]);
    }
}

/* log(small_batch / large_batch) at one count without the two extreme pairs: to exclude
 * interruptions. */
static void ratio(const double *small_batch, const double *large_batch, double *mean,
                  double *variance)
{
    double r[TUNE_PAIRS];

    for (int i = 0; i < TUNE_PAIRS; i++)
        r[i] = log(small_batch[i] / large_batch[i]);
    qsort(r, TUNE_PAIRS, sizeof *r, series_compare);
    *mean = *variance = 0;
    for (int i = 1; i < TUNE_PAIRS - 1; i++)
        *mean += r[i] / (TUNE_PAIRS - 2);
    for (int i = 1; i < TUNE_PAIRS - 1; i++)
        *variance += (r[i] - *mean) * (r[i] - *mean) / (TUNE_PAIRS - 3);
}

static bool worth(double gain, double variance)
{
    return gain >= log(1 + GAIN) && gain >= STUDENT * sqrt(variance);
}

bool tune_faster(const double a[TUNE_PAIRS], const double b[TUNE_PAIRS])
{
    double mean, variance;

    ratio(a, b, &mean, &variance);
    return worth(mean, variance / (TUNE_PAIRS - 2));
}

int tune_fastest(const double ns[][TUNE_PAIRS], int n, int otherwise)
{
    double sorted[TUNE_PAIRS], mean, variance, gain = 0;
    int best = otherwise;

    assert(otherwise >= 0 && otherwise < n);
    memcpy(sorted, ns[otherwise], sizeof sorted);
    qsort(sorted, TUNE_PAIRS, sizeof *sorted, series_compare);
    if (sorted[TUNE_PAIRS - 2] > BUSY * sorted[1])
        return -1;
    for (int i = 0; i < n; i++) {
        ratio(ns[otherwise], ns[i], &mean, &variance);
        if (mean > gain && worth(mean, variance / (TUNE_PAIRS - 2))) {
            gain = mean;
            best = i;
        }
    }
    return best;
}

int tune_choose(const int *count, int n, const double small_batch[][TUNE_PAIRS],
                const double large_batch[][TUNE_PAIRS], int otherwise)
{
    double mean[TUNE_COUNTS], variance[TUNE_COUNTS], gain = 0, most = 0, sum = 0, noise = 0;
    int best = n, now = 0, lo, hi;

    assert(n > 0 && n <= TUNE_COUNTS);
    for (int i = 0; i < n; i++)
        ratio(small_batch[i], large_batch[i], &mean[i], &variance[i]);
    for (int i = n - 1; i >= 0; i--) /* `large_batch` from count i on */
        if ((gain += mean[i]) > most) {
            most = gain;
            best = i;
        }
    while (now < n && count[now] < otherwise)
        now++;
    lo = best < now ? best : now;
    hi = best < now ? now : best;
    for (int i = lo; i < hi; i++) {
        sum += (best < now ? mean[i] : -mean[i]) / (hi - lo);
        noise += variance[i] / (TUNE_PAIRS - 2) / ((hi - lo) * (hi - lo));
    }
    if (lo == hi || !worth(sum, noise))
        return otherwise;
    return best < n ? count[best] : TUNE_NEVER;
}

/* The end of a line. */
static const char *mark(struct tune_when w, char text[24])
{
    if (w.busy >= TUNE_BUSY)
        snprintf(text, 24, " busy %d\n", w.busy);
    return w.busy >= TUNE_BUSY ? text : "\n";
}

size_t tune_text(const struct tune *t, const char *key, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s\n", key);
    char end[24];

    for (int i = 0; i < t->n && n < size; i++) {
        const struct tune_entry *p = &t->entry[i];

        n += (size_t)snprintf(out + n, size - n, "%s %d %d ", dtype_info(p->type)->word, p->rows,
                              p->cols);
        if (n < size)
            n += (size_t)(p->from >= TUNE_NEVER
                              ? snprintf(out + n, size - n, "never%s", mark(p->when, end))
                              : snprintf(out + n, size - n, "%d%s", p->from, mark(p->when, end)));
    }
    for (int i = 0; i < t->n_decode && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "decode %s %d %d%s",
                              dtype_info(t->decode[i].type)->word, t->decode[i].threads,
                              t->decode[i].use, mark(t->decode[i].when, end));
    for (int i = 0; i < t->n_pattern && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "pattern %s %d %d %s%s",
                              dtype_info(t->pattern[i].type)->word, t->pattern[i].cols,
                              t->pattern[i].threads, pattern_of[t->pattern[i].id].word,
                              mark(t->pattern[i].when, end));
    return n < size ? n : 0;
}

static int parse_line(const char *line, struct tune_entry *p)
{
    char type[16], from[16], rest;
    int word;

    if (sscanf(line, "%15s %9d %9d %15s %c", type, &p->rows, &p->cols, from, &rest) != 4 ||
        (word = dtype_from_word(type)) < 0)
        return -1;
    p->type = (enum dtype)word;
    p->from = TUNE_NEVER;
    if (strcmp(from, "never") != 0 && (strspn(from, "0123456789") != strlen(from) ||
                                       strlen(from) > 5 || (p->from = atoi(from)) >= TUNE_NEVER))
        return -1;
    return p->rows < 1 || p->cols < 1 || p->from < 2 ? -1 : 0;
}

static bool take_pattern(struct tune *t, const char *line, struct tune_when when)
{
    char type[16], word[32], rest;
    struct tune_pattern p = {.when = when};
    int dtype, id;

    if (sscanf(line, "pattern %15s %9d %9d %31s %c", type, &p.cols, &p.threads, word, &rest) != 4 ||
        (dtype = dtype_from_word(type)) < 0 || (id = pattern_from_word(word)) < 0)
        return false;
    p.type = (enum dtype)dtype;
    p.id = (enum pattern_id)id;
    return p.cols >= 1 && p.threads >= 1 && p.threads <= POOL_MAX && tune_pattern_set(t, p);
}

/* Cuts the mark of a busy machine off a line. */
static bool take_mark(char *line, struct tune_when *when)
{
    char *at = strstr(line, " busy "), rest;

    if (!at)
        return true;
    if (sscanf(at, " busy %4d%c", &when->busy, &rest) != 1 || when->busy < TUNE_BUSY ||
        when->busy > TUNE_BUSY_MOST)
        return false;
    *at = 0;
    return true;
}

/* Parses any line but the first into the table. */
static bool take_line(struct tune *t, char *line)
{
    struct tune_when when = {0};
    struct tune_decode d;
    struct tune_entry p;
    char type[16], rest;
    int word;

    if (!take_mark(line, &when))
        return false;
    p.when = d.when = when;
    if (strncmp(line, "pattern ", 8) == 0)
        return take_pattern(t, line, when);
    if (strncmp(line, "decode ", 7) != 0)
        return parse_line(line, &p) == 0 && tune_set(t, p);
    if (sscanf(line, "decode %15s %9d %9d %c", type, &d.threads, &d.use, &rest) != 3 ||
        (word = dtype_from_word(type)) < 0)
        return false;
    d.type = (enum dtype)word;
    return d.use >= 1 && d.use <= d.threads && d.threads <= POOL_MAX && tune_decode_set(t, d);
}

int tune_parse(struct tune *t, const char *key, const char *text, size_t n, struct error *e)
{
    size_t at = strlen(key) + 1;
    int number = 1;

    t->n = t->n_decode = t->n_pattern = 0;
    if (n < at || memcmp(text, key, at - 1) != 0 || text[at - 1] != '\n')
        return 0; /* another machine's, or an older program's */
    while (at < n) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) - at : 0;
        char line[80];

        number++;
        if (!end || length >= sizeof line)
            goto bad;
        memcpy(line, text + at, length);
        line[length] = 0;
        if (strlen(line) != length || !take_line(t, line))
            goto bad;
        at += length + 1;
    }
    return 0;
bad:
    t->n = t->n_decode = t->n_pattern = 0;
    return error_set(e, ERR_INPUT, "line %d is no measured threshold", number);
}

int tune_read(struct tune *t, const char *path, const char *key, struct error *e)
{
    char *text;
    size_t n;
    int rc = cache_read(path, FILE_MOST, &text, &n, e);

    t->n = t->n_decode = t->n_pattern = 0;
    if (text && (rc = tune_parse(t, key, text, n, e)) < 0)
        error_prefix(e, "%s", path);
    mem_free(text);
    return rc;
}

int tune_write(const struct tune *t, const char *path, const char *key, struct error *e)
{
    char *text = mem_alloc(FILE_MOST, 1);
    size_t n = text ? tune_text(t, key, text, FILE_MOST) : 0;
    int rc = n ? cache_write(path, text, n, e) : error_set(e, ERR_MEMORY, "no memory for %s", path);

    mem_free(text);
    return rc;
}

static void count_when(struct tune_count *c, struct tune_when w, bool is_float)
{
    bool busy = w.busy >= TUNE_BUSY;

    c->choices++;
    c->busy += busy;
    c->floats += busy && is_float;
    if (busy && w.busy > c->most)
        c->most = w.busy;
}

static void count_file(const char *path, struct tune *t, struct tune_count *out)
{
    char *text, *end;
    struct error e;
    size_t n;

    if (cache_read(path, FILE_MOST, &text, &n, &e) < 0 || !text)
        return;
    /* other versions do not read it */
    if ((end = memchr(text, '\n', n)) &&
        strncmp(text, TUNE_KEY_PREFIX, sizeof TUNE_KEY_PREFIX - 1) == 0) {
        char key[TUNE_KEY];

        snprintf(key, sizeof key, "%.*s", (int)(end - text), text);
        if (tune_parse(t, key, text, n, &e) == 0) {
            for (int i = 0; i < t->n; i++)
                count_when(out, t->entry[i].when, !dtype_is_quantised(t->entry[i].type));
            for (int i = 0; i < t->n_decode; i++)
                count_when(out, t->decode[i].when, false);
            for (int i = 0; i < t->n_pattern; i++)
                count_when(out, t->pattern[i].when, false);
        }
    }
    mem_free(text);
}

void tune_folder_count(const char *folder, struct tune_count *out)
{
    static const char begin[] = TUNE_FILE_PREFIX, end[] = TUNE_FILE_SUFFIX;
    struct tune *t = mem_alloc(1, sizeof *t);
    DIR *dir = t ? opendir(folder) : NULL;
    char path[PATH_MAX];
    struct dirent *f;

    *out = (struct tune_count){0};
    while (dir && (f = readdir(dir))) {
        size_t n = strlen(f->d_name);

        if (n >= sizeof begin + sizeof end - 2 &&
            strncmp(f->d_name, begin, sizeof begin - 1) == 0 &&
            strcmp(f->d_name + n - (sizeof end - 1), end) == 0 &&
            snprintf(path, sizeof path, "%s/%s", folder, f->d_name) < (int)sizeof path)
            count_file(path, t, out);
    }
    if (dir)
        closedir(dir);
    mem_free(t);
}
