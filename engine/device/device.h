/* The contract every back end fulfils. One back end is one `struct device_ops`; app/devices.c alone
 * lists them, CPU last.
 *
 * Thread: the engine's. But probe and open may run on a thread beside it, while other devices
 * compute (config.log is called on it then), one such thread an engine; footprint and report need
 * no open device, nor an engine. A device may use threads of its own inside. Jobs: attention,
 * experts, head, route, combine, layers. A job may return before its work is done; its outputs are
 * valid, and its inputs free again, after wait(). Inputs and outputs are host memory (F32,
 * row-major) unless said otherwise. Failure: a negative code and a message; the caller reruns the
 * job on the CPU device, reports it, and stops using the device when it fails again. A failed job
 * leaves its outputs undefined, its KV rows of this job unwritten or rewritable, and the recurrent
 * state of its layers and sessions void. Numbers: quantised weights and everything around them
 * follow engine/device/numerics.h to the bit.
 *
 * Mandatory: probe, open, close, state_open, state_close, supports, block_put, block_drop,
 * attention, experts, head, wait, kv_rows, stats. Optional (NULL): route, combine, cap, join (the
 * CPU has all), layers, fuses, report, stream, prefetch, footprint, tune, observe, together,
 * state_share, state_cut, state_trim, link_close. Emulated where NULL: layers by single jobs.
 * Computing allocates nothing of ours: scratch for max_rows rows is taken at open, what a session
 * keeps at state_open and block_put. In names and jobs `attention` is a layer's mixer of any kind.
 */
#ifndef ENGINE_DEVICE_DEVICE_H
#define ENGINE_DEVICE_DEVICE_H

#include "engine/base/error.h"
#include "engine/device/kv_type.h"
#include "engine/model/block.h"

#include <stdbool.h>

#define DEVICE_MAX 8    /* devices of one engine, CPU included */
#define DEVICE_STREAM 2 /* buffers for experts that do not lie on a device */
#define DEVICE_ROPES 2  /* rotary tables: every session uses one of them */

struct pool;
struct device; /* private to the back end; first member: struct device_base */
/* What devices of one back end, each for a model of its own, share of one piece of hardware;
 * private to the back end. */
struct device_link;

/* Which kernel serves which shape: measured once and kept, the built-in choice, measured anew. */
enum device_tune { DEVICE_TUNE_ON, DEVICE_TUNE_OFF, DEVICE_TUNE_AGAIN };

struct device_config {
    const struct model *model; /* outlives the device */
    int index;                 /* in the engine's list; 0: CPU */
    int n_threads;             /* CPU: threads of the pool */
    /* CPU: who else uses it is done when a job begins; outlives the device. NULL: one of its own */
    struct pool *pool;
    /* NULL: nothing is shared. *link NULL: open leaves there what it makes, for devices opened
     * later; else it uses that. The one thread of all of them; link_close after the last is closed.
     */
    struct device_link **link;
    /* nobody asked for so many: fewer of them may decode, where that is measured to be faster */
    bool fewer_threads;
    int max_rows; /* most rows (tokens) of one job: -ub */
    int context;  /* KV positions to hold for each session */
    int sessions; /* for footprint alone: how many states will be open; 0: one */
    int drafts;   /* most drafted rows of a span, in layers with recurrent state */
    enum kv_type kv_k, kv_v;
    bool exact; /* float weights multiplied in F32 */
    /* CPU: oneDNN multiplies float weights with several tokens; their sums then depend on how many
     */
    bool float_library;
    enum device_tune tune;
    const char *selector;  /* "opencl:0": platform/device choice of the user, or NULL */
    const char *cache_dir; /* compiled programs, verdicts; NULL: none */
    /* rotary tables: (context, rope_dims/2), mscale folded in; as many as there are, the first ones
     * not NULL. They outlive the device. ropes: how many, for footprint alone, which needs no
     * tables; 0: one */
    const float *rope_cos[DEVICE_ROPES], *rope_sin[DEVICE_ROPES];
    /* the same of layers with mixer_shape.second_rope: (context, second_rope.dims/2), for every
     * session; NULL: the model has none */
    const float *second_cos, *second_sin;
    int ropes;
    /* One line for the user (compiling, self-test verdicts, why not). May be NULL. */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
};

/* Rows of one session that stand together in a job: row i at absolute position pos + i. rope: which
 * of the rotary tables. */
struct span {
    int session, pos, rows, rope;
    int drafted; /* so many of the last rows may turn out to be wrong; fewer than rows */
    /* LORA_ADAPTERS of the session, by adapter; NULL: nothing that hangs on matrices counts. For
     * who makes jobs: devices read those of the jobs */
    const float *strengths;
};

