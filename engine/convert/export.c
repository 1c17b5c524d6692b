/* Exporting: the list of tensors the new file will have, then each of them read, rounded and
 * written in pieces. The pool rounds, the calling thread writes; both are far from the disk's limit
 * for the searched types, so they take turns instead of overlapping. */
#include "engine/convert/export.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/layout/pack.h"
#include "engine/file/gguf_write.h"
#include "engine/convert/export_metadata.h"
#include "engine/model/block.h"
#include "engine/model/mix.h"
#include "engine/layout/quantize.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PIECE ((size_t)16 << 20) /* bytes of output rounded between two writes */
#define SLOT 32                  /* rows a thread takes at a time */

static const struct export_type types[] = {
    {"q8_0", "8 bits, all but lossless", DTYPE_Q8_0, false, 7},
    {"q6_k", "6 bits in blocks of 256", DTYPE_Q6_K, false, 18},
    {"q5_k", "5 bits in blocks of 256", DTYPE_Q5_K, false, 16},
    {"q4_k_m", "4 bits in blocks of 256, the sensitive matrices 6", DTYPE_Q4_K, true, 15},
    {"q5_1", "5 bits with a minimum", DTYPE_Q5_1, false, 9},
    {"q5_0", "5 bits", DTYPE_Q5_0, false, 8},
    {"q4_1", "4 bits with a minimum", DTYPE_Q4_1, false, 3},
    {"q4_0", "4 bits, the fastest", DTYPE_Q4_0, false, 2},
    {"bf16", "16-bit brain floats", DTYPE_BF16, false, 32},
    {"f16", "16-bit floats", DTYPE_F16, false, 1},
    {"f32", "32-bit floats", DTYPE_F32, false, 0},
};

const struct export_type *export_type_at(int i)
{
    return i >= 0 && i < (int)(sizeof types / sizeof *types) ? &types[i] : NULL;
}

const struct export_type *export_type_find(const char *word)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcasecmp(types[i].word, word) == 0)
            return &types[i];
    return NULL;
}

/* A tensor to write: `count` matrices of one shape under each other, or a vector. */
struct part {
    char name[64];
    enum dtype type;
    int count;
    const struct matrix *matrix; /* the first; the others follow `stride` bytes apart */
    size_t stride;
    const float *vector;
    int n_dims;
    int64_t dims[3];
    int kind; /* of the report; -1: a vector */
};

struct export
{
    const struct export_options *o;
    struct export_report *report;
    struct model *m;
    const struct family *family;
    struct gguf_writer *w;
    struct part *parts;
    int n_parts, room;
    struct pool *pool;
    uint8_t *piece;
    uint64_t done, total, told;
    double squares[EXPORT_KINDS], errors[EXPORT_KINDS];
};

/* What one run of the pool rounds: rows of one matrix. */
struct rounding {
    const struct matrix *x;
    enum dtype to;
    int first, rows;
    uint8_t *out;
    struct pool_share share;
    struct tally {
        _Alignas(64) double squares, errors, largest;
    } tally[POOL_MAX];
    float *scratch; /* two rows a thread */
};

static struct part *add_part(struct export *x, enum tensor_role role, int layer, bool bias)
{
    struct part *p;

    if (x->n_parts == x->room) {
        int room = x->room ? 2 * x->room : 512;

        if (!(p = mem_resize(x->parts, (size_t)room, sizeof *p)))
            return NULL;
        x->parts = p;
        x->room = room;
    }
    p = &x->parts[x->n_parts++];
    *p = (struct part){.count = 1, .kind = -1};
    family_gguf_name(x->family, role, layer, bias, p->name, sizeof p->name);
    return p;
}

static int kind_of(struct export *x, const char *tensor, enum dtype from, enum dtype to)
{
    struct export_report *r = x->report;
    const char *name = strncmp(tensor, "blk.", 4) == 0 && strchr(tensor + 4, '.')
                           ? strchr(tensor + 4, '.') + 1
                           : tensor;
    int n = (int)strcspn(name, ".");

    for (int i = 0; i < r->n_kinds; i++)
        if ((int)strlen(r->kinds[i].name) == n && strncmp(r->kinds[i].name, name, (size_t)n) == 0 &&
            r->kinds[i].from == from && r->kinds[i].to == to)
            return i;
    if (r->n_kinds == EXPORT_KINDS)
        return EXPORT_KINDS - 1;
    snprintf(r->kinds[r->n_kinds].name, sizeof r->kinds[0].name, "%.*s", n, name);
    r->kinds[r->n_kinds].from = from;
    r->kinds[r->n_kinds].to = to;
    return r->n_kinds++;
}

