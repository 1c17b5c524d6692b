/* Exporting: the list of tensors of the new file, then each of them read, rounded and written in
 * pieces. The pool rounds, the calling thread writes; for the searched types both are far from the
 * disk's limit, so they alternate instead of overlapping. */
#include "engine/convert/export.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/convert/export_list.h"
#include "engine/convert/export_metadata.h"
#include "engine/convert/export_same.h"
#include "engine/layout/pack.h"
#include "engine/model/mix.h"
#include "engine/layout/quantize.h"

#include <math.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PIECE ((size_t)16 << 20) /* bytes of output rounded between two writes */
#define SLOT 32                  /* rows per task of a thread */

static const struct export_type types[] = {
    {"q8_0", "8 bits, all but lossless", DTYPE_Q8_0, MIX_PLAIN, 7},
    {"q6_k", "6 bits in blocks of 256", DTYPE_Q6_K, MIX_PLAIN, 18},
    {"q5_k_m", "5 bits in blocks of 256, the sensitive matrices 6", DTYPE_Q5_K, MIX_MEDIUM, 17},
    {"q5_k_s", "5 bits in blocks of 256", DTYPE_Q5_K, MIX_SMALL, 16},
    {"q4_k_m", "4 bits in blocks of 256, the sensitive matrices 6", DTYPE_Q4_K, MIX_MEDIUM, 15},
    {"q4_k_s", "4 bits in blocks of 256, the first layers 5", DTYPE_Q4_K, MIX_SMALL, 14},
    {"q3_k_l", "3 bits in blocks of 256, more matrices 5", DTYPE_Q3_K, MIX_LARGE, 13},
    {"q3_k_m", "3 bits in blocks of 256, some matrices 4 and 5", DTYPE_Q3_K, MIX_MEDIUM, 12},
    {"q3_k_s", "3 bits in blocks of 256", DTYPE_Q3_K, MIX_SMALL, 11},
    {"q2_k", "2 bits in blocks of 256, some matrices 3 and 4", DTYPE_Q2_K, MIX_PLAIN, 10},
    {"q2_k_s", "2 bits in blocks of 256", DTYPE_Q2_K, MIX_SMALL, 21},
    {"iq4_xs", "4 bits of uneven steps in blocks of 256", DTYPE_IQ4_XS, MIX_PLAIN, 30},
    {"iq4_nl", "4 bits of uneven steps", DTYPE_IQ4_NL, MIX_PLAIN, 25},
    {"mxfp4_moe", "experts as floats of 4 bits, the rest 8", DTYPE_MXFP4, MIX_EXPERTS, 38},
    {"q5_1", "5 bits with a minimum", DTYPE_Q5_1, MIX_PLAIN, 9},
    {"q5_0", "5 bits", DTYPE_Q5_0, MIX_PLAIN, 8},
    {"q4_1", "4 bits with a minimum", DTYPE_Q4_1, MIX_PLAIN, 3},
    {"q4_0", "4 bits, the fastest", DTYPE_Q4_0, MIX_PLAIN, 2},
    {"bf16", "16-bit brain floats", DTYPE_BF16, MIX_PLAIN, 32},
    {"f16", "16-bit floats", DTYPE_F16, MIX_PLAIN, 1},
    {"f32", "32-bit floats", DTYPE_F32, MIX_PLAIN, 0},
};

static const char *const short_words[][2] = {
    {"q5_k", "q5_k_m"}, {"q4_k", "q4_k_m"}, {"q3_k", "q3_k_m"}, {"mxfp4", "mxfp4_moe"}};

const struct export_type *export_type_at(int i)
{
    return i >= 0 && i < (int)(sizeof types / sizeof *types) ? &types[i] : NULL;
}

const struct export_type *export_type_find(const char *word)
{
    for (size_t i = 0; i < sizeof short_words / sizeof *short_words; i++)
        if (strcasecmp(short_words[i][0], word) == 0)
            word = short_words[i][1];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcasecmp(types[i].word, word) == 0)
            return &types[i];
    return NULL;
}

/* One run of the pool: rows of one matrix to round. */
struct rounding {
    const struct matrix *x;
    enum dtype to;
    int first, rows;
    uint8_t *out;
    /* with an importance matrix: row i belongs to matrix i / rows_each + first_matrix of them */
    const struct importance *importance;
    const char *name;
    int rows_each, first_matrix, matrices;
    const struct merge_tensor *merge; /* or NULL */
    const float *strengths;           /* NULL: nothing to merge */
    const struct export_order *order;
    struct pool_share share;
    struct tally {
        _Alignas(64) double squares, errors, largest;
    } tally[POOL_MAX];
    float *scratch; /* three rows per thread: x, read back, importance */
};

