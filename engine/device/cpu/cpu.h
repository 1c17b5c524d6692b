/* Internals of the CPU device: one struct and the phases of its jobs. Private to engine/device/cpu.
 *
 * Every job is one elastic run of the pool (pool.h): a token has some two hundred phases, and a
 * thread that loses its core to another process must not delay each of them. A phase is a function
 * that all present threads call; it hands out its tasks between phase_open and phase_end, which
 * returns when all of them are done. So the `layers` job runs the same phases in sequence within
 * one run. A thread may read results of phases only while it holds a task: only then can they not
 * change. The number of tasks of a phase must follow from the job alone.
 *
 * With one row, small serial steps (norm, quantisation, routing) are done by every thread
 * redundantly, with its first task: that takes no longer than one thread doing it, and saves a
 * phase. */
#ifndef ENGINE_DEVICE_CPU_CPU_H
#define ENGINE_DEVICE_CPU_CPU_H

#include "engine/base/load.h"
#include "engine/base/pool.h"
#include "engine/device/cpu/crowd.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/device/cpu/shape_table.h"
#include "engine/device/cpu/shares.h"
#include "engine/device/device.h"
#include "engine/device/onednn/onednn.h"
#include "engine/device/state.h"

#include <string.h>

/* with up to so many rows attention is also divided into chunks of the context */
#define CPU_SPLIT_ROWS 8
/* tokens whose quantised rows stay in the second-level cache; more where one panel takes more */
#define CPU_TOKEN_BLOCK 96
#define CPU_TOKENS_MOST (2 * KERNEL_TILE) /* most tokens of such a block, cut at panels */
/* BF16 tokens that fill a panel of floats */
#define CPU_LIBRARY_TOKENS (2 * KERNEL_FLOAT_TOKENS)
/* row groups of an unpacked matrix packed on the fly at a time: they stay in the second-level
 * cache */
#define CPU_RAW_GROUPS 2
/* F16 rows (and BF16 ones if exact) converted to F32 at a time for oneDNN: they stay in the
 * second-level cache */
#define CPU_WIDEN 64
#define CPU_USED_MAX 16 /* most experts of a token */

/* What of a row is not zero: of so many equal parts, those whose number modulo `period` is among
 * the chosen ones, which ascend. */
struct input_parts {
    int parts, period, used, chosen[CPU_USED_MAX];
};

/* The tokens to multiply with a matrix, in the forms its type needs. */
struct input {
    int n, cols;
    struct act_block *panels; /* quantised weights */
    float *rows;              /* float weights: (n, stride) */
    ptrdiff_t stride;
    const int *row; /* which row of the job each token is; NULL: token t is row first + t */
    int first;
    const struct input_parts *only; /* NULL, or what of the only token is not zero */
};

/* For rule 11, activations unchanged or rounded to BF16; for oneDNN, BF16 rows. */
enum panel_kind { PANEL_EXACT, PANEL_ROUNDED, PANEL_LIBRARY };

/* Some tokens in the order of a matrix's columns (NULL: unchanged), quantised. */
struct ordered {
    const uint16_t *order;
    const float *x; /* the first one's; NULL: empty */
    int phase, n;
    struct act_block *panels;
};

/* The adapters' intermediate results for some tokens: A times each, times scale and strength. */
struct adapted {
    const float *a;
    const float *x; /* the first token's; NULL: empty */
    int phase, n;
    float *w; /* (CPU_TOKENS_MOST, the largest rank) */
};

/* parts.c: what is read of a matrix's rows in a phase, in units of columns, its input, and weights
 * of a group of rows. */
struct parts_scratch {
    const struct matrix *of; /* NULL: empty */
    int phase, n, *units;
    uint8_t *weights;
    struct act_block *act;
    float *row, *panel;
};

struct thread_scratch {
    struct act_block *act; /* one row, the widest */
    float *row;            /* one row, the widest */
    /* where dense parts are beside routed experts: the row of the latter; where the head is
     * narrower than the stream: its row */
    struct act_block *second_act;
    float *second;
    /* CPU_RAW_GROUPS of the widest matrix, packed on the fly: see gemm_raw */
    uint8_t *groups;
    float *tile;              /* a task's results: CPU_TOKENS_MOST x its rows, at most (QKV heads,
                               * CPU_WIDE), or one row's of a piece of all its experts */
    struct act_block *panels; /* MLA: CPU_TOKENS_MOST x the widest input of k_b or v_b */
    float *scores;            /* KERNEL_QUERIES x NUM_CHUNK */
    float *queries;           /* KERNEL_QUERIES x key_dim */
    /* MLA with an indexer: the rows that a job's row sees, as chosen, and by chunk of them whose
     * they are (the row's number, -1: nobody's); one row's scores */
    uint8_t *selected;
    int *selected_for;
    float *index_scores;
    float *partial;   /* attention chunks of some rows: see mixers/attention.c */
    float *router;    /* scores of one row, padded to 16 */
    float *convolved; /* convolved attention: a head's inputs and outputs, or all values of a row */
    int experts[CPU_USED_MAX];
    float weights[CPU_USED_MAX];
    int phase; /* number of phases of this run so far */
    /* a block of tokens in the float kernels' form, kept for the tasks of a phase: */
    float *panel;
    const float *panel_of;
    int panel_phase, panel_count;
    enum panel_kind panel_kind;
    float *widened; /* oneDNN: CPU_WIDEN weight rows in F32 */
    /* the last two of a phase, since gate and up alternate, and a row; for matrices with a column
     * order */
    struct ordered ordered[2];
    int ordered_next;
    float *ordered_row;
    struct adapted adapted[2]; /* likewise, for matrices with adapters */
    int adapted_next;
    struct parts_scratch parts; /* of matrices after heads that are routed */
    struct input_parts used;    /* the only row's heads of the current layer */
};

