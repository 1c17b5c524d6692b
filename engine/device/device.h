/* The interface every back end implements. One back end is one `struct device_ops`; app/devices.c
 * alone lists them, CPU last.
 *
 * Thread: the engine's. Only probe and open may run on another thread while other devices compute
 * (config.log is called on it then), at most one such thread per engine; footprint and report need
 * neither an open device nor an engine. A device may use internal threads. Jobs: attention,
 * experts, head, route, combine, layers. A job may return before its work is done; its outputs are
 * valid, and its inputs free again, after wait(). Inputs and outputs are host memory (F32,
 * row-major) unless stated otherwise. Failure: a negative code and a message; the caller reruns the
 * job on the CPU device, reports it, and stops using the device when it fails again. A failed job
 * leaves its outputs undefined, its KV rows of this job unwritten or rewritable, and the recurrent
 * state of its layers and sessions void. Numbers: quantised weights and everything around them
 * follow engine/device/numerics.h to the bit.
 *
 * Mandatory: probe, open, close, state_open, state_close, supports, block_put, block_drop,
 * attention, experts, head, wait, kv_rows, stats. Optional (NULL): route, combine, cap, join,
 * inputs (the CPU has all), layers, fuses, report, kernels, stream, prefetch, footprint, tune,
 * observe, together, state_share, state_cut, state_trim, state_memory, state_rings, state_at,
 * state_pages, state_in_place, link_close, host_rows, done. Emulated where NULL: layers by single
 * jobs.
 * Computing allocates no memory of ours: scratch for max_rows rows is allocated at open, the state
 * of a session at state_open and block_put. In names and jobs `attention` is a layer's mixer of any
 * kind. */
#ifndef ENGINE_DEVICE_DEVICE_H
#define ENGINE_DEVICE_DEVICE_H

#include "engine/base/error.h"
#include "engine/device/kv_type.h"
#include "engine/model/block.h"

#include <stdbool.h>

#define DEVICE_MAX 8    /* devices of one engine, CPU included */
#define DEVICE_STREAM 2 /* buffers for experts that are not resident on a device */
#define DEVICE_ROPES 2  /* rotary tables: every session uses one of them */

struct pool;
struct device; /* private to the back end; first member: struct device_base */
/* Where the CPU has rows, for devices that use them in place. Of layers that keep every row
 * (state_room): NUM_CHUNK positions of a session a page; in a page, `tokens` positions long, a
 * layer's rows begin at state_at. Of layers with a ring: one piece a session, in which a layer's
 * ring begins at state_at, chunk behind chunk of `tokens` positions. Of either: head by head its
 * keys, in blocks of 16 positions, (key_dim, 16), then its values, position by position; with Q8_0
 * keys per 32 dimensions 16 scales before (32, 16) codes, a value's scales before its codes. */
struct state_memory {
    void *at; /* on a page of the system; NULL: not in one piece */
    size_t bytes;
    int tokens;
};
/* What several devices of one back end, each with a different model, share of the same hardware;
 * private to the back end. */
struct device_link;

/* The choice of kernel per shape: measured once and cached; built-in defaults; measured again. */
enum device_tune { DEVICE_TUNE_ON, DEVICE_TUNE_OFF, DEVICE_TUNE_AGAIN };