static int add_vector(struct export *x, enum tensor_role role, int layer, bool bias, const float *v,
                      int64_t d0, int64_t d1)
{
    struct part *p = v ? add_part(x, role, layer, bias) : NULL;

    if (!v)
        return 0;
    if (!p)
        return -1;
    p->type = DTYPE_F32;
    p->vector = v;
    p->n_dims = d1 ? 2 : 1;
    p->dims[0] = d0;
    p->dims[1] = d1;
    return 0;
}

static int add_matrix(struct export *x, enum tensor_role role, int layer, const struct matrix *m,
                      int count, size_t stride)
{
    struct part *p = add_part(x, role, layer, false);

    if (!p)
        return -1;
    p->type = mix_type((struct mix){x->o->type->base, x->o->type->mixed}, &x->m->hp, role, layer,
                       m->cols);
    p->matrix = m;
    p->count = count;
    p->stride = stride;
    p->n_dims = stride ? 3 : 2;
    p->dims[0] = stride ? count : m->rows;
    p->dims[1] = stride ? m->rows : m->cols;
    p->dims[2] = m->cols;
    p->kind = kind_of(x, p->name, m->type, p->type);
    x->total += (uint64_t)count * (uint64_t)m->rows * (uint64_t)m->cols;
    return m->bias ? add_vector(x, role, layer, true, m->bias, m->rows, 0) : 0;
}

static int add_norm(struct export *x, enum tensor_role role, int layer,
                    const struct norm_weights *n)
{
    return add_vector(x, role, layer, false, n->weight, x->m->hp.hidden, 0) ||
           add_vector(x, role, layer, true, n->bias, x->m->hp.hidden, 0);
}

/* The matrices of a block, or those of `experts` blocks from this one on stacked part by part. */
static int add_block(struct export *x, struct block_id id, int experts)
{
    static const enum tensor_role roles[MATRIX_PARTS] = {
        [MATRIX_Q] = TENSOR_Q,        [MATRIX_K] = TENSOR_K,        [MATRIX_V] = TENSOR_V,
        [MATRIX_O] = TENSOR_O,        [MATRIX_GATE] = TENSOR_GATES, [MATRIX_UP] = TENSOR_UPS,
        [MATRIX_DOWN] = TENSOR_DOWNS, [MATRIX_HEAD] = TENSOR_HEAD,  [MATRIX_Q_A] = TENSOR_Q_A,
        [MATRIX_KV_A] = TENSOR_KV_A,  [MATRIX_K_B] = TENSOR_K_B,    [MATRIX_V_B] = TENSOR_V_B,
    };
    struct block_matrix list[BLOCK_MATRICES];
    size_t stride = id.kind == BLOCK_EXPERT ? sizeof(struct expert_weights) : 0;
    int n = model_block_matrices(x->m, id, list), bad = 0;

    for (int i = 0; i < n && !bad; i++)
        bad = add_matrix(x, roles[list[i].part], id.layer, list[i].w, experts, stride);
    return bad;
}

static int list_parts(struct export *x, struct matrix *embeddings, struct error *e)
{
    const struct model *m = x->m;
    const struct hparams *hp = &m->hp;
    int bad;

    *embeddings = (struct matrix){.type = m->embeddings.type,
                                  .rows = hp->n_vocab,
                                  .cols = hp->hidden,
                                  .data = m->embeddings.data};
    bad = add_matrix(x, TENSOR_EMBEDDINGS, 0, embeddings, 1, 0);
    if (hp->original_context)
        bad |= add_vector(x, TENSOR_ROPE_LONG, 0, false, hp->long_factor,
                          hp->common.mixer.rope_dims / 2, 0) ||
               add_vector(x, TENSOR_ROPE_SHORT, 0, false, hp->short_factor,
                          hp->common.mixer.rope_dims / 2, 0);
    for (int l = 0; l < hp->n_layers && !bad; l++) {
        const struct layer_weights *w = &m->layers[l];
        int experts = hparams_layer(hp, l)->ffn.experts;

        bad = add_norm(x, TENSOR_ATTENTION_NORM, l, &w->attention_norm) ||
              add_norm(x, TENSOR_EXPERT_NORM, l, &w->expert_norm) ||
              add_vector(x, TENSOR_ROUTER, l, false, w->router, experts, hp->hidden) ||
              add_block(x, (struct block_id){BLOCK_ATTENTION, l, 0}, 1) ||
              add_block(x, (struct block_id){BLOCK_EXPERT, l, 0}, experts);
    }
    bad = bad || add_norm(x, TENSOR_OUTPUT_NORM, 0, &m->output_norm) ||
          (!hp->tied_embeddings && add_block(x, (struct block_id){BLOCK_HEAD, 0, 0}, 1));
    return bad ? error_set(e, ERR_MEMORY, "out of memory for the list of tensors") : 0;
}