/* A session's state: pages of the pool, one for NUM_CHUNK tokens of all layers that keep every row,
 * so that attention reads a chunk from a page; NULL where no row was written yet. pages NULL: not
 * open. */
struct kv_state {
    uint8_t **pages; /* chunks_max */
    /* layers with rings: chunk by chunk of each; NULL if the model has none. reach: rows before
     * that position may have been written */
    uint8_t *rings;
    int reach;
    /* recurrent layers: their blocks, fixed_bytes of the device in all, and the number of tokens
     * each layer's is at (n_layers); NULL if the model has none. drafts: rows of columns that
     * advance each layer's state, at most `ahead` of them; NULL without drafting */
    uint8_t *fixed, *drafts;
    int *stands, *ahead;
};

#define SEGMENTS_MOST 1024
#define SEGMENTS_LEAST 64
#define RESERVED_MOST ((size_t)4 << 40) /* bytes of address space, for more than the least */

/* All pages, of all sessions. It grows by a session's worth when more sessions are open than ever
 * before, so that a job always gets a page; untouched ones cost nothing. */
struct kv_page {
    uint16_t users; /* sessions that reference it */
    bool written;   /* since its memory was last returned to or got from the system */
};

struct kv_pool {
    struct kv_state *states; /* by session number */
    int n_states;
    uint8_t **segments; /* of chunks_max pages each */
    /* the first `room` of them lie one after the other; NULL: no address space for that */
    uint8_t *memory;
    int room;
    bool apart;         /* some lie elsewhere */
    struct kv_page *of; /* of each page of each segment */
    int n_segments, n_open;
    uint8_t **free; /* stack of n_free */
    size_t n_free;
};

/* Layout of a layer's rows in a page or a chunk of a ring, and what follows from their widths. */
struct layer_layout {
    struct state_size keeps;
    /* bytes: of 16 tokens of a head's keys, of one token of its values, of a page's tokens of a
     * head; offset of the layer in a page, or of its ring among the session's */
    size_t key_block, value_row, head_bytes, at;
    int ring_chunks;            /* capacity of its ring; 0: its rows are in pages */
    size_t fixed_at, drafts_at; /* offsets of its recurrent state and of its drafted rows */
    /* Heads that one task of the QKV phase multiplies: queries or keys, values. */
    int key_heads, value_heads;
};

/* A span of the current job; row: index of its first row in the job. */
struct span_place {
    const struct kv_state *state;
    const float *cos, *sin, *second_cos, *second_sin;
    int pos, rows, row, drafted;
};

/* Begin of a while in which the device measures. */
struct tuning_watch {
    struct load load;
    uint64_t waited, start;
    int threads;
};

struct cpu_device;

/* A matrix times all rows of a job. */
struct product {
    const struct matrix *w;
    /* row t of its input, by thread tid */
    void (*input)(struct cpu_device *d, int tid, const struct product *p, int t, float *row);
    int rows;
    float *out; /* (rows, w->rows) */
    const struct head_job *head;
    const struct join_job *join;
    const struct multiply_job *multiply;
    const float *x, *inputs; /* ffn/inputs.c, streams.c, hyper.c */
    const struct hyper_weights *hyper;
    enum activation activation;
    int layer;
};