/* Permutes a row's groups of columns. */
static void move_columns(const struct export_order *o, const void *from, size_t group, int n,
                         void *to)
{
    for (int i = 0; i < n; i++)
        memcpy((char *)to + (size_t)i * group, (const char *)from + (size_t)o->columns[i] * group,
               group);
}

/* Copies a row; false: blocks span several of the permuted groups. */
static bool copy_row(const struct rounding *r, const uint8_t *from, uint8_t *to)
{
    const struct export_order *o = r->order;
    int block = dtype_info(r->to)->block;

    if (r->x->type != r->to || (o->columns && o->each % block))
        return false;
    if (o->columns)
        move_columns(o, from, dtype_row_bytes(r->to, o->each), r->x->cols / o->each, to);
    else
        memcpy(to, from, dtype_row_bytes(r->to, r->x->cols));
    return true;
}

/* Rounds row `row` and adds up its error; a copy has none. */
static void round_row(struct rounding *r, int tid, int row)
{
    const struct matrix *x = r->x;
    size_t from_bytes = dtype_row_bytes(x->type, x->cols),
           to_bytes = dtype_row_bytes(r->to, x->cols);
    int read = r->order->rows ? r->order->rows[row] : row;
    const uint8_t *from = (const uint8_t *)x->data + (size_t)read * from_bytes;
    uint8_t *to = r->out + (size_t)(row - r->first) * to_bytes;
    float *a = r->scratch + (size_t)tid * 3 * (size_t)x->cols, *b = a + x->cols,
          *importance = b + x->cols;
    double squares = 0.0, errors = 0.0, largest = r->tally[tid].largest;

    if (!r->merge && !(r->strengths && x->lora) && copy_row(r, from, to))
        return;
    row_to_f32(x->type, from, x->cols, a);
    if (r->merge)
        merge_tensor_row(r->merge, row, r->strengths, a);
    else if (r->strengths)
        merge_row(x, read, r->strengths, a);
    if (r->order->columns) {
        memcpy(b, a, (size_t)x->cols * sizeof *b);
        move_columns(r->order, b, (size_t)r->order->each * sizeof *b, x->cols / r->order->each, a);
    }
    if (!r->importance ||
        !importance_row(r->importance, r->name, r->first_matrix + row / r->rows_each, r->matrices,
                        x->cols, importance))
        importance = NULL;
    quantise_row(r->to, a, importance, x->cols, to);
    row_to_f32(r->to, to, x->cols, b);
    for (int c = 0; c < x->cols; c++) {
        double d = (double)a[c] - (double)b[c];

        squares += (double)a[c] * (double)a[c];
        errors += d * d;
        largest = fabs(d) > largest ? fabs(d) : largest;
    }
    r->tally[tid].squares += squares;
    r->tally[tid].errors += errors;
    r->tally[tid].largest = largest;
}

static void round_rows(void *ctx, int tid, int n)
{
    struct rounding *r = ctx;

    (void)n;
    for (int at; (at = pool_share_take(&r->share, SLOT, r->rows)) < r->rows;)
        for (int i = at; i < at + SLOT && i < r->rows; i++)
            round_row(r, tid, r->first + i);
}

static int tell(struct export *x, struct error *e)
{
    uint64_t now = clock_now();

    if (!x->o->progress || (now - x->told < 100 * CLOCK_MILLI && x->done < x->total))
        return 0;
    x->told = now;
    return x->o->progress(x->o->progress_ctx, x->done, x->total)
               ? error_set(e, ERR_CANCELLED, "interrupted; nothing was written")
               : 0;
}

static const struct matrix *matrix_at(const struct part *p, int k)
{
    int step = p->paired ? 2 : 1;

    return (const struct matrix *)((const char *)p->matrix + (size_t)(k / step) * p->stride) +
           k % step;
}