struct device_config {
    const struct model *model; /* outlives the device */
    int index;                 /* in the engine's list; 0: CPU */
    int n_threads;             /* CPU: threads of the pool */
    /* CPU: its other users must be idle when a job starts; outlives the device. NULL: a private
     * one */
    struct pool *pool;
    /* NULL: nothing is shared. If *link is NULL, open stores the new link there for devices opened
     * later; else it uses the link. All of them on one thread; link_close after the last one is
     * closed. */
    struct device_link **link;
    /* n_threads is a default: decoding may use fewer threads, where that is measured to be
     * faster */
    bool fewer_threads;
    int max_rows; /* most rows (tokens) per job: -ub */
    int context;  /* KV positions per session */
    int sessions; /* only for footprint: number of open states; 0: one */
    int drafts;   /* most drafted rows per span, in layers with recurrent state */
    enum kv_type kv_k, kv_v;
    bool exact; /* float weights multiplied in F32 */
    /* CPU: oneDNN multiplies float weights with several tokens; their sums then depend on how many
     */
    bool float_library;
    enum device_tune tune;
    const char *selector;  /* "opencl:0": platform/device choice of the user, or NULL */
    const char *cache_dir; /* compiled programs, verdicts; NULL: none */
    /* rotary tables: (context, rope_dims/2), mscale folded in; the unused last ones are NULL. They
     * outlive the device. ropes: their number, only for footprint, which needs no tables; 0: one */
    const float *rope_cos[DEVICE_ROPES], *rope_sin[DEVICE_ROPES];
    /* the same for layers with mixer_shape.second_rope: (context, second_rope.dims/2), for every
     * session; NULL: the model has none */
    const float *second_cos, *second_sin;
    int ropes;
    /* Logs one line for the user (compiling, self-test results, failure reasons). May be NULL. */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
};

/* Consecutive rows of one session in a job: row i at absolute position pos + i. rope: index of the
 * rotary table. */
struct span {
    int session, pos, rows, rope;
    int drafted; /* the last `drafted` rows may be rejected later; fewer than rows */
    /* LORA_ADAPTERS strengths of the session, by adapter; NULL: no adapters. For the code that
     * builds jobs: devices read the jobs' own */
    const float *strengths;
    const struct expert_edits *edits; /* likewise: of its session's routing; NULL: none */
};

/* x: residual stream (rows, hidden), the spans' rows one after the other. y: attention block's
 * output WITHOUT the residual: o_proj(attn(norm(x))) + bias, normed if norms.after; but if
 * norms_sum or weighted, y is the new residual stream, norm(x + ...). KV rows pos .. pos+rows-1 of
 * a span's session are written, row i reads 0 .. pos+i (window permitting). In a layer with a ring
 * the row at p replaces the one state_room before it. A session has one span. spans NULL: all rows
 * are session 0's, from pos on, with the first rotary table. A layer with recurrent state continues
 * from its state, which must be at pos, and leaves it at pos + rows; at pos 0 it starts from zeros.
 * Drafted rows read the state without writing it: it stays at the position before them, their
 * updates are kept, and the session's next job may start after any of them (device_ops.drafts; at
 * most device_config.drafts rows). trial: for timing only; recurrent state is neither read nor
 * changed, KV rows from pos on are overwritten. A layer without a mixer gets no job. A layer that
 * shares an earlier one's choice of keys (mixer_shape.index_top without index_heads) gets its job
 * after that one's, which had the same rows, and no other job of that layer in between. strengths:
 * per row, LORA_ADAPTERS factors by adapter for the LoRA matrices (engine/layout/lora.h), NULL:
 * none apply; NULL: for no row. Only the CPU gets blocks with adapters. */
struct attention_job {
    int layer, rows, pos;
    const float *x;
    float *y;
    const struct span *spans;
    int n_spans;
    bool trial;
    const float *const *strengths;
    /* Only for the CPU and a single span; NULL: nowhere. Of a softmax mixer: (heads, score_stride),
     * the scores of the last row's heads with the keys at the positions that it sees, scaled,
     * before softmax; the others stay as they are. */
    float *scores;
    int score_stride;
    /* Only for the CPU, in a layer with n-grams (mixer_shape.ngrams): the rows' tokens, and their
     * streams as in combine_job, which gain what the n-grams give; what the mixer reads is then
     * read of those, and not x. NULL: of timing, there are no n-grams. */
    const int *ids;
    float *inputs;
};

/* Experts forced on every row instead of the router's choice, for measuring and for replaying
 * recorded ones; the router's scores are still computed. A row at position p of layer l gets
 * experts[(l * period + p % period) * used ..]; by_row: row r of the job gets experts[(l * period +
 * r) * used ..]. The same of weights; NULL: each has weight 1 / used. Owned by the caller, constant
 * while in use. Only for the CPU: while it is on, the engine sends no layers job to another device.
 */