struct cpu_device {
    struct device_base base;
    const struct model *model;
    const struct kernels *k;
    struct pool *pool;
    bool own_pool; /* or device_config's */
    /* number of threads for jobs of several rows, of one */
    struct crowd reading, decoding;
    struct shares reading_shares, decoding_shares;
    int n_threads, max_rows, context, chunks_max;
    int widest_ffn;          /* of any expert, rounded up to whole blocks */
    bool by_unit;            /* gate and up of one row, see gate_task */
    enum pattern_id pattern; /* of weights without a measured one */
    /* CPU_UNITs per task when one row is multiplied with gate and up, per layer, and with down */
    int *gate_piece, down_piece;
    /* per layer: [group][hidden][16]; the shared expert's row, if any, is the last */
    float **router, **head_router; /* a layer; head_router: of heads that are routed */
    float **stream_router;         /* a layer, one group: of residual streams (ffn/streams.c) */
    /* convolved attention: per layer and head [group][head_taps * key_dim][16] of the second
     * convolution; routers with a row: their other matrices in the router's form */
    float **head_conv;
    struct deep_router {
        float *in, *first, *second;
    } * deep;
    float *router_rows; /* max_rows x twice router_row, of jobs that bring no place for them */
    /* key/value cache, see mixers/kvcache.c and mixers/kvpool.c */
    enum kv_type kv_k, kv_v;
    struct layer_layout *layouts; /* n_layers */
    /* bytes of a page; its tokens; most bytes of a session's pages, in whole pages of the system;
     * of its rings */
    size_t page_bytes, page_tokens, kv_bytes, segment_bytes, ring_bytes;
    /* recurrent state of a session; during measurements (trial) no session's is touched, all layers
     * use `spare`, as large as the largest */
    size_t fixed_bytes, drafts_bytes;
    uint8_t *spare;
    bool trial;
    struct kv_pool pool_kv;
    /* scratch for max_rows rows */
    uint8_t *scratch;
    size_t scratch_bytes;
    struct thread_scratch *threads;
    struct act_block *act;      /* max_rows * used rows of the widest input */
    struct act_block *act_down; /* max_rows * used rows of expert_ffn */
    float *normed;              /* shape_normed_rows at most x max_rows x hidden */
    float *added;               /* max_rows x hidden: input of a norm after its operator; or the
                                 * stream before the mixer of a parallel layer */
    /* layers with inputs of their own: max_rows x hparams_inputs, x one layer's */
    float *projected, *input_gates;
    /* of hyper-connections, max_rows of each: x rank, x streams * hidden, x rows of a mix */
    float *hyper_low, *hyper_gates, *hyper_mix;
    /* of n-grams, max_rows of each: x width, x streams * hidden (gates' keys, then what is added),
     * x hidden, x streams * hidden, x hidden (what the mixer reads) */
    struct {
        float *embedded, *keys, *values, *convolved, *x;
        _Atomic(const char *) broken; /* a tensor with NaN or infinity; NULL: none was met */
    } ngrams;
    float *laurel_in, *laurel_out; /* max_rows x laurel, x hidden */
    float *sparse;   /* gates, then ups, max_rows x widest_ffn each, of layers that are sparse */
    float *ones;     /* weights of a norm without any: of a head's values */
    float *mixed;    /* max_rows x columns of a recurrent mixer's row */
    float *gathered; /* max_rows * used x hidden, float experts */
    /* of the widest layer */
    float *q;        /* max_rows x heads * key_dim, scaled */
    float *gates;    /* max_rows x heads * value_dim: gated layers; MLA: x heads */
    float *keys;     /* max_rows x kv_heads * key_dim: QK_NORM_WHOLE */
    float *attended; /* max_rows x heads * value_dim */
    /* MLA: max_rows x (kv_rank + rope_dims), x q_rank, x heads * kv_rank */
    float *latent, *q_latent, *latents;
    /* of indexers: max_rows x index_dim, x index_heads * index_dim, x index_heads; scores,
     * CPU_SPLIT_ROWS x positions in whole chunks; what was chosen, max_rows x chosen_most, kept for
     * later layers of the same rows */
    float *index_keys, *index_q, *index_weights, *index_scores;
    /* MIXER_COMPRESSED: what compressed rows are made of, (max_rows, shape_compressed) twice, and
     * the indexer's gates as index_keys; results of chunks a query may have (chunks_max elsewhere)
     */
    float *compress_keys, *compress_gates, *index_gates;
    int list_chunks;
    int *chosen, chosen_most;
    float *ffn;                             /* max_rows * used x expert_ffn, float experts */
    float *out;                             /* used x max_rows x hidden */
    float *chunk_o, *chunk_max, *chunk_sum; /* CPU_SPLIT_ROWS x heads x chunks (x value_dim) */

    /* one row: the layer's routing, by the thread with the first task */
    int one_experts[CPU_USED_MAX];
    float one_weights[CPU_USED_MAX];
    int *entry_row, *entry_slot; /* layers job: rows grouped by expert */
    struct expert_group *groups;
    struct experts_job grouped; /* the layer's experts, by the thread that grouped them */
    /* among the weights */
    bool has_quantised, has_float, has_order;
    int lora_rank;      /* the largest of any matrix; 0: no adapters */
    size_t group_bytes; /* of the widest quantised matrix */
    /* NULL: float weights use only our own kernels, the default */
    struct onednn *library;
    bool bf16;                     /* it multiplies BF16 */
    struct tune tune;              /* of this model's shapes, as far as measured */
    struct tuning_watch since;     /* opening or the last time that something was measured */
    int busy;                      /* per cent since then; TUNE_BUSY_MOST: not known */
    const char *stat_path;         /* of /proc/stat in tests; NULL */
    const struct tune *thresholds; /* that, or the candidates being measured */
    /* the current job */
    const float *const *strengths; /* of each of its rows (struct attention_job) */
    const struct attention_job *attention_job;
    const int *ids; /* of each of its rows: tokens; NULL: all 0 */
    /* of an attention job that asks for scores: where to, and the last row's position; else NULL */
    float *kept_scores;
    int kept_stride, kept_pos;
    const struct experts_job *experts_job;
    int entries; /* of its groups together */
    const struct route_job *route_job;
    const struct combine_job *combine_job;
    struct product product;
    const struct inputs_job *inputs_job;
    const struct streams_job *streams_job;
    const struct join_job *join_job; /* of hyper-connected streams */
    const struct layers_job *layers_job;
    const struct device_observer *observer; /* NULL: none */
    struct {
        float *logits;
        size_t n;
    } cap_job;
    /* max_rows of each; span_of: of every row of the job */
    struct span_place *spans;
    int n_spans, *span_of;
    struct device_stats stats;
};