/* Writes matrix `first_matrix` of the part and those stacked with it. */
static int write_matrix(struct export *x, const struct part *p, const struct matrix *m,
                        int first_matrix, struct rounding *r, struct error *e)
{
    struct export_kind *kind = &x->report->kinds[p->kind];
    size_t row = dtype_row_bytes(p->type, m->cols);
    int all = p->order.rows ? p->rows : m->rows, rows = (int)(PIECE / row) + 1, rc;

    for (int first = 0; first < all; first += rows) {
        int n = all - first < rows ? all - first : rows;

        r->x = m;
        r->importance = x->importance;
        r->name = p->name;
        r->rows_each = p->rows;
        r->first_matrix = first_matrix;
        r->matrices = p->matrices;
        r->to = p->type;
        r->merge = p->merges ? &p->merge : NULL;
        r->strengths = x->adapters ? x->strengths : NULL;
        r->order = &p->order;
        r->first = first;
        r->rows = n;
        r->out = x->piece;
        memset(r->tally, 0, sizeof r->tally);
        pool_share_reset(&r->share);
        pool_run(x->pool, round_rows, r);
        for (int t = 0; t < pool_threads(x->pool); t++) {
            x->squares[p->kind] += r->tally[t].squares;
            x->errors[p->kind] += r->tally[t].errors;
            kind->largest = r->tally[t].largest > kind->largest ? r->tally[t].largest
                                                                : kind->largest;
        }
        if ((rc = gguf_write_data(x->w, x->piece, (size_t)n * row, e)))
            return rc;
        kind->elements += (uint64_t)n * (uint64_t)m->cols;
        kind->bytes += (uint64_t)n * row;
        x->done += (uint64_t)n * (uint64_t)m->cols;
        if ((rc = tell(x, e)))
            return rc;
    }
    return 0;
}

static int write_parts(struct export *x, struct rounding *r, struct error *e)
{
    int rc = 0;

    for (int i = 0; i < x->n_parts && !rc; i++) {
        const struct part *p = &x->parts[i];

        if (p->copied)
            rc = gguf_write_data(x->w, p->copied, p->copied_bytes, e);
        for (int k = 0; !p->copied && k < p->count && !rc; k++)
            rc = write_matrix(x, p, matrix_at(p, k),
                              p->matrices == 1 ? 0
                              : p->paired      ? k / 2
                                               : k,
                              r, e);
    }
    return rc ? rc : weight_file_check(x->m->file, e);
}

static int verify_mtp(struct export *x, const struct model *written, struct error *e)
{
    struct model_options o = {.mtp_of = written, .convert = -1, .width = 8};
    struct model *m;
    int rc = model_inspect(&m, gguf_write_temporary(x->w), &o, NULL, e);

    if (rc < 0)
        return rc;
    if (m->n_params != x->mtp->n_params)
        rc = error_set(e, ERR_IO, "%s: the block that predicts further tokens is not what was read",
                       gguf_write_temporary(x->w));
    else
        rc = export_same(x->mtp, m, x->family, e);
    x->report->weights += (uint64_t)m->n_params;
    model_free(m);
    return rc;
}

/* Opens and binds the written file as any model before it is renamed. */
static int verify(struct export *x, struct error *e)
{
    struct model_options o = {.convert = -1, .width = 8};
    struct model_footprint needs;
    struct model *m;
    int rc;

    if ((rc = gguf_write_sync(x->w, e)) ||
        (rc = model_inspect(&m, gguf_write_temporary(x->w), &o, &needs, e)))
        return rc;
    x->report->bytes_out = weight_file_bytes(m->file);
    x->report->weights = (uint64_t)m->n_params;
    if (x->mtp && (rc = verify_mtp(x, m, e)))
        goto out;
    x->report->memory = needs.packed + needs.mapped;
    if (m->n_params != x->m->n_params)
        rc = error_set(e, ERR_IO, "%s: what was written is not what was read",
                       gguf_write_temporary(x->w));
    else if (weight_file_format(x->m->file) != WEIGHT_GGUF)
        rc = export_same(x->m, m, x->family, e);
out:
    model_free(m);
    return rc;
}

static int take_room(struct export *x, struct rounding *r, struct error *e)
{
    size_t widest = 1, rows = 0;

    for (int i = 0; i < x->n_parts; i++)
        if (x->parts[i].matrix) {
            size_t row = dtype_row_bytes(x->parts[i].type, x->parts[i].matrix->cols);

            widest = (size_t)x->parts[i].matrix->cols > widest ? (size_t)x->parts[i].matrix->cols
                                                               : widest;
            rows = row > rows ? row : rows;
        }
    x->piece = mem_alloc(PIECE + 2 * rows, 1);
    r->scratch = mem_alloc((size_t)pool_threads(x->pool) * 3 * widest, sizeof(float));
    return x->piece && r->scratch ? 0 : error_set(e, ERR_MEMORY, "out of memory for the rounding");
}

/* What the family's GGUF files require and this folder lacks: llama.cpp's converter assigns such a
 * one another architecture. NULL: nothing. */