struct imposed_routing {
    int period;
    const uint16_t *experts; /* (n_layers, period, used), distinct within a row */
    const float *weights;    /* likewise, or NULL */
    bool by_row;             /* a job has at most `period` rows */
    int only;                /* 1 + the one layer that it holds for; 0: for all */
};

/* Optional fused step: norm, router scores, choice. x: the residual stream, of parallel layers as
 * it was before their mixer. h: its rows normed; where shape_normed_rows is 2, `rows` rows with the
 * routed experts' norm, then `rows` with that of the dense part (the shared expert). experts,
 * weights (rows, n_experts_used): the chosen experts, best first, then the shared one if the layer
 * has one. Unused places, where a layer uses fewer than others (shape_used), hold expert -1 and
 * weight 0. */
struct route_job {
    int layer, rows;
    const float *x;
    /* where the router is early (router_shape): the stream before the mixer, of which its scores
     * are; NULL: x is that */
    const float *before;
    /* where routers have rows (router_shape.row): as in combine_job, the layer's row is left there;
     * NULL: nowhere, and it is made without the row of the layer before */
    float *inputs;
    /* (shape_normed_rows, rows, hidden); (rows, n_experts), only the routed ones are filled */
    float *h, *scores;
    int *experts;
    float *weights;
    int pos;                               /* of row 0; used only with imposed */
    const struct imposed_routing *imposed; /* NULL: the router's choice */
    const struct span *spans;              /* as in attention_job; used only with imposed */
    int n_spans;
    /* per row, for the layer: NULL: none; NULL: for no row. imposed comes before them. Only the
     * route job knows edits: the engine sends layers that they touch to no layers job */
    const struct expert_edits *const *edits;
    /* (rows): tokens, read only in layers whose experts follow from them (router_shape.by_token);
     * NULL: of timing, each is token 0 */
    const int *ids;
};

/* Rows of one expert: entries first .. first+count-1 of experts_job.row / .slot. */
struct expert_group {
    int expert, first, count;
};

/* All experts of one layer that one device computes. Output of (row, slot) goes, unscaled, to out +
 * (slot * rows + row) * hidden. */
struct experts_job {
    int layer, rows; /* rows of h */
    const float *h;  /* (shape_normed_rows, rows, hidden), already normed */
    int n_groups;
    const struct expert_group *groups;
    const int *row, *slot; /* per entry: row of h, routing slot */
    float *out;
    const float *const *strengths; /* as in attention_job */
    /* where routers weight inputs (router_shape.on_input): (rows, n_experts_used), by row and slot:
     * what the products with gate and up are multiplied with, as if h had been; NULL: 1 */
    const float *weights;
};

/* x = x + combine(expert outputs) by rule 9, with the norms, the layer's own inputs and the scale
 * that it applies after them. */
struct combine_job {
    int layer, rows;
    const float *out, *weights; /* (used, rows, hidden), (rows, n_experts_used) */
    float *x;
    /* (rows, hparams_beside): of every layer, and streams besides x, which change with it: x and
     * they become what the next layer is predicted to begin with, or x the end; NULL: there are
     * none. Hyper-connected: x is not added to, they take the sum; x becomes what the next layer's
     * mixer reads, unless that layer has n-grams, or the end */
    float *inputs;
    const float *const *strengths; /* as in attention_job */
};

/* Where layers have inputs of their own, or streams are hyper-connected: inputs (rows,
 * hparams_beside) holds the tokens' rows of the model's table (model_inputs), and gets by rule 15
 * what the layers use. x: the embeddings; with other streams they become what the first layer is
 * predicted to begin with. */
struct inputs_job {
    int rows;
    float *x;
    float *inputs;
    const float *const *strengths; /* as in attention_job */
};

/* Of hyper-connected streams, behind a layer's mixer: they take its output y, and x becomes what
 * the feed-forward reads. inputs as in combine_job; strengths as in attention_job. */