/* A task of the phase that multiplies one row with gate and up of `used` experts: the expert, and
 * the unit of rows. One expert after the other is read fastest. With several memory nodes (by_unit)
 * a thread must get the same rows of whatever experts are chosen: those in its node's memory
 * (engine/model/numa.h). */
struct gate_task {
    int slot, unit;
};

/* units: of a routed expert; further ones, from slot `used` on, may have more or fewer. */
static inline struct gate_task gate_task(bool by_unit, int task, int units, int used, int further)
{
    int past = task - units * used;

    if (past >= 0 && !further)
        return (struct gate_task){used, past};
    if (past >= 0)
        return (struct gate_task){used + past / further, past % further};
    return by_unit ? (struct gate_task){task % used, task / used}
                   : (struct gate_task){task / units, task % units};
}

static inline const struct layer_layout *layout_of(const struct cpu_device *d, int layer)
{
    return &d->layouts[layer];
}

static inline const struct layer_shape *shape_of(const struct cpu_device *d, int layer)
{
    return hparams_layer(&d->model->hp, layer);
}

/* Rows of the router's matrix, and groups of 16 that they make. */
static inline int router_rows(const struct ffn_shape *s)
{
    return shape_choices(s) + (s->shared && s->shared_gate == SHARED_SIGMOID);
}

static inline int router_groups(const struct ffn_shape *s)
{
    return (router_rows(s) + NUM_LANES - 1) / NUM_LANES;
}

/* The same of the matrix that routes heads. */
static inline int head_groups(const struct mixer_shape *s)
{
    return (s->experts + NUM_LANES - 1) / NUM_LANES;
}

/* Without weights there is no norm: y = x. */
static inline void norm_row(const struct cpu_device *d, const struct norms_shape *s,
                            const struct norm_weights *w, const float *x, float *y)
{
    int n = d->model->hp.hidden;

    if (!w->weight) {
        if (y != x)
            memcpy(y, x, (size_t)n * sizeof *y);
        return;
    }
    if (s->kind == NORM_LAYER)
        d->k->norm(x, n, w->weight, w->bias, 1.0f / (float)n, s->eps, y);
    else
        d->k->rms_norm(x, n, w->weight, 1.0f / (float)n, s->eps, y);
}

/* n columns of some rows that an operator adds to the residual stream, by what they are multiplied
 * with first. */
static inline void scale_output(const struct cpu_device *d, float *y, int n, int rows,
                                ptrdiff_t stride)
{
    float scale = hparams_residual(&d->model->hp);

    for (int t = 0; t < rows && scale != 1.0f; t++)
        for (int i = 0; i < n; i++)
            y[t * stride + i] *= scale;
}

/* A row's weights as used in the combination. */
static inline const float *scaled_weights(const struct cpu_device *d, int layer,
                                          const float *weights, int used, float *room)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    float scale = hparams_residual(&d->model->hp);

    if (scale == 1.0f && !s->router.on_input)
        return weights;
    for (int i = 0; i < used; i++)
        room[i] = shape_output_weight(s, i, weights[i]) * scale;
    return room;
}

static inline int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* cpu_info.c */
/* device_ops.probe */
int cpu_probe(struct device_info *out, int max, char *why, size_t why_size);
/* whether oneDNN multiplies float weights in BF16 */
bool cpu_uses_bf16(bool exact);

/* phases.c */
/* Each thread takes consecutive tasks, and others' only after its own: kernels that prefetch
 * weights prefetch its own. */
void phase_open(struct cpu_device *d, int tid, int total);
/* first index, or total; chunk is one number per phase */
int phase_take(struct cpu_device *d, int tid, int chunk);
void phase_end(struct cpu_device *d, int tid);
/* Start of the part of a phase that thread tid takes first; tid may be one past the last. */
int phase_part(const struct cpu_device *d, int total, int chunk, int tid);

/* gemm.c */
/* The panel with token t of n: its first token and size. Panels are as even as possible. */
void panel_of(const struct cpu_device *d, int n, int t, int *first, int *count);
/* Quantises x (cols) as token t of n. */
void input_quantise(const struct cpu_device *d, const float *x, int cols, struct act_block *panels,
                    int n, int t);
/* The same from a row of blocks. */
void input_copy(const struct cpu_device *d, const struct act_block *row, int cols,
                struct act_block *panels, int n, int t);
/* Columns first .. first+count-1 (multiples of 32) only; x points at column `first`. */
void input_quantise_part(const struct cpu_device *d, const float *x, int cols, int first, int count,
                         struct act_block *panels, int n, int t);
/* Whether activations are rounded to BF16 before the product with w; and token t in the form of
 * struct kernels.gemv_float, valid until the thread multiplies float weights with another one. */
bool float_rounds(const struct cpu_device *d, const struct matrix *w);
const void *float_token(const struct cpu_device *d, int tid, const struct matrix *w,
                        const struct input *in, int t);
/* Tokens t0 .. t1-1 in the column order of w, which rounds rows (matrix_rounds_rows): as its only
 * ones, valid until two further calls by this thread. */
struct input input_in_order(const struct cpu_device *d, int tid, const struct matrix *w,
                            const struct input *in, int t0, int t1);
/* Rows r0 .. r1-1 (r0 a multiple of 16 where w is quantised) of w for tokens t0 .. t1-1 (t0 a
 * panel's first): out[(t - t0) * stride + (r - r0)], bias added. */