/* Rounds row `row` and adds its error up; a copy has none. */
static void round_row(struct rounding *r, int tid, int row)
{
    const struct matrix *x = r->x;
    size_t from_bytes = dtype_row_bytes(x->type, x->cols),
           to_bytes = dtype_row_bytes(r->to, x->cols);
    const uint8_t *from = (const uint8_t *)x->data + (size_t)row * from_bytes;
    uint8_t *to = r->out + (size_t)(row - r->first) * to_bytes;
    float *a = r->scratch + (size_t)tid * 2 * (size_t)x->cols, *b = a + x->cols;
    double squares = 0.0, errors = 0.0, largest = r->tally[tid].largest;

    if (x->type == r->to) {
        memcpy(to, from, to_bytes);
        return;
    }
    row_to_f32(x->type, from, x->cols, a);
    quantise_row(r->to, a, x->cols, to);
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

static int write_matrix(struct export *x, const struct part *p, const struct matrix *m,
                        struct rounding *r, struct error *e)
{
    struct export_kind *kind = &x->report->kinds[p->kind];
    size_t row = dtype_row_bytes(p->type, m->cols);
    int rows = (int)(PIECE / row) + 1, rc;

    for (int first = 0; first < m->rows; first += rows) {
        int n = m->rows - first < rows ? m->rows - first : rows;

        r->x = m;
        r->to = p->type;
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

        if (p->vector)
            rc = gguf_write_data(
                x->w, p->vector,
                (size_t)(p->dims[0] * (p->n_dims > 1 ? p->dims[1] : 1)) * sizeof(float), e);
        for (int k = 0; !p->vector && k < p->count && !rc; k++)
            rc = write_matrix(
                x, p, (const struct matrix *)((const char *)p->matrix + (size_t)k * p->stride), r,
                e);
    }
    return rc ? rc : weight_file_check(x->m->file, e);
}

/* What was written is opened and bound as any model before it takes the target's name. */
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
    if (m->n_params != x->m->n_params)
        rc = error_set(e, ERR_IO, "%s: what was written is not what was read",
                       gguf_write_temporary(x->w));
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
    r->scratch = mem_alloc((size_t)pool_threads(x->pool) * 2 * widest, sizeof(float));
    return x->piece && r->scratch ? 0 : error_set(e, ERR_MEMORY, "out of memory for the rounding");
}

/* What is written must be what llama.cpp's converter would write, rows that it moves and names of
 * shared experts included: families are let in one by one. */
static int check_family(const struct export *x, const char *in, struct error *e)
{
    return x->family->exported
               ? 0
               : error_set(e, ERR_MODEL,
                           "%s: files of the family %s are read, not written yet; llama.cpp's "
                           "convert_hf_to_gguf.py and llama-quantize make one",
                           in, x->family->name);
}

int model_export(const char *in, const char *out, const struct export_options *o,
                 struct export_report *report, struct error *e)
{
    struct export x = {.o = o, .report = report, .told = clock_now()};
    struct rounding *r = mem_alloc(1, sizeof *r);
    struct matrix embeddings;
    int rc;

    *report = (struct export_report){0};
    if (!r)
        return error_set(e, ERR_MEMORY, "out of memory for the rounding");
    if ((rc = model_open_raw(&x.m, in, e)) || (rc = family_of(&x.family, x.m->file, e)) ||
        (rc = check_family(&x, in, e)) || (rc = list_parts(&x, &embeddings, e)) ||
        (rc = pool_new(&x.pool, o->n_threads > 1 ? o->n_threads : 1, false, e)) ||
        (rc = take_room(&x, r, e)) || (rc = gguf_write_open(&x.w, out, e)))
        goto out;
    report->bytes_in = weight_file_bytes(x.m->file);
    if ((rc = export_metadata(x.w, x.m, x.family, o->type->file_type, &report->tokenizer, e)))
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
    gguf_write_abort(x.w);
    pool_free(x.pool);
    model_free(x.m);
    mem_free(x.parts);
    mem_free(x.piece);
    mem_free(r->scratch);
    mem_free(r);
    return rc;
}