struct streams_job {
    int layer, rows;
    const float *y;
    float *x, *inputs;
    const float *const *strengths;
};

/* Final norm and head for some rows: logits (rows, n_vocab). */
struct head_job {
    int rows;
    const float *x; /* (rows, hidden) */
    float *logits;
    const float *const *strengths; /* as in attention_job */
};

/* Rows times a matrix outside the model's blocks: of the type of the model's head, or of any float
 * type if that is float; w->cols is the model's hidden. */
struct multiply_job {
    const struct matrix *w;
    int rows;
    const float *x; /* (rows, w->cols) */
    float *y;       /* (rows, w->rows) */
};

/* For an MTP block (model.h, struct mtp_weights): joins embeddings and hidden states, both normed,
 * into the residual stream that its layer starts from. Hyper-connected: states is not read; inputs,
 * as in combine_job, has the states in the streams' places, which become the joined ones, and x
 * what the layer's mixer reads (rule 17). */
struct join_job {
    int rows;
    const float *embeddings, *states; /* (rows, hidden) each */
    float *x;                         /* (rows, hidden), must not overlap them */
    float *inputs;                    /* NULL: not hyper-connected */
};

/* Whole layers first .. last-1, routing included, x updated in place; experts/weights of every
 * layer are returned for telemetry: (last - first, rows, used). Only when the plan places all
 * blocks of those layers on this device. */
struct layers_job {
    int first, last, rows, pos;
    float *x;
    int *experts;
    float *weights;
    const struct imposed_routing *imposed; /* NULL: the router's choice */
    const struct span *spans;              /* as in attention_job */
    int n_spans;
    const float *const *strengths; /* likewise */
    float *inputs;                 /* as in combine_job */
    /* (rows): of which rows somebody reads x behind the model's last layer; NULL: of all. A device
     * may leave out the experts of others in that layer, whose x is then undefined. */
    const bool *wanted;
    const int *ids; /* as in route_job */
};

/* Rows of one layer in the exchange layout: for each token, heads * key_dim values of K, then heads
 * * value_dim of V, in the cache types (state_size). fixed: instead of rows the layer's recurrent
 * state after pos tokens, fixed_bytes in the layout of the CPU's mixer: reading fails unless the
 * state is at pos, writing sets it to pos; count is ignored. */
struct kv_move {
    int layer, pos, count;
    void *data;
    bool write; /* host -> device */
    int session;
    bool fixed;
};

/* Called by the device's compute threads for each matrix that a job of several rows multiplies, for
 * different matrices concurrently: returns w->cols accumulators for the squares of its n input
 * rows' values, or NULL to skip them. Called for every part of a matrix that is multiplied
 * separately, `row` its first row: stacked per-head matrices (MLA) have different inputs. Calls for
 * one part are serialised, in jobs of at most DEVICE_OBSERVED rows. */
#define DEVICE_OBSERVED 64
struct device_observer {
    float *(*squares_of)(void *ctx, const struct matrix *w, int row, int n);
    void *ctx;
};

struct device_stats {
    /* includes norms, routers and biases */
    uint64_t weight_bytes, kv_bytes, scratch_bytes, staging_bytes;
    /* part of kv_bytes in use: buffers that hold rows (shared ones count once), buffers of fixed
     * size */
    uint64_t kv_used_bytes;
    /* the part of weight_bytes that is host memory used in place, not a copy */
    uint64_t shared_bytes;
    uint64_t uploaded_bytes, downloaded_bytes; /* since open */
    /* the part of these that are inputs and outputs of jobs: none where the host's are used in
     * place */
    uint64_t row_bytes;
    /* since open: kernels running, host waiting, copies */
    uint64_t busy_ns, wait_ns, transfer_ns;
    uint64_t jobs, failures;
    uint64_t waits; /* for jobs, since open: of a pass at most one a layer and block */
    /* since open: tokens through layers whose launches were recorded before, recordings made */
    uint64_t replayed, recorded;
    /* streamed experts: bytes of their buffers, bytes copied since open (part of uploaded_bytes),
     * copies, copies started by prefetch, and how many of those were used */
    uint64_t stream_bytes, streamed_bytes, streamed, prefetched, prefetch_hits;
    /* the CPU where its cores are of several kinds (else 0): threads that decode on the fastest
     * kind and on others, and the others' share of work, per mille of a fast thread's; 1000 until
     * their speed is measured */
    uint64_t fast_threads, slow_threads, slow_share;
};