void gemm(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
          const struct input *in, int t0, int t1, float *out, ptrdiff_t stride);
/* The same in two steps: calls the observer, if any, for rows from `row` on (once per token for
 * each part of device_observer), and the product alone. */
void gemm_observe(const struct cpu_device *d, const struct matrix *w, int row,
                  const struct input *in, int t0, int t1);
void gemm_rows(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
               const struct input *in, int t0, int t1, float *out, ptrdiff_t stride);
/* Token blocks: block i of n tokens begins at a panel. */
int token_blocks(const struct cpu_device *d, int n);
void token_block(const struct cpu_device *d, int n, int i, int *t0, int *t1);

/* lora.c: rows r0 .. r1-1 of w for tokens t0 .. t1-1 of `in`, at out as in gemm, plus the adapters
 * on w (rule 14). */
void lora_add(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
              const struct input *in, int t0, int t1, float *out, ptrdiff_t stride);
/* Other numbers are at x than before in this phase. */
void lora_forget(struct thread_scratch *s, const float *x);
/* F32 weights (rows, cols) times n tokens of x in one fixed order (rule 11), n at most
 * CPU_TOKENS_MOST: out (n, stride). */
void float_rows(const struct cpu_device *d, int tid, const float *weights, int rows, int cols,
                const float *x, ptrdiff_t x_stride, int n, float *out, ptrdiff_t stride);

/* tuning/tune_shapes.c. open: at the end of opening; later: between answers, returns the number of
 * measurements. */
void tuning_open(struct cpu_device *d);
int tuning_later(struct cpu_device *d, int pos);
/* tuning/tune_busy.c: how much others took from the first `threads` threads, or of the machine,
 * since the watch began: per cent, less than TUNE_BUSY_MOST */
void tuning_watch(const struct cpu_device *d, struct tuning_watch *w, int threads);
int tuning_busy(const struct cpu_device *d, const struct tuning_watch *w);
/* tuning/tune_patterns.c: adds to fresh the unmeasured read patterns of the model's types and row
 * lengths that make up `least` bytes; returns how many */
int tuning_patterns(struct cpu_device *d, size_t least, struct tune *fresh);
/* tuning/tune_threads.c: the number of threads that decodes fastest; 0: not measured */
int tuning_decode(struct cpu_device *d, int pos);

/* gemv.c: addresses of weights that are read together: KERNEL_GEMV_GROUPS of them, `step` bytes
 * apart; at NULL: unknown. */
struct prefetch_hint {
    const uint8_t *at;
    size_t step;
};
struct prefetch_hint matrix_hint(const struct matrix *w, int row);
/* What thread tid reads first in a layer for a token; none after the last. */
struct prefetch_hint layer_hint(const struct cpu_device *d, int tid, int layer);
/* How the weights of w are read for one token. */
const struct pattern *gemv_pattern(const struct cpu_device *d, const struct matrix *w);
/* Rows r0 .. r1-1 (r0 a multiple of 16) times the one row of `in`, bias added; this thread
 * continues to read at `next`. */
void gemv(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
          const struct input *in, float *out, struct prefetch_hint next);

/* parts.c: gemv's product for an input that is zero outside in->only; no bias. false: nothing done,
 * for w's columns are not divided so. */
bool gemv_parts(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
                const struct input *in, float *out);
/* Columns of an input that gemv_parts may read: of the layers' routed heads, the most. */
static inline size_t parts_cols(const struct mixer_shape *a)
{
    return a->experts ? (size_t)a->heads * (size_t)shape_value_dim(a) : 0;
}

/* mixers/routed.c: heads that are routed. Writes the weights of each row's heads to d->gates, 0 of
 * those that it does not use; a phase. */
void heads_route(struct cpu_device *d, int tid, int layer, int rows, const float *x);
/* From head `first` of the only row on: the number of heads before the next that counts (all of
 * `most`, if none does), and how many count from there on. */
int heads_unused(const struct cpu_device *d, int first, int most);
int heads_used(const struct cpu_device *d, int first, int most);
/* The same as parts of the row of all heads. */
struct input_parts heads_parts(const struct cpu_device *d, const struct mixer_shape *a);

/* mixers/kvcache.c. A layer's rows are as wide as state_size says: heads, key_dim, value_dim. */
/* Fills d->layouts, one a layer. */
int kv_layout(struct cpu_device *d, struct error *e);
/* of the chunk's first token; its page must exist, or the ring must hold the chunk */
uint8_t *kv_keys(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                 int chunk);
uint8_t *kv_values(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                   int chunk);
void kv_store_key(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                  int pos, const float *x);
void kv_store_value(const struct cpu_device *d, const struct kv_state *s, int layer, int head,
                    int pos, const float *x);
/* The latent row of MLA: in the layout of a value, in the keys' place and type. */
void kv_store_latent(const struct cpu_device *d, const struct kv_state *s, int layer, int pos,
                     const float *x);
/* Values first .. first + n - 1 of a token's row in a layer of MIXER_COMPRESSED, of the key or of
 * the value: stored, read as floats, or copied in the cache's layout as a row of n. Of Q8_0 `first`
 * and n are multiples of a block. */
void kv_store_part(const struct cpu_device *d, const struct kv_state *s, int layer, bool value,
                   int pos, int first, int n, const float *x);