/* x: residual stream (rows, hidden), the spans' rows one after the other. y: attention block's
 * output WITHOUT the residual: o_proj(attn(norm(x))) + bias, normed where norms.after says so; but
 * where there is a norm after and none before, what the stream becomes, norm(x + ...). Of a span's
 * session KV rows pos .. pos+rows-1 are written, row i reads 0 .. pos+i (window permitting). In a
 * layer that keeps a ring the row at p takes the place of the one state_room before it. A session
 * has one span. spans NULL: all rows are session 0's, from pos on, by the first rotary table. A
 * layer with recurrent state goes on where that stands, which must be pos, and leaves it at pos +
 * rows; at pos 0 it begins with zeros. Of drafted rows it is read and not written: it is left
 * before them, what takes it over them is kept, and the session's next job may begin behind any of
 * them (device_ops.drafts; device_config.drafts of them at most). trial: only the time is wanted;
 * recurrent state is neither read nor changed, KV rows from pos on are scribbled on. A layer
 * without a mixer gets no job. strengths: of each row, LORA_ADAPTERS numbers by adapter with which
 * what hangs on matrices (engine/layout/lora.h) counts for it, NULL: none of it; NULL: for no row.
 * Only the CPU is given blocks with adapters.
 */
struct attention_job {
    int layer, rows, pos;
    const float *x;
    float *y;
    const struct span *spans;
    int n_spans;
    bool trial;
    const float *const *strengths;
};

/* For measuring alone: experts imposed on every row in place of the router's choice, whose scores
 * are computed all the same. A row at position p of layer l gets experts[(l * period + p % period)
 * * used ..], each with weight 1 / used. The caller's, constant while in use. Only the CPU is given
 * it: while it is on, the engine sends no layers job to another device. */
struct imposed_routing {
    int period;
    const uint16_t *experts; /* (n_layers, period, used), distinct within a row */
};

/* Optional fused step: h = norm(x) of the expert norm (shape_normed_rows: of the routed experts'
 * norm, and behind all rows of that those of the dense part), scores, then experts and weights
 * (rows, n_experts_used): the chosen ones, the best first, then the shared one; -1 and 0 in what is
 * left of a row, where the layer has fewer of them than others (shape_used). */
struct route_job {
    int layer, rows;
    const float *x;
    /* (shape_normed_rows, rows, hidden); (rows, n_experts), of which the routed ones are filled */
    float *h, *scores;
    int *experts;
    float *weights;
    int pos;                               /* of row 0; of interest to imposed alone */
    const struct imposed_routing *imposed; /* NULL: the router's choice */
    const struct span *spans;              /* as in attention_job; of interest to imposed alone */
    int n_spans;
};

/* Rows of one expert: entries first .. first+count-1 of experts_job.row / .slot. */
struct expert_group {
    int expert, first, count;
};

/* All experts that one device owes for one layer. Output of (row, slot) goes, unscaled, to out +
 * (slot * rows + row) * hidden. */
struct experts_job {
    int layer, rows; /* rows of h */
    const float *h;  /* (shape_normed_rows, rows, hidden), already normed */
    int n_groups;
    const struct expert_group *groups;
    const int *row, *slot; /* per entry: which row of h, which routing slot */
    float *out;
    const float *const *strengths; /* as in attention_job */
};

/* x = x + combine(expert outputs) by rule 9, with the norms and the scale that the layer has behind
 * them. */
struct combine_job {
    int layer, rows;
    const float *out, *weights; /* (used, rows, hidden), (rows, n_experts_used) */
    float *x;
};

/* Final norm and head for some rows: logits (rows, n_vocab). */
struct head_job {
    int rows;
    const float *x; /* (rows, hidden) */
    float *logits;
    const float *const *strengths; /* as in attention_job */
};

/* Rows times a matrix that belongs to no block of the model: of the type of the model's head, or of
 * floats where that is of floats; w->cols is the model's hidden. */
struct multiply_job {
    const struct matrix *w;
    int rows;
    const float *x; /* (rows, w->cols) */
    float *y;       /* (rows, w->rows) */
};

/* Of a block that predicts further tokens (model.h, struct mtp_weights): embeddings and hidden
 * states, both normed, joined: the residual stream that its layer begins with. */
struct join_job {
    int rows;
    const float *embeddings, *states; /* (rows, hidden) each */
    float *x;                         /* (rows, hidden), none of these */
};

/* Whole layers first .. last-1, routing included, x updated in place; experts/weights of every
 * layer reported for telemetry: (last - first, rows, used). Only when the plan gives this device
 * every block of those layers. */