/* The result of probe. */
struct device_info {
    char name[128];    /* "AMD Radeon 780M" */
    char selector[32]; /* "opencl:0" */
    char driver[128];
    char why_not[256]; /* empty: usable; else one line with the reason */
    bool is_cpu_type;  /* an OpenCL device that is really the CPU (PoCL) */
    bool unified;      /* shares memory with the host */
    uint64_t memory, max_alloc;
};

/* Properties and measured rates of a device, for --list-devices. A rate is 0 if not measured. */
struct device_report {
    /* bytes/s: weights read by the decode kernel; host to device */
    double read_rate, copy_rate;
    /* operations/s of a prefill GEMM: Q8_0, F32 with own kernels, F32 with the library */
    double q8_rate, f32_rate, library_rate;
    char supported[200], selftest[400], library[200];
    char replay[100]; /* whether a token's launches are */
    char shapes[400]; /* of its work-groups for one token; "": they have one work-item */
};

/* A pass of the microbenchmark: so many tokens behind so many others. */
struct device_pass {
    int rows, depth;
};

/* A kernel of a pass in one shape. */
#define DEVICE_KERNEL_SHAPE 40
struct device_kernel {
    int pass;                        /* index of it */
    char name[24];                   /* of the kernel: "gate_up" */
    char shape[DEVICE_KERNEL_SHAPE]; /* "2 x 896 x 4096 q4_0": experts, rows, columns, weights */
    int launches;                    /* in the pass */
    double seconds;                  /* of one of them */
    /* of one of them: weights, keys and values read, each once; multiply-adds count two */
    double bytes, ops;
};

/* What the figures are of. */
struct device_kernels {
    char device[128];
    bool predicted, is_cpu_type;
    int layers, of_layers; /* that the passes ran through */
    double read_rate;      /* bytes/s that the device reads */
    char shapes[400];      /* as in device_report */
};