void kv_load_part(const struct cpu_device *d, const struct kv_state *s, int layer, bool value,
                  int pos, int first, int n, float *x);
void kv_copy_part(const struct cpu_device *d, const struct kv_state *s, int layer, bool value,
                  int pos, int first, int n, uint8_t *row);
int kv_move_rows(struct cpu_device *d, const struct kv_move *m, struct error *e);

/* mixers/indexer.c: which keys a row sees (rule 16 of numerics.h), in layers with index_top */
#define INDEXER_DIM_MOST 256 /* of blocks (mixer_shape.index_ratio) */
/* Of blocks: row t's queries of a head are normed and rotated, its key, index_dim values, stored.
 */
void indexer_finish_query(struct cpu_device *d, int layer, int t, float *x);
void indexer_store_key(struct cpu_device *d, int layer, int t, const float *key);
/* Hides the positions begin .. end-1 that row t does not see among its own: their scores become
 * -inf. */
void indexer_hide(const struct cpu_device *d, int layer, int t, int begin, int end, float *scores);
/* Row t's key, as projected to index_keys, is normed, rotated and stored; its heads' weights are
 * scaled. */
void indexer_finish_row(struct cpu_device *d, int layer, int t);
/* Whether any of the rows t0 .. t1-1 sees fewer keys than there are. */
bool indexer_chooses(const struct cpu_device *d, int layer, int t0, int t1);
/* A head's queries for those rows, from the latent rows of queries. */
void indexer_query(struct cpu_device *d, int tid, int layer, int head, const struct input *in,
                   int t0, int t1);
/* Phases: scores of all keys, then each row's choice. All keys of the job are stored. */
void indexer_phases(struct cpu_device *d, int tid, int layer, int rows);
/* Scores of row t with n keys (NUM_CHUNK at most), laid out as values, to out; the positions of the
 * k largest of n > k scores, upwards; and the place of a row's choice. */
void indexer_scores(struct cpu_device *d, struct thread_scratch *s, int layer, int t,
                    const void *keys, int n, float *out);
void indexer_choose(const float *scores, int n, int k, int *chosen);
int *indexer_choice(const struct cpu_device *d, int t);
/* The positions that a row of the job sees, in order, shape_seen_keys of them; NULL: all. */
const int *indexer_chosen(const struct cpu_device *d, int layer, int t);

/* mixers/fixed.c: state of fixed size (state_size's fixed_bytes) */
/* Called when a session's state is opened; ERR_MEMORY. */
int fixed_open(struct cpu_device *d, struct kv_state *s, struct error *e);
void fixed_close(struct cpu_device *d, struct kv_state *s);
/* A recurrent layer's state of a session, for its mixer: fixed_bytes, aligned to 64, before the
 * span's first row (zeros at position 0); the mixer advances it past the last row. Its layout is
 * private to the mixer. */
float *kv_fixed(const struct cpu_device *d, const struct kv_state *s, int layer);
/* The layer's drafted rows, (device_config.drafts, recurrent_width), as projected. */
float *kv_drafts(const struct cpu_device *d, const struct kv_state *s, int layer);
/* How many of them the mixer must apply to the state before the span's first row. */
int fixed_behind(const struct cpu_device *d, const struct span_place *at, int layer);
/* Called before and after a job with the current spans, for layers first .. last - 1. ERR_DEVICE:
 * some state is not at the start of its span. */
int fixed_begin(struct cpu_device *d, int first, int last, struct error *e);
void fixed_end(struct cpu_device *d, int first, int last);
int fixed_move(struct cpu_device *d, const struct kv_move *m, struct error *e);

/* mixers/kvring.c: rows of layers with a window, of which only the newest are kept */
int kv_rings_open(struct cpu_device *d, struct kv_state *s, struct error *e); /* ERR_MEMORY */
void kv_rings_close(struct cpu_device *d, struct kv_state *s);
/* Copies the rings of `from` to `to`. */
void kv_rings_copy(const struct cpu_device *d, struct kv_state *to, const struct kv_state *from);
/* bytes of a session's rings that hold rows */
size_t kv_rings_used(const struct cpu_device *d, const struct kv_state *s);

/* mixers/kvpool.c */
int kv_state_open(struct cpu_device *d, int session, struct error *e);
void kv_state_close(struct cpu_device *d, int session);
void kv_pool_release(struct cpu_device *d);
int kv_types_set(struct cpu_device *d, enum kv_type k, enum kv_type v, struct error *e);
/* The state of an open session, with pages for positions 0 .. end - 1; pages with positions from
 * pos on are not shared and may be written. NULL: ERR_DEVICE. */
const struct kv_state *kv_state_reserve(struct cpu_device *d, int session, int pos, int end,
                                        struct error *e);
/* The slots of device_ops of these names. */
void kv_state_memory(const struct cpu_device *d, struct state_memory *out);
void kv_state_rings(const struct cpu_device *d, int session, struct state_memory *out);
uint8_t *const *kv_state_pages(struct cpu_device *d, int session, int pos, int end,
                               struct error *e);
int kv_state_share(struct cpu_device *d, int from, int to, int n); /* device_ops.state_share */
void kv_state_cut(struct cpu_device *d, int session, int pos);
uint64_t kv_state_trim(struct cpu_device *d); /* device_ops.state_trim */