static const char *lacks(const struct export *x)
{
    const struct hparams *hp = &x->m->hp;
    bool recurrent = false, experts = false;
    char name[64];

    for (int l = 0; l < hp->n_layers; l++) {
        recurrent |= shape_recurrent(&hparams_layer(hp, l)->mixer) ||
                     hparams_layer(hp, l)->mixer.kind == MIXER_CONVOLVED;
        experts |= hparams_layer(hp, l)->ffn.experts > 0;
    }
    family_gguf_name(x->family, TENSOR_CONV, 0, true, false, name, sizeof name);
    return name[0] && !recurrent            ? "recurrent layers"
           : x->family->gguf[1] && !experts ? "experts"
                                            : NULL;
}

/* The result must equal that of llama.cpp's converter, with its row order and names of shared
 * experts: families are enabled one by one. */
/* Layers with n-grams; GGUF files have one table for them. */
static int hashed_layers(const struct hparams *hp)
{
    int n = 0;

    for (int l = 0; l < hp->n_layers; l++)
        n += hparams_layer(hp, l)->mixer.ngrams.size > 0;
    return n;
}

static int check_family(const struct export *x, const char *in, struct error *e)
{
    const struct hparams *hp = &x->m->hp;
    char key[128];
    bool is_float,
        windows = family_gguf_key(x->family, offsetof(struct hparams, common.mixer.window), key,
                                  sizeof key, &is_float);

    if (weight_file_format(x->m->file) == WEIGHT_GGUF)
        return 0;
    if (!x->family->exported)
        return error_set(e, ERR_MODEL,
                         "%s: folders of the family %s are read, not written yet; llama.cpp's "
                         "convert_hf_to_gguf.py makes a GGUF file of one, and that can be rounded",
                         in, x->family->name);
    if (lacks(x))
        return error_set(
            e, ERR_MODEL,
            "%s: it has no %s, which every GGUF file of the family %s has; llama.cpp's "
            "convert_hf_to_gguf.py makes a file of another architecture of it",
            in, lacks(x), x->family->name);
    if (hashed_layers(hp) > 1)
        return error_set(
            e, ERR_MODEL,
            "%s: %d of its layers have embeddings of n-grams; GGUF files of the family "
            "%s have them of one",
            in, hashed_layers(hp), x->family->name);
    for (int l = 0; l < hp->n_layers && !windows; l++)
        if (hparams_layer(hp, l)->mixer.window)
            return error_set(e, ERR_MODEL,
                             "%s: layer %d sees a window of %d tokens, which GGUF files of the "
                             "family %s cannot say",
                             in, l, hparams_layer(hp, l)->mixer.window, x->family->name);
    return 0;
}

static int compile_patterns(struct export *x, struct error *e)
{
    int code;
    PCRE2_SIZE at;

    if (!(x->patterns = mem_alloc((size_t)x->o->n_overrides + 1, sizeof *x->patterns)))
        return error_set(e, ERR_MEMORY, "out of memory for the patterns");
    for (int i = 0; i < x->o->n_overrides; i++) {
        const char *p = x->o->overrides[i].pattern;
        PCRE2_UCHAR why[120];

        x->patterns[i] = pcre2_compile((PCRE2_SPTR)p, PCRE2_ZERO_TERMINATED, PCRE2_CASELESS, &code,
                                       &at, NULL);
        if (!x->patterns[i]) {
            pcre2_get_error_message(code, why, sizeof why);
            return error_set(e, ERR_USAGE, "'%.80s' is no pattern: %s at character %zu", p,
                             (const char *)why, at + 1);
        }
    }
    return 0;
}

/* Whether the importance matrix has data for a part, at least for one of its matrices. */
static bool known(const struct export *x, const struct part *p, float *row)
{
    for (int k = 0; k < p->matrices; k++)
        if (importance_row(x->importance, p->name, k, p->matrices, p->matrix->cols, row))
            return true;
    return false;
}

/* Checks the shapes of the importance matrix before anything is written. */
static int check_importance(struct export *x, struct error *e)
{
    for (int i = 0; i < x->n_parts; i++) {
        const struct part *p = &x->parts[i];
        float *row;
        int rc;

        if (p->copied)
            continue;
        if ((rc = importance_check(x->importance, p->name, p->matrices, p->matrix->cols, e)) < 0)
            return rc;
        if (p->type == p->matrix->type || !dtype_is_quantised(p->type))
            continue;
        if (!(row = mem_alloc((size_t)p->matrix->cols, sizeof *row)))
            return error_set(e, ERR_MEMORY, "out of memory for the importance matrix");
        if (known(x, p, row))
            x->report->known++;
        else
            x->report->unknown++;
        mem_free(row);
    }
    return 0;
}