struct device_ops {
    bool drafts;         /* layers with recurrent state accept drafted rows */
    const char *name;    /* "cpu", "opencl" */
    const char *summary; /* one line for --list-devices and the manual */
    /* Fills up to max entries, returns how many exist (0 with why[0] set: none, with the reason).
     * Never fails, never crashes on a broken driver. */
    int (*probe)(struct device_info *out, int max, char *why, size_t why_size);
    int (*open)(struct device **out, const struct device_config *c, struct error *e);
    void (*close)(struct device *d);
    /* Optional: frees what open stored at device_config.link. */
    void (*link_close)(struct device_link *link);
    /* Allocates what a session keeps between tokens in every layer whose mixer is here: KV rows for
     * `context` positions, a ring of the newest ones (state_room), or recurrent state; block_put
     * does so for layers added later, for all open sessions. Any number that is not open, small
     * ones first; open itself opens session 0, which is never closed by the caller. Once a device
     * is open only these, state_types, block_put, stream and tune allocate. ERR_MEMORY, ERR_DEVICE:
     * it does not fit, nothing is changed. Between jobs. */
    int (*state_open)(struct device *d, int session, struct error *e);
    void (*state_close)(struct device *d, int session);
    /* Optional: session `to` shares the rows of session `from` for positions 0 .. n - 1, replacing
     * its own: both sessions start with the same tokens. By reference, except rings, which are
     * copied; from then on neither session sees the other's writes or truncations. Returns the
     * number of positions shared, whole pages of NUM_CHUNK: n or less, 0. Rows only, no recurrent
     * state. Between jobs. */
    int (*state_share)(struct device *d, int from, int to, int n);
    /* Optional: changes the types of keys and values. Closes every session's state, session 0's
     * too; state_open opens them again. Allocates. ERR_MEMORY, ERR_USAGE (no whole blocks): call
     * again with other types. Between jobs. */
    int (*state_types)(struct device *d, enum kv_type k, enum kv_type v, struct error *e);
    /* Optional, the CPU has them: all pages, which stay where they are but become more when a state
     * is opened; where a layer's rows begin in a page, bytes; a session's pages for positions 0 ..
     * end - 1, of which those from pos on are its own and may be written. NULL: ERR_DEVICE.
     * state_rings: a session's, which stay there until it is closed; no bytes: no layer has any. */
    void (*state_memory)(const struct device *d, struct state_memory *out);
    void (*state_rings)(const struct device *d, int session, struct state_memory *out);
    size_t (*state_at)(const struct device *d, int layer);
    uint8_t *const *(*state_pages)(struct device *d, int session, int pos, int end,
                                   struct error *e);
    /* Optional: whether it uses rows where `cpu` has them, from now on, and has none of its own;
     * before its first block_put. The states of sessions are opened there first and closed there
     * last, and cpu is closed after it. */
    bool (*state_in_place)(struct device *d, struct device *cpu);
    /* Optional: discards a session's rows from pos on. Between jobs. */
    void (*state_cut)(struct device *d, int session, int pos);
    /* Optional: returns the memory of rows that no session uses to the operating system until new
     * rows are written there. Returns bytes. Between jobs. */
    uint64_t (*state_trim)(struct device *d);
    /* Whether it computes this kind of block of such a layer, with a matrix of that type, to the
     * bits of numerics.h. Called for each matrix (residency_supports): a single false keeps the
     * block on the CPU, which computes everything a model may have (model_computable refuses the
     * rest). shape NULL: the head. */
    bool (*supports)(const struct device *d, const struct layer_shape *shape, enum block_kind kind,
                     enum dtype type);
    /* Optional, called if supports is true for each matrix of a block: whether it can run that
     * combination of types. NULL: any combination. */
    bool (*together)(const struct device *d, struct block_id id);
    /* Makes a block resident, at most max_bytes of upload a call. Returns 1: resident, 0: call
     * again, negative: failed. */
    int (*block_put)(struct device *d, struct block_id id, size_t max_bytes, struct error *e);
    void (*block_drop)(struct device *d, struct block_id id);
    int (*attention)(struct device *d, const struct attention_job *j, struct error *e);
    int (*route)(struct device *d, const struct route_job *j, struct error *e);
    int (*experts)(struct device *d, const struct experts_job *j, struct error *e);
    int (*combine)(struct device *d, const struct combine_job *j, struct error *e);
    int (*head)(struct device *d, const struct head_job *j, struct error *e);
    int (*layers)(struct device *d, const struct layers_job *j, struct error *e);
    /* Optional, with layers: whether this layer may be in such a job. NULL: every one. */
    bool (*fuses)(const struct device *d, int layer);
    /* Optional: caps n logits, of whichever device, by rule 9. */
    int (*cap)(struct device *d, float *logits, size_t n, struct error *e);
    /* Optional: see multiply_job. */
    int (*multiply)(struct device *d, const struct multiply_job *j, struct error *e);
    /* Optional: see join_job. */
    int (*join)(struct device *d, const struct join_job *j, struct error *e);
    /* Optional: see inputs_job. */
    int (*inputs)(struct device *d, const struct inputs_job *j, struct error *e);
    /* Optional: see streams_job. */
    int (*streams)(struct device *d, const struct streams_job *j, struct error *e);
    int (*wait)(struct device *d, struct error *e);
    /* Optional: whether wait() would return at once. Never waits. */
    bool (*done)(const struct device *d);
    /* Optional: from now on jobs have inputs and outputs in this memory of the host, which starts
     * on a page; bytes 0: no longer, it is about to be freed. A device that shares the host's
     * memory then reads and writes them there; others copy, as it does where this does not work.
     * Between jobs. Allocates. */
    void (*host_rows)(struct device *d, void *at, size_t bytes);
    int (*kv_rows)(struct device *d, const struct kv_move *m, struct error *e);
    void (*stats)(const struct device *d, struct device_stats *out);
    /* Optional. Streams experts that do not fit: while on, an experts job may name non-resident
     * ones. They are copied to DEVICE_STREAM buffers, each as large as the model's largest expert:
     * one is filled while the other one's expert computes. on allocates the buffers, off (no job in
     * flight) frees them. */
    int (*stream)(struct device *d, bool on, struct error *e);
    /* Optional, with stream: hints that these experts of a layer, likeliest first, will probably be
     * needed next. Starts copying them into buffers that the job in flight does not need; never
     * waits, never fails. */
    void (*prefetch)(struct device *d, int layer, const int *experts, int n);
    /* Optional: the memory that open with c and then these blocks would take, to the byte, without
     * opening: scratch, staging, weights, KV; stream_bytes: what `stream` would add; shared_bytes:
     * the weights expected to be used in place. c->model may come from model_inspect; c->selector
     * names the device. */
    int (*footprint)(const struct device_config *c, const struct block_id *blocks, int n_blocks,
                     struct device_stats *out, struct error *e);
    /* Optional: measures which of its kernels is fastest for each of the model's shapes, where that
     * is not known yet and cannot change the text, and stores it in cache_dir: some tenths of a
     * second, once per machine and shape. Between answers. pos: a position from which KV rows may
     * be overwritten (recurrent state is left alone), or -1: nothing is decoded. Returns the number
     * of measurements. */
    int (*tune)(struct device *d, int pos);
    /* Optional (the CPU has it): sets the observer from the next job on; o outlives its use, NULL:
     * none. Not called for the heads' matrices of latent attention, nor for single rows. */
    void (*observe)(struct device *d, const struct device_observer *o);
    /* Optional: opens one device without a model, tests its kernels and measures it: takes seconds,
     * a minute when compilers must run. */
    int (*report)(const char *selector, const char *cache_dir,
                  void (*log)(void *ctx, const char *line), void *log_ctx,
                  struct device_report *out, struct error *e);
    /* Optional: every kernel and shape of these passes through c->model, each pass followed by the
     * head for one of its tokens, everything on the device that it can run; at most max. Returns
     * how many. card NULL: measured, by opening a device with c (max_rows and context are set here;
     * the model is loaded), on as many layers as fill some hundred megabytes. Else predicted for
     * the card of that name, without a device; the model may come from model_inspect. ERR_USAGE: no
     * such card; ERR_DEVICE: no device. Takes seconds, a minute when compilers must run. */
    int (*kernels)(const struct device_config *c, const char *card,
                   const struct device_pass *passes, int n_passes, struct device_kernel *out,
                   int max, struct device_kernels *about, struct error *e);
};

struct device_base {
    const struct device_ops *ops;
    struct device_config config;
    struct device_info info;
};

/* Parts of the CPU device that others use: the width of packed matrices on this machine, and the
 * kernel set. */
extern const struct device_ops cpu_device_ops;
/* Bytes that open would allocate for c (c->model may come from model_inspect). */
int cpu_device_footprint(const struct device_config *c, uint64_t *kv_bytes, uint64_t *scratch_bytes,
                         struct error *e);
int cpu_pack_width(void); /* 16 with AVX-512, else 8 */
/* decoding with unpacked weights of this type is about as fast as with packed ones */
bool cpu_reads_raw(enum dtype type);
/* "scalar", "avx2", "avxvnni", "avx512", "amx", on 64-bit Arm "neon", "dotprod", "i8mm": forces a
 * kernel set before open (tests, --kernels); NULL: the best. ERR_USAGE when this CPU lacks it. */
int cpu_kernels_select(const char *name, struct error *e);
const char *cpu_kernels_name(void);

#endif