/* A kind of mixer as called from the parallel region. mixers/registry.c has one for each supported
 * kind; shape_unsupported has refused the others before. */
struct cpu_mixer {
    /* For the spans of the current job; y = block's output, or residual += it if y is NULL. */
    void (*phases)(struct cpu_device *d, int tid, int layer, int rows, const float *x, float *y,
                   float *residual);
    /* What thread tid reads first for one row. */
    struct prefetch_hint (*first)(const struct cpu_device *d, int tid, int layer);
    /* multiplications of so many rows */
    double (*work)(const struct cpu_device *d, int layer, int rows);
};
extern const struct cpu_mixer *const cpu_mixers[MIXER_KINDS];
extern const struct cpu_mixer cpu_attention_mixer;  /* mixers/attention.c */
extern const struct cpu_mixer cpu_mla_mixer;        /* mixers/mla.c */
extern const struct cpu_mixer cpu_compressed_mixer; /* mixers/compressed.c */
extern const struct cpu_mixer cpu_recurrent_mixer;  /* mixers/recurrent.c: all kinds of them */
extern const struct cpu_mixer cpu_convolved_mixer;  /* mixers/convolved.c */
/* mixers/attention.c, for mixers that make queries and keys their own way: rule 6 on one head of
 * the row that stands at pos, times scale; and what follows when d->q holds the job's queries and
 * the cache its keys and values: y or residual as in cpu_mixer.phases */
void attention_rotate(const struct cpu_device *d, const struct mixer_shape *a,
                      const struct span_place *at, float *x, int pos, float scale);
void attention_attend(struct cpu_device *d, int tid, int layer, int rows, float *y,
                      float *residual);
/* columns of a token's row in the phases of a recurrent mixer; 0: the layer has none */
int recurrent_width(const struct cpu_device *d, int layer);

/* mixers/input.c: the normed input that a mixer begins with, by a phase: quantised, or as floats,
 * or both. One row's is made by every thread for itself, by input_prepare_row with its first task:
 * row t of x, normed into row and quantised into panels. */
struct input input_prepare(struct cpu_device *d, int tid, int layer, bool quantised, bool floats,
                           int rows, const float *x);
void input_prepare_row(const struct cpu_device *d, int layer, bool quantised, const float *x,
                       float *row, struct act_block *panels, int rows, int t);
/* The queries of rows r0 .. of a job, `heads` of all from `head` on, of so many dimensions each.
 * Several rows' are copied where they lie a whole row of heads apart. */
const float *gather_queries(const struct cpu_device *d, struct thread_scratch *s, int all, int dims,
                            int r0, int rows, int head, int heads);

/* mixers/products.c */
/* Rows r0 .. r1-1 of w for tokens t0 .. t1-1, for any r0: rows are multiplied in whole groups.
 * Returns the address of the first of them in `out` (t1 - t0, stride), whose rows have space for 15
 * more: product_stride floats each. */
float *product_part(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
                    const struct input *in, int t0, int t1, float *out, ptrdiff_t stride,
                    struct prefetch_hint next);
ptrdiff_t product_stride(int rows);
/* cpu_mixer.work where every matrix of the layer's block is multiplied with every row. */
double matrices_work(const struct cpu_device *d, int layer, int rows);
/* Rows per task of a matrix that is not divided by heads, for a job of so many rows; its tasks; and
 * one of them, into the job's buffer (rows, w->rows). */
int product_unit(int rows);
int product_units(const struct matrix *w, int rows);
void product_task(struct cpu_device *d, int tid, const struct matrix *w, int unit,
                  const struct input *in, int t0, int t1, float *rows, struct prefetch_hint next);
/* n tokens from row `first` of the job on, of `cols` numbers, `stride` apart, as the input of w: in
 * this thread's panels if w is quantised. */
struct input product_input(struct cpu_device *d, int tid, const struct matrix *w, float *x,
                           ptrdiff_t stride, int first, int n);

/* mixers/output.c: the projection o that a mixer ends with, by a phase; y or residual as in
 * cpu_mixer.phases. One row's input is made by every thread for itself, by `first` with its first
 * task; NULL: it is there. And where thread tid reads o first. */
void output_phase(struct cpu_device *d, int tid, const struct matrix *o, const struct input *in,
                  void (*first)(struct cpu_device *d, int tid, const void *ctx), const void *ctx,
                  float *y, float *residual);
struct prefetch_hint output_hint(const struct cpu_device *d, const struct matrix *o, int tid);

static inline const struct cpu_mixer *mixer_of(const struct cpu_device *d, int layer)
{
    return cpu_mixers[shape_of(d, layer)->mixer.kind];
}
/* Position of a row of the current job. */
static inline int row_position(const struct cpu_device *d, int row)
{
    const struct span_place *s = &d->spans[d->span_of[row]];

    return s->pos + row - s->row;
}

/* ffn/experts.c. out: (used, rows, hidden) unscaled. quantised: NULL, or the rows of h in blocks,
 * in the place of each row's floats, which are not read then. entries: of all groups together, or
 * more; *j is read while holding a task. */
void experts_phases(struct cpu_device *d, int tid, int layer, const struct experts_job *j,
                    int entries, const struct act_block *quantised);