struct layers_job {
    int first, last, rows, pos;
    float *x;
    int *experts;
    float *weights;
    const struct imposed_routing *imposed; /* NULL: the router's choice */
    const struct span *spans;              /* as in attention_job */
    int n_spans;
    const float *const *strengths; /* likewise */
};

/* Rows of one layer in the exchange layout: for each token, heads * key_dim values of K, then heads
 * * value_dim of V, in the cache types (state_size). fixed: not rows but the layer's recurrent
 * state, fixed_bytes as the CPU's mixer lays them out, after pos tokens: reading fails where it
 * stands elsewhere, writing makes it stand there; count is of no interest. */
struct kv_move {
    int layer, pos, count;
    void *data;
    bool write; /* host -> device */
    int session;
    bool fixed;
};

/* Asked for each matrix that a job of several rows meets, by the device's compute threads, for
 * different matrices at once: where the squares of its n rows' values are added, w->cols numbers;
 * NULL: nobody wants them. Asked for every part of a matrix that is multiplied apart, `row` its
 * first row: heads' matrices under each other (MLA) meet rows of their own. Rows of one part come
 * one thread after the other in jobs of at most DEVICE_OBSERVED rows. */
#define DEVICE_OBSERVED 64
struct device_observer {
    float *(*squares_of)(void *ctx, const struct matrix *w, int row, int n);
    void *ctx;
};

struct device_stats {
    /* weights: norms, routers and biases included */
    uint64_t weight_bytes, kv_bytes, scratch_bytes, staging_bytes;
    /* of kv_bytes, what is taken by now: what holds rows (what sessions share counts once), buffers
     * of one size */
    uint64_t kv_used_bytes;
    /* the part of weight_bytes that is host memory used in place, not a copy */
    uint64_t shared_bytes;
    uint64_t uploaded_bytes, downloaded_bytes; /* since open */
    /* since open: kernels running, host waiting, copies */
    uint64_t busy_ns, wait_ns, transfer_ns;
    uint64_t jobs, failures;
    /* experts that pass through: the buffers they take, their copies since open (part of
     * uploaded_bytes), how many of those were begun by prefetch, and how many of those were then
     * asked for */
    uint64_t stream_bytes, streamed_bytes, streamed, prefetched, prefetch_hits;
};

/* What probe found. */
struct device_info {
    char name[128];    /* "AMD Radeon 780M" */
    char selector[32]; /* "opencl:0" */
    char driver[128];
    char why_not[256]; /* empty: usable; else one clear line */
    bool is_cpu_type;  /* an OpenCL device that is really the CPU (PoCL) */
    bool unified;      /* shares memory with the host */
    uint64_t memory, max_alloc;
};

/* What was found out about a device, with weights made for it: for --list-devices. Rates are 0
 * where nothing was measured. */
struct device_report {
    /* bytes/s: weights read by the decode kernel; host to device */
    double read_rate, copy_rate;
    /* operations/s of a prefill GEMM: Q8_0, F32 by own kernels, F32 by the library */
    double q8_rate, f32_rate, library_rate;
    char supported[200], selftest[400], library[200];
};