static int open_adapters(struct export *x, const char *in, struct error *e)
{
    const struct export_options *o = x->o;

    if (!o->n_adapters)
        return 0;
    if (dtype_is_quantised(o->type->base))
        return error_set(e, ERR_USAGE, "adapters are merged into F32, F16 and BF16");
    return merge_open(&x->adapters, x->strengths, x->m, o->adapters, o->n_adapters, in, e);
}

static void leave_out(struct export *x, const char *what, const char *why)
{
    char *said = x->report->left_out;
    size_t n = strlen(said);

    snprintf(said + n, sizeof x->report->left_out - n, "%s%s%s", n ? "; " : "", what, why);
}

/* Opens a folder's MTP block, the first if it has several. An incomplete one is skipped, as are
 * unused tensors; the report lists them. */
static void open_mtp(struct export *x, const char *in)
{
    struct model *m = x->m;
    struct error own = {0};

    if (m->has_mtp && x->o->without_mtp)
        leave_out(x, "the block that predicts further tokens", " (--spec-type none)");
    else if (m->has_mtp && model_open_raw(&x->mtp, in, m, &own) < 0)
        leave_out(x, "the block that predicts further tokens: ", own.text);
    x->report->mtp = x->mtp != NULL;
    if (x->mtp && family_mtp(x->family, m->file, m->hp.n_layers, &x->mtp_read) &&
        family_tensor(&x->mtp_read, m->file, TENSOR_ATTENTION_NORM, 1, 0, false))
        leave_out(x, "blocks that predict further tokens", " behind the first one");
    if (m->unused[0])
        leave_out(x, m->unused + strcspn(m->unused, ":") + 2, "");
}

static int prepare(struct export *x, const char *in, struct matrix embeddings[EXPORT_TABLES],
                   struct error *e)
{
    int rc;

    if ((rc = model_open_raw(&x->m, in, NULL, e)) || (rc = family_of(&x->family, x->m->file, e)) ||
        (rc = check_family(x, in, e)) || (rc = compile_patterns(x, e)) ||
        (rc = open_adapters(x, in, e)))
        return rc;
    x->trunk = x->m;
    if (weight_file_format(x->m->file) != WEIGHT_GGUF) {
        open_mtp(x, in);
        x->family = x->family->exported_as ? x->family->exported_as : x->family;
    }
    if (x->o->importance && (rc = importance_open(&x->importance, x->o->importance, e)))
        return rc;
    rc = weight_file_format(x->m->file) == WEIGHT_GGUF ? export_list_tensors(x, e)
                                                       : export_list_parts(x, embeddings, e);
    return rc || !x->importance ? rc : check_importance(x, e);
}

static void release(struct export *x)
{
    gguf_write_abort(x->w);
    pool_free(x->pool);
    importance_close(x->importance);
    for (int i = 0; x->patterns && i < x->o->n_overrides; i++)
        pcre2_code_free(x->patterns[i]);
    mem_free(x->patterns);
    export_list_release(x);
    mem_free(x->piece);
    model_free(x->mtp);
    model_free(x->m);
    adapters_close(x->adapters);
}

int model_export(const char *in, const char *out, const struct export_options *o,
                 struct export_report *report, struct error *e)
{
    struct export x = {.o = o, .report = report, .told = clock_now()};
    struct rounding *r = mem_alloc(1, sizeof *r);
    struct matrix embeddings[EXPORT_TABLES];
    int rc;

    *report = (struct export_report){0};
    if (!r)
        return error_set(e, ERR_MEMORY, "out of memory for the rounding");
    if ((rc = prepare(&x, in, embeddings, e)) ||
        (rc = pool_new(&x.pool, o->n_threads > 1 ? o->n_threads : 1, false, e)) ||
        (rc = take_room(&x, r, e)) || (rc = gguf_write_open(&x.w, out, e)))
        goto out;
    report->bytes_in = weight_file_bytes(x.m->file);
    if ((rc = export_metadata(x.w, x.m, x.family, x.mtp, o->type->file_type, &report->tokenizer,
                              e)))
        goto out;
    for (int i = 0; i < x.n_parts; i++)
        gguf_write_tensor(x.w, x.parts[i].name, x.parts[i].type, x.parts[i].n_dims,
                          x.parts[i].dims);
    if ((rc = gguf_write_begin(x.w, e)) || (rc = write_parts(&x, r, e)) || (rc = verify(&x, e)))
        goto out;
    for (int i = 0; i < report->n_kinds; i++)
        report->kinds[i].relative = x.squares[i] > 0.0 ? sqrt(x.errors[i] / x.squares[i]) : 0.0;
    rc = gguf_write_finish(x.w, e);
    x.w = NULL;
out:
    release(&x);
    mem_free(r->scratch);
    mem_free(r);
    return rc;
}