/* The norms of a row of the job, and its routing. before: the row before the mixer, seen by early
 * routers; or the router's own row (router_shape.row). h becomes the input of routed experts,
 * second that of a dense part beside them; imposed: NULL, or replaces the router's choice; edits:
 * NULL, or those of the row's session. Slots beyond the layer's own get the expert -1. */
void route_row(const struct cpu_device *d, int layer, int row,
               const struct imposed_routing *imposed, const struct expert_edits *edits,
               const float *x, const float *before, float *h, float *second, float *scores,
               int *experts, float *weights);
/* Combines a row's experts, stride apart from out on and not yet weighted, into its x: rule 9, with
 * the norms and the scale after it. beside: what the row has besides x (combine_job.inputs); used
 * only in layers with a shortcut. */
void combine_row(const struct cpu_device *d, int tid, int layer, const float *out, ptrdiff_t stride,
                 const float *weights, float *beside, float *x);
/* ffn/router_row.c, of layers with router_shape.row. The rows of a job and their input (j->h), by
 * phases; a row's place; and scores from it. */
#define CPU_ROUTER_ROW 1024 /* most values of such a row */
void router_row_phases(struct cpu_device *d, int tid, const struct route_job *j);
const float *router_row_of(const struct cpu_device *d, const struct route_job *j, int row);
void router_row_scores(const struct cpu_device *d, int layer, const float *row, float *scores);
/* A row of a weighted stream x with an operator's output; to may be either. */
void residual_row(const struct cpu_device *d, const struct residual_weights *w, const float *added,
                  const float *x, float *to);
/* ffn/shortcut.c. The same where a shortcut leaves the layer or enters the stream; weights: with
 * the scale of what operators add. */
void shortcut_row(const struct cpu_device *d, int layer, const float *out, ptrdiff_t stride,
                  const float *weights, float *beside, float *x);
/* ffn/streams.c. The streams besides x (beside: combine_job.inputs) from the embeddings, and what
 * the first layer begins with; after a layer; what its own inputs give a row of them; and what the
 * next layer begins with, or the end. */
void streams_begin(struct cpu_device *d, int tid, int rows, float *beside, float *x);
void streams_corrected(struct cpu_device *d, int tid, int layer, int rows, float *beside, float *x);
void streams_add(const struct cpu_device *d, int row, float *beside, const float *added);
void streams_next(struct cpu_device *d, int tid, int layer, int rows, float *beside, float *x);
/* ffn/hyper.c. Hyper-connected streams from the embeddings x, or a join; after a layer's mixer with
 * the output y; after its feed-forward with the output x. x becomes what the next operator reads,
 * or the head sees. */
void hyper_begin(struct cpu_device *d, int tid, int rows, float *beside, float *x);
void hyper_join(struct cpu_device *d, int tid, const struct join_job *j);
void hyper_mixed(struct cpu_device *d, int tid, int layer, int rows, float *beside, const float *y,
                 float *x);
void hyper_next(struct cpu_device *d, int tid, int layer, int rows, float *beside, float *x);
/* What a layer's mixer reads, and a row's streams. */
void hyper_read(struct cpu_device *d, int tid, int layer, int rows, float *beside, float *x);
float *hyper_streams(const struct cpu_device *d, float *beside, int row);
/* ffn/ngrams.c. The streams of a layer with n-grams gain theirs; returns what its mixer reads. */
const float *ngram_phases(struct cpu_device *d, int tid, const struct attention_job *j);
/* Starts reading the rows of its table from disk. */
void ngram_ahead(struct cpu_device *d, const struct attention_job *j);
/* The learned residual of a layer whose mixer begins with x; then with row t of its output, y,
 * normed, which becomes the stream. */
void laurel_phases(struct cpu_device *d, int tid, int layer, int rows, const float *x);
void laurel_row(struct cpu_device *d, int tid, int layer, int t, const float *x, float *y);
/* A dense layer's feed-forward of which the largest gates count: h, out (rows, hidden). */
void sparse_phases(struct cpu_device *d, int tid, int layer, int rows, const float *h, float *out);
/* ffn/inputs.c. What a layer's own inputs add to x, and its scale; inputs as in combine_job.
 * Nothing where it has none. */
void inputs_phases(struct cpu_device *d, int tid, int layer, int rows, float *inputs, float *x);
/* device_ops.inputs: a region of the pool. */
void inputs_region(void *ctx, int tid, int n);
/* product.c: the phases of a product. */
void product_phases(struct cpu_device *d, int tid, const struct product *p);
/* One row through the expert half of a layer: norm, routing, experts, combination into x. seen: the
 * stream that they see: x, but for parallel layers (layer_shape.parallel); before: that before the
 * mixer, read only by early routers. */
void experts_sparse(struct cpu_device *d, int tid, int layer, int rows, float *x, int *experts,
                    float *weights);
void experts_one_row(struct cpu_device *d, int tid, int layer, const float *seen,
                     const float *before, float *x, int *experts, float *weights);
void experts_many_rows(struct cpu_device *d, int tid, int layer, int rows, const float *seen,
                       const float *before, float *x, int *experts, float *weights);
/* rows of a job of layers whose experts of this layer are computed */
int experts_wanted(const struct cpu_device *d, const struct layers_job *j, int layer);
/* multiplications of so many entries of a layer's experts, of which a token has shape_used */
double experts_work(const struct cpu_device *d, int layer, int entries);

#endif