struct device_ops {
    bool drafts;         /* layers with recurrent state take drafted rows */
    const char *name;    /* "cpu", "opencl" */
    const char *summary; /* one line for --list-devices and the manual */
    /* Fills up to max entries, returns how many exist (0 with why[0] set: none, and why). Never
     * fails, never crashes on a broken driver. */
    int (*probe)(struct device_info *out, int max, char *why, size_t why_size);
    int (*open)(struct device **out, const struct device_config *c, struct error *e);
    void (*close)(struct device *d);
    /* Optional: of what open left at device_config.link. */
    void (*link_close)(struct device_link *link);
    /* What a session keeps between tokens, KV rows for `context` positions, a ring of the newest
     * ones (state_room) or recurrent state of every layer whose mixer is here; for one that comes
     * later block_put takes it, of all sessions that are open. Any number that is not open, small
     * ones first; open itself opens session 0's, which nobody closes. Once a device is open these,
     * state_types, block_put, stream and tune are the only calls that allocate. ERR_MEMORY,
     * ERR_DEVICE: it does not fit, and nothing is changed. Between jobs. */
    int (*state_open)(struct device *d, int session, struct error *e);
    void (*state_close)(struct device *d, int session);
    /* Optional: the rows of session `from` for positions 0 .. n - 1 are those of `to` as well, in
     * place of what it had there: both sessions begin with the same tokens. By reference, but for
     * rings, which are copied as they are; from then on neither session sees what the other one
     * writes or cuts. Returns how many positions, whole pages of NUM_CHUNK: n or less, 0. Rows
     * alone, no recurrent state. Between jobs. */
    int (*state_share)(struct device *d, int from, int to, int n);
    /* Optional: keys and values are kept in these types from here on. Every session's state is
     * closed, session 0's too; state_open opens them again. Allocates. ERR_MEMORY, ERR_USAGE (no
     * whole blocks): call again with other types. Between jobs. */
    int (*state_types)(struct device *d, enum kv_type k, enum kv_type v, struct error *e);
    /* Optional: a session's rows from pos on are not wanted any more. Between jobs. */
    void (*state_cut)(struct device *d, int session, int pos);
    /* Optional: memory of rows that no session has any more is the host system's again, until
     * others are written there. Bytes. Between jobs. */
    uint64_t (*state_trim)(struct device *d);
    /* Does it compute this kind of block of such a layer to the bits of numerics.h, where a matrix
     * of it is of that type? Asked of each matrix (residency_supports): one no keeps the block with
     * the CPU, which computes all that a model may have (model_computable refuses the rest). shape
     * NULL: the head. */
    bool (*supports)(const struct device *d, const struct layer_shape *shape, enum block_kind kind,
                     enum dtype type);
    /* Optional, asked where supports says yes to each matrix of a block: does it run them side by
     * side? NULL: whatever their types are. */
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
    /* Optional, with layers: may this layer be in such a job? NULL: every one. */
    bool (*fuses)(const struct device *d, int layer);
    /* Optional: n logits, whichever device made them, become capped by rule 9. */
    int (*cap)(struct device *d, float *logits, size_t n, struct error *e);
    /* Optional: see multiply_job. */
    int (*multiply)(struct device *d, const struct multiply_job *j, struct error *e);
    /* Optional: see join_job. */
    int (*join)(struct device *d, const struct join_job *j, struct error *e);
    int (*wait)(struct device *d, struct error *e);
    int (*kv_rows)(struct device *d, const struct kv_move *m, struct error *e);
    void (*stats)(const struct device *d, struct device_stats *out);
    /* Optional. Experts that do not fit: while on, an experts job may name ones that are not
     * resident. They pass through DEVICE_STREAM buffers, each as large as the model's largest
     * expert: one is filled while the other one's expert computes. on takes the buffers, off (no
     * job in flight) gives them back. */
    int (*stream)(struct device *d, bool on, struct error *e);
    /* Optional, with stream: these experts of a layer, likeliest first, will probably be asked for
     * next. Begins to copy them as far as buffers are not needed for the job in flight; never
     * waits, never fails. */
    void (*prefetch)(struct device *d, int layer, const int *experts, int n);
    /* Optional: what open with c and then these blocks would take, to the byte, without opening:
     * scratch, staging, weights, KV; stream_bytes: what `stream` would add; shared_bytes: the
     * weights expected to be used in place. c->model may come from model_inspect; c->selector names
     * the device. */
    int (*footprint)(const struct device_config *c, const struct block_id *blocks, int n_blocks,
                     struct device_stats *out, struct error *e);
    /* Optional: measures which of its kernels serves which of the model's shapes, where that is not
     * known yet and cannot change the text, and keeps it in cache_dir: some tenths of a second,
     * once for a machine and a shape. Between answers. pos: a position whose KV rows may be
     * scribbled on (recurrent state is left alone), or -1: nothing is decoded. Returns how many
     * things were measured. */
    int (*tune)(struct device *d, int pos);
    /* Optional (the CPU has it): from the next job on; o outlives its use, NULL: nobody. Heads'
     * matrices of latent attention and what single rows meet are not told. */
    void (*observe)(struct device *d, const struct device_observer *o);
    /* Optional: opens one device without a model, tests its kernels and measures it: seconds, a
     * minute when compilers must run. */
    int (*report)(const char *selector, const char *cache_dir,
                  void (*log)(void *ctx, const char *line), void *log_ctx,
                  struct device_report *out, struct error *e);
};

struct device_base {
    const struct device_ops *ops;
    struct device_config config;
    struct device_info info;
};

/* The pieces of the CPU device that others need: how wide matrices must be packed on this machine,
 * and which kernels run. */
extern const struct device_ops cpu_device_ops;
/* Bytes that open would allocate for c (c->model may come from model_inspect). */
int cpu_device_footprint(const struct device_config *c, uint64_t *kv_bytes, uint64_t *scratch_bytes,
                         struct error *e);
int cpu_pack_width(void); /* 16 with AVX-512, else 8 */
/* decoding with unpacked weights of this type is about as fast */
bool cpu_reads_raw(enum dtype type);
/* "scalar", "avx2", "avxvnni", "avx512", "amx": forces a kernel set before open (tests, --kernels);
 * NULL: the best. ERR_USAGE when this CPU lacks it. */
int cpu_kernels_select(const char *name, struct error *e);
const char *cpu_kernels_name(void);

#endif
