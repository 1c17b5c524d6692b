/* Private to gpu/: the device, its buffers and programs, and helpers that turn OpenCL codes into
 * errors. One in-order queue computes; a second one uploads weights, so that copies overlap
 * kernels. */
#ifndef GPU_INTERNAL_H
#define GPU_INTERNAL_H

#include "engine/device/device.h"
#include "gpu/driver/command_buffer.h"
#include "gpu/driver/functions.h"
#include "gpu/driver/tuning.h"
#include "gpu/shapes/token_shapes.h"

#include <stdint.h>

#define PAGE 4096
#define BANK 16      /* experts bound to one launch (quant.cl, float.cl) */
#define TILE 8       /* tokens of a tile where there are many */
#define GEMM_TILE 32 /* the same of gemm.cl: 128 work-items */
#define PART_GATES 4 /* of attention whose gates have a matrix of their own */
#define PARTS 5      /* matrices of a block at most: q, k, v, o, gates */
#define JOBS 32      /* jobs whose events are kept until wait */
#define STAGING_HALF (4u << 20)
#define CORE_ITEMS 32
/* Local memory of a work-group: below FULL kernels take half of it (common.cl). */
#define LOCAL_LEAST (32u << 10)
#define LOCAL_FULL (40u << 10)
#define OUTPUT_SCORES 32 /* of a router in the output projection's launch (output.cl) */
#define HEAD_ROWS 32     /* rows of logits per launch */
#define ATTEND_BYTES \
    (32u << 20) /* partial sums of attention per launch, unless one row needs more */

/* Properties of an OpenCL device before it is opened. */
struct cl_target {
    cl_platform_id platform;
    cl_device_id id;
    struct device_info info;
    char platform_name[96], platform_version[96];
    bool has_dot8, has_fp16, has_spir_local;
    int engine;           /* ENGINE of gemm.cl; 0: none that is known */
    bool coherent;        /* sees what the host writes meanwhile, and the host what it writes */
    cl_uint align;        /* bytes */
    cl_ulong group_items; /* work-items of a group at most */
    cl_ulong local_bytes; /* local memory of a group at most */
};

/* Fills targets (usable or not, real GPUs before CPU-type devices); returns how many; why gets a
 * line if something is missing (or, with some devices found, if a driver was excluded). */
int platform_list(struct cl_target *out, int max, char *why, size_t why_size);
/* "opencl:1", "opencl", "1" or NULL (first usable); ERR_DEVICE with the reason of the list,
 * ERR_USAGE if there is no such device. */
int platform_choose(struct cl_target *out, const char *selector, char *why, size_t why_size,
                    struct error *e);
const char *opencl_word(cl_int code); /* "CL_OUT_OF_RESOURCES" */

#define KERNEL_ARGS 96

/* A kernel, and what each of its arguments is, so that a launch sets those alone that are others:
 * in a token's passes two of the matrices of an expert bank, not 48. */
struct kernel {
    cl_kernel k;
    cl_program program; /* and its name there, for others like it */
    const char *name;
    int n_args;
    uint64_t releases; /* opencl_releases() when arg was last looked at */
    struct kernel_arg {
        char kind; /* of launch_args; 0: not known */
        union {
            cl_mem m;
            cl_int i;
            cl_float f;
        } value;
    } arg[KERNEL_ARGS];
};

/* Kernels of one element type: [0] one token per tile, [1] TILE tokens. */
struct type_kernels {
    bool wanted, usable;             /* in the model; compiled */
    bool matmul_wrong, expert_wrong; /* found by the self-test */
    enum gemm_form form;             /* where there are many */
    struct token_shapes shapes;      /* of quantised types' kernels for one token; not where WIDE */
    cl_program program[2], quads;    /* quads: of those for one token that load four rows at once */
    struct kernel *matmul[2], *gate_up[2], *down[2];
    struct kernel *token_down, *token_gate_up,
        *token_output; /* NULL where WIDE, and of float types */
};

enum core_kernel {
    CORE_NORM,
    CORE_RMS,
    CORE_QUANTISE,
    CORE_PART_GATES,
    CORE_ROPE,
    CORE_ATTEND,
    CORE_MERGE,
    CORE_ROUTE,
    CORE_DENSE,
    CORE_GROUP,
    CORE_COMBINE,
    CORE_KV,
    CORE_EXPAND,
    CORE_SCALE,
    CORE_ADD,
    CORE_BIAS,
    CORE_GATHER,
    CORE_SCATTER,
    CORE_ACTIVATE,
    CORE_TOKEN_ATTEND, /* not where WIDE, from here on */
    CORE_TOKEN_ROUTE,
    CORE_COUNT
};

struct part { /* a matrix on the device */
    const struct matrix *m;
    cl_mem mem, bias;
    size_t done; /* bytes uploaded */
    bool shared; /* host memory used in place */
};

enum block_state { BLOCK_ABSENT, BLOCK_LOADING, BLOCK_RESIDENT };

/* Where the kernels find the rows of a layer and session (attention.cl). */
struct kv_place {
    cl_mem rows, pages;
    int first_page, chunks, page_step, layer_at, head_step, tokens;
};

#define KV_ARGS "iiiiii"
#define KV_INTS(p) \
    (p)->first_page, (p)->chunks, (p)->page_step, (p)->layer_at, (p)->head_step, (p)->tokens

/* Of a layer: the router (memory_routing), behind its experts the gate of the shared one; the
 * biases of its scores and of its choice, and its experts' factors; NULL where it has none. */
struct routing {
    cl_mem router, score_bias, choice_bias, expert_scale;
};

/* Norms of a dense part beside routed experts: before the router, the routed experts, behind them,
 * behind the dense part. */
enum apart_norm { APART_ROUTER, APART_ROUTED, APART_ROUTED_AFTER, APART_SHARED_AFTER, APART_NORMS };

struct block {
    enum block_state state;
    int n_parts, at;
    /* attention: q, k, v (m NULL: keys are the values), o; experts: gate (m NULL: the activation
     * has none), up, down */
    struct part part[PARTS];
    cl_mem norm_w, norm_b; /* attention norm; final norm for the head */
    /* of layers with norms after attention and experts */
    cl_mem after_w, after_b, expert_after_w, expert_after_b;
    cl_mem q_norm, k_norm;               /* attention blocks of layers with Q/K norms */
    cl_mem sinks;                        /* of layers that have them */
    cl_mem expert_norm_w, expert_norm_b; /* attention blocks, and what the layer's choice takes */
    cl_mem apart_w[APART_NORMS], apart_b[APART_NORMS]; /* of such layers */
    struct routing routing;
    /* KV cache of the layer, per session: device.kv_room entries; NULL where it is the CPU's */
    cl_mem *kv;
    size_t weight_bytes, kv_bytes;
};

struct swap_slot {      /* expert_swap.c */
    struct block block; /* its buffers, and the matrices stored in them */
    int layer, expert;  /* -1: nothing */
    uint64_t stamp;
    /* needed by the job being launched; prefetched and not used yet */
    bool wanted, guessed;
    cl_event begun, ready, used; /* first and last copy; the last kernel that reads it */
};

struct swap_item { /* a streamed expert of the job being launched */
    int expert, group, tile, end, entry;
};

struct expert_swap {
    struct swap_slot slot[DEVICE_STREAM];
    struct swap_item *items; /* n_experts; NULL: off */
    int n, next;             /* items of this job; index of the next one to copy */
    uint64_t clock;
};

struct rows_q { /* quantised rows: values, scales, sums */
    cl_mem q, d, s;
};

/* Layouts shared with routing.cl, float.cl and quant.cl. */
/* entries first .. first+count-1 of the expert at index `place` of its bank */
struct tile {
    cl_int first, count, place, unused;
};

struct entry { /* row of h, row of out */
    cl_int row, to;
};

struct job_record {
    cl_event first, last; /* the first kernel; a marker behind the last command */
    cl_event replayed;    /* then `first` is a marker */
    cl_event copy[4];
    int n_copies;
};

#define PINNED_READS 128
#define PINNED_MOST ((size_t)32 << 20) /* bytes */

struct pinned_read {
    void *to;
    const void *from;
    size_t bytes;
};

struct pinned { /* rows.c */
    cl_mem mem;
    char *map; /* NULL: there is none */
    size_t size, used;
    struct pinned_read read[PINNED_READS]; /* n_reads, to be copied when they are there */
    int n_reads;
};

/* Memory of the host that a job's rows may be in. */
struct host_piece {
    const char *at;
    size_t bytes;
    cl_mem mem; /* the same memory */
    void
        *map; /* it is the host's, as far as the driver knows; NULL: the device's, or nobody asks */
};

/* Rows of the CPU used in place (rows.c): its pages, and which of them each session has. */
struct state_rows {
    struct device *cpu; /* NULL: the device has rows of its own */
    struct host_piece piece;
    int tokens; /* of a page */
    bool bound; /* the newest job uses them */
    struct ring_rows {
        struct host_piece piece; /* mem NULL: the session has none */
        bool bound;
    } * ring; /* n_rings, by session: of its layers with a window */
    int n_rings;
};

#define BOUND_ROWS 8

/* Instead of a buffer of the device, for the job that is being launched. */
struct bound_rows {
    cl_mem *slot, own; /* where the device has it, and what was there */
    cl_mem part;       /* NULL: the whole piece */
    struct host_piece *piece;
};

struct host_rows { /* rows.c */
    struct host_piece *piece;
    int n, room, n_bound;
    struct bound_rows bound[BOUND_ROWS];
};

enum blas_verdict { BLAS_UNKNOWN, BLAS_USED, BLAS_SLOWER, BLAS_WRONG, BLAS_MISSING };

struct blas { /* blas.h */
    bool use;
    enum blas_verdict verdict;
    double gain; /* own time / CLBlast's; 0: not measured in this run */
    cl_mem x, gate, up, tile;
};

#define JOINED_PARTS 3 /* gate, up, down */

struct joined_experts { /* joined_experts.c: of a layer */
    enum { JOINED_NOT, JOINED_YES, JOINED_FAILED } state;
    cl_mem matrix[JOINED_PARTS], bias[JOINED_PARTS];
    size_t step[JOINED_PARTS], bias_step[JOINED_PARTS]; /* bytes from expert to expert */
};

/* Every launch while a microbenchmark measures: device.trace. */
struct launch_record {
    const char *name;
    size_t items, group; /* work-items, those of a work-group */
    cl_event event;
};

struct launch_trace {
    struct launch_record *at; /* n of at most room */
    int n, room;
};

#define REPLAYS 8 /* recordings that are kept: of sessions by turns */

/* One token's layers, recorded (launch.c, replay_*; jobs_layers.c says what of). */
struct replay {
    struct command_buffers calls;
    bool usable;     /* the driver has them, and they are right */
    bool unfit;      /* what is being recorded cannot be */
    const char *why; /* in words */
    struct token_recording {
        struct recording launches;
        uint64_t key, used_at;
        bool busy;          /* replayed by a job that nobody waited for yet */
        cl_int position;    /* what its kernels read from `position` */
    } at[REPLAYS], *now;    /* now: what launches are recorded to; NULL: they are enqueued */
    cl_kernel *kernels;     /* of all recordings */
    uint64_t seen[REPLAYS]; /* keys of tokens that came, the newest at n_seen - 1 */
    uint64_t n_seen, clock, releases;
    int failures, unfits;
    cl_mem position;
};

struct device {
    struct device_base base;
    struct cl_target target;
    cl_context context;
    cl_command_queue queue, upload;
    bool linked; /* context and queues are the link's, too */
    bool wide, share, lost;
    bool small_local;                  /* kernels take half the local memory */
    bool dot8_function;                /* the kernels use cl_khr_integer_dot_product */
    unsigned acts;                     /* a bit for each enum activation of the model */
    bool biased;                       /* some of its experts have biases */
    int tile, gemm_tile;               /* TILE and GEMM_TILE, or what a test wants */
    struct token_shapes rule;          /* of one token's work-groups where none was measured */
    int row_items;                     /* of a group that computes a row (core.cl) */
    int route_items;                   /* of a group of the router (routing.cl) */
    int width, padded_experts, stride; /* stride: context rounded up to 16 (memory_kv_stride) */
    cl_program core_program;
    struct kernel *core[CORE_COUNT];
    bool core_usable, attention_usable;
    /* one token: the kernels that do what two or three others do (not where wide), and right */
    bool token_attend, token_route, token_down, token_gate_up, token_output;
    char verdict[400]; /* result of the self-test as text */
    char shapes[400];  /* of one token's work-groups, as text */
    struct type_kernels type[DTYPE_COUNT];
    struct block *attention, *experts, head;
    struct joined_experts *joined; /* of each layer */
    /* scratch, all for max_rows rows */
    cl_mem none, x, h, raw, q, gates, k, v, qr, heads_out, y, part, scores, arrivals, head_arrivals,
        gate_sums, gate_arrivals, chosen, chosen_weights, tiles, entries, mid, out, logits, kv_rows;
    cl_mem all_chosen, all_weights, rope_cos[DEVICE_ROPES], rope_sin[DEVICE_ROPES], second_cos,
        second_sin;
    struct rows_q hq, oq, mq;
    size_t part_bytes;
    bool *kv_open; /* kv_room: which sessions have a state */
    int kv_room;
    struct tile *tile_table; /* host copies of tiles and entries */
    struct entry *entry_table;
    int max_tiles;
    bool table_busy; /* a job in flight still reads the tables */
    /* expert outputs that wait() scatters */
    float *results, *scatter_to;
    int *scatter_at, scatter_n, scatter_rows;
    /* kv_rooms of kv_chunks: the pages of a layer with rows of its own, one after the other; then,
     * where the CPU's are used, each session's, in units of 16 bytes */
    cl_uint *page_table;
    cl_mem pages;
    int kv_chunks, kv_rooms;
    struct state_rows state;
    struct blas blas;
    struct expert_swap swap;
    struct replay replay;
    /* routing read back for the host */
    int *host_chosen, *host_row, *host_slot;
    struct expert_group *host_groups;
    /* maxima over all layers: of all query heads, of all key heads, of an expert's intermediate
     * size, of one chunk's part of an attention row */
    int most_heads, most_kv, most_ffn, most_part;
    int most_gated;    /* of all query heads of a layer with gated output */
    int most_arrivals; /* heads and key heads of a layer */
    int normed;        /* most rows per token that enter a layer's experts */
    /* upload */
    cl_mem staging;
    void *staging_map;
    cl_event staging_event[2];
    int staging_half;
    struct pinned pinned;
    struct host_rows host_rows;
    /* events */
    struct job_record job[JOBS];
    int n_jobs;
    struct job_record *current;
    struct device_stats stats;
    uint64_t launches;
    struct launch_trace *trace; /* NULL: nothing is measured */
};

/* errors: 0 or ERR_DEVICE with "OpenCL <device>: <what> failed: CL_..." */
int cl_check(struct device *d, cl_int code, const char *what, struct error *e);
/* Sends one line to config.log, if set. */
void log_line(struct device *d, const char *line);

/* kernel_set.c: which kernels the model's element types need, and which are usable */
/* call before building: the kernels' form on d->target, the types that the model of
 * d->base.config needs, how wide its rows are interleaved, maxima over its layers */
void kernel_set_shape(struct device *d);
int kernel_set_build(struct device *d, struct error *e);
/* "fours", "eights", "engine" */
const char *kernel_set_form_word(enum gemm_form form);
/* Whether a type's kernels for many tokens may have this form; builds them so. */
bool kernel_set_may(const struct device *d, enum dtype type, enum gemm_form form);
int kernel_set_form(struct device *d, enum dtype type, enum gemm_form form, struct error *e);
/* Tokens of a work-item there. */
int kernel_set_item_tokens(const struct device *d, enum gemm_form form);
void kernel_set_release(struct device *d);
/* Whether token_attend does a layer's attention over so many chunks of keys. */
bool kernel_set_token_attends(const struct device *d, const struct mixer_shape *s, int chunks);
/* Whether token_down does the down projections of experts with such a matrix. */
bool kernel_set_token_downs(const struct device *d, const struct matrix *m);
/* Whether token_gate_up does what is before them. */
bool kernel_set_token_gates(const struct device *d, const struct matrix *up);
/* Whether token_down norms the row behind them. */
bool kernel_set_token_norms(const struct device *d);
/* Whether token_output does a layer's output projection, the norm behind it and the choice of its
 * experts. */
bool kernel_set_token_outputs(const struct device *d, int layer);
/* compiler options of all programs */
void kernel_set_options(const struct device *d, char *out, size_t size);
bool kernel_set_supports(const struct device *d, enum block_kind kind, enum dtype type);
/* device_ops slots: supports for a block of such a layer; fuses for a layer in a layers job. */
bool kernel_set_runs(const struct device *d, const struct layer_shape *shape, enum block_kind kind,
                     enum dtype type);
bool kernel_set_attends(const struct mixer_shape *s); /* whatever its type */
/* Tokens of a tile of the type's matrix kernels, and rows of a work-group; many: of those for many
 * tokens. */
int kernel_set_tile(const struct device *d, enum dtype type, bool many);
size_t kernel_set_rows(const struct device *d, enum dtype type, bool many);
/* Work-items of a group of the type's matrix kernels; gate: of gate_up. */
struct group_shape {
    size_t x, y;
};
struct group_shape kernel_set_group(const struct device *d, enum dtype type, bool many, bool gate);
/* Work-items and rows of a group of a kernel for one token of a quantised type, not where WIDE. */
size_t kernel_set_token_items(const struct device *d, enum dtype type, enum token_kernel k);
size_t kernel_set_token_rows(const struct device *d, enum dtype type, enum token_kernel k);
/* The shapes by rule but for those of candidate i that the device can have. */
struct token_shapes kernel_set_candidate(const struct device *d, enum dtype type, int i);
/* Those of a mixture: of each kernel candidate chosen[k], -1: by rule. */
struct token_shapes kernel_set_mixed(const struct device *d, enum dtype type,
                                     const int chosen[TOKEN_KERNELS]);
/* Builds a type's kernels for one token with these shapes; those it had are in *before then, to be
 * exchanged by kernel_set_exchange and released by kernel_set_release_tokens. Failing changes
 * nothing. */
int kernel_set_shapes(struct device *d, enum dtype type, const struct token_shapes *s,
                      struct type_kernels *before, struct error *e);
bool kernel_set_has_shapes(const struct device *d, enum dtype type);
/* d->shapes: "q4_0 matmul 8x32x2x4 token_down 16x16x1x16; q8_0 by rule", and how many candidates
 * are still to be measured. */
void kernel_set_describe(struct device *d, int left);
void kernel_set_exchange(struct type_kernels *a, struct type_kernels *b);
void kernel_set_release_tokens(struct type_kernels *t);
bool kernel_set_fuses(const struct device *d, int layer);

/* program.c: kernel_file "core", "float", "quant" or "token": those of one token; what: name in the
 * progress line; table: OpenCL text of format tables, "" for none */
int program_build(struct device *d, const char *kernel_file, const char *what, const char *options,
                  const char *table, cl_program *out, struct error *e);
int program_kernel(struct device *d, cl_program p, const char *name, struct kernel **out,
                   struct error *e);
void program_kernel_free(struct kernel *k);
bool program_has_dot8(const struct device *d);
bool program_is_pocl(const struct device *d);
uint64_t program_fingerprint(const struct cl_target *t); /* hash of driver, device and all
                                                          * sources */

/* memory.c, memory_blocks.c */
/* Whether our kernels can run an expert: gate and up of one type, quantised if and only if down
 * is. */
bool memory_expert_alike(const struct expert_weights *x);
/* device_ops.together: blocks other than experts run one matrix at a time */
bool memory_together(const struct device *d, struct block_id id);
/* the same, with ERR_DEVICE if not */
int memory_expert_check(struct device *d, const struct expert_weights *x, struct error *e);
int memory_buffer(struct device *d, size_t bytes, cl_mem *out, const char *what, struct error *e);
/* blocking, small */
int memory_upload(struct device *d, cl_mem mem, const void *data, size_t bytes, struct error *e);
void memory_release(cl_mem *mem);
/* *out all NULL before; a layer without a router: all NULL */
int memory_routing(struct device *d, int layer, struct routing *out, struct error *e);
void memory_routing_release(struct routing *r);
/* bytes of the buffers for one streamed expert: of matrix k, of its bias */
void memory_swap_bytes(const struct device *d, uint64_t matrix[3], uint64_t bias[3]);
int memory_kv_values(const struct device *d, int layer); /* values of one token's K, or V */
/* Capacity in tokens of a layer's buffers; a token is stored at its position modulo that. */
int memory_kv_stride(const struct device *d, int layer);
/* The layer's rows of a session in a buffer of their own. */
struct kv_place memory_kv_place(const struct device *d, int layer, cl_mem rows);
/* Whether the rows of a layer are the CPU's, in place. */
bool memory_kv_in_place(const struct device *d);
bool memory_kv_ring(const struct device *d, int layer); /* only the newest rows are kept */
int memory_open(struct device *d, struct error *e);     /* scratch and staging */
/* Adds to out the memory that memory_open, memory_put of these blocks and expert_swap_set would
 * take; d need not be open, only configured. */
void memory_footprint(struct device *d, const struct block_id *blocks, int n_blocks,
                      struct device_stats *out);
void memory_close(struct device *d);
/* Allocates one session's KV of an attention block, if it is not the CPU's. */
int memory_kv_take(struct device *d, struct block *b, int session, struct error *e);

/* What memory_put allocates for a block, shown by --fit: the router is padded here; and what of it
 * the host has in place where memory is shared. */
size_t memory_block_bytes(const struct device *d, struct block_id id);
size_t memory_shared_bytes(const struct device *d, struct block_id id);
void memory_block_release(struct device *d, struct block *b);
struct block *memory_block(struct device *d, struct block_id id);
int memory_state_open(struct device *d, int session, struct error *e);
void memory_state_close(struct device *d, int session);
int memory_put(struct device *d, struct block_id id, size_t max_bytes, struct error *e);
void memory_drop(struct device *d, struct block_id id);

/* expert_swap.c */
int expert_swap_set(struct device *d, bool on, struct error *e);
/* after a failure: marks the slots as empty; waits for copies */
void expert_swap_forget(struct device *d);
/* d->swap.items (n of them) are a layer's streamed experts: moves those already in slots to the
 * front and starts copying. */
int expert_swap_begin(struct device *d, int layer, struct error *e);
/* Then for each item: returns its block, which kernels enqueued from now on may read; call done
 * after enqueuing them. */
struct block *expert_swap_take(struct device *d, int layer, int expert, struct error *e);
int expert_swap_done(struct device *d, int layer, int expert, struct error *e);
void expert_swap_prefetch(struct device *d, int layer, const int *experts, int n);

/* joined_experts.c: joins the layer's experts if they are not; NULL: they stay apart. leave:
 * expert `leaving` is about to be released. close: all of them are. */
const struct joined_experts *joined_experts(struct device *d, int layer);
/* Whether the layer's shared expert is like its routed ones: one of a bank, behind them. */
bool joined_shared(const struct device *d, int layer);
void joined_experts_leave(struct device *d, int layer, int leaving);
void joined_experts_close(struct device *d, int layer);

/* launch.c */
int job_begin(struct device *d, struct error *e);
int job_end(struct device *d, struct error *e); /* flushes */
/* The device may begin with what was enqueued: some drivers hand nothing over before. */
int job_flush(struct device *d, struct error *e);
/* whether the newest job, and so each, has ended; never waits */
bool job_done(const struct device *d);
/* waits for everything and adds up the times */
int job_harvest(struct device *d, struct error *e);
void job_forget(struct device *d);
/* format: m cl_mem, i int, f float; then the values. Those that the kernel has are not set again.
 */
int launch_args(struct device *d, struct kernel *k, int first, struct error *e, const char *format,
                ...);
int launch(struct device *d, const struct kernel *k, const char *name, int dims,
           const size_t *global, const size_t *local, struct error *e);
/* Launches a kernel of core.cl or of those behind it: x is rounded up to whole groups of `local`
 * work-items, CORE_ITEMS in kernels that need no groups. */
int launch_core(struct device *d, enum core_kernel k, const char *name, size_t x, size_t y,
                size_t z, size_t local, struct error *e);
/* Recordings of tokens (struct replay). open: finds the driver's entry points, usable where there
 * are; forget: of buffers that are about to go, or after a failure. */
int recordings_open(struct device *d, struct error *e);
void recordings_close(struct device *d);
void recordings_forget(struct device *d);
void recordings_stop(struct device *d, const char *why); /* for good */
/* Whether tokens are replayed, in words. */
const char *recordings_word(const struct device *d);
/* Of a token whose launches and arguments are those that key stands for, but for its position.
 * find: NULL: it is not recorded. worth: it came before. begin: until end its launches are recorded
 * instead of enqueued (nothing else may be done); NULL: that cannot be. end: rc: of what was
 * launched; NULL: it failed. What fails is logged; e is of no use behind it. */
struct token_recording *recordings_find(struct device *d, uint64_t key);
bool recordings_worth(struct device *d, uint64_t key);
struct token_recording *recordings_begin(struct device *d, uint64_t key, struct error *e);
struct token_recording *recordings_end(struct device *d, int rc, struct error *e);
/* What is being recorded needs more than launches, or others for every token. */
int recordings_unfit(struct device *d, struct error *e);
/* In a job. 1: it is enqueued; 0: it is not, and could not be. */
int recordings_run(struct device *d, struct token_recording *r, int position, struct error *e);
/* Of a launch that has ended, by its event; 0: the driver does not say. */
double launch_seconds(cl_event ev);
/* records an event of a kernel launched by a library */
void launch_keep(struct device *d, cl_event ev);
int launch_write(struct device *d, cl_mem mem, size_t offset, const void *data, size_t bytes,
                 struct error *e);
/* copies bytes of `from`, from `at` on, to the first of `to`, on the device */
int launch_copy(struct device *d, cl_mem from, size_t at, cl_mem to, size_t bytes, struct error *e);
int launch_read(struct device *d, cl_mem mem, size_t offset, void *data, size_t bytes,
                struct error *e);
/* A job's input, into one of the device's buffers or in place. */
int launch_input(struct device *d, cl_mem *slot, const void *data, size_t bytes, struct error *e);

/* rows.c: see device_ops.host_rows. sees: whether that works with this driver. */
bool rows_sees(struct device *d);
void rows_offer(struct device *d, void *at, size_t bytes);
void rows_close(struct device *d);
/* device_ops.state_in_place. */
bool rows_state_in_place(struct device *d, struct device *cpu);
/* The CPU may have more pages, and n sessions may be open from now on. */
int rows_state_grown(struct device *d, int n, struct error *e);
/* A session's rings. */
int rows_ring_open(struct device *d, int session, struct error *e);
void rows_ring_close(struct device *d, int session);
/* Makes of memory_kv_place's place that of a session's rows among the CPU's, of which those from
 * pos to end - 1 will be written. */
int rows_state_place(struct device *d, int layer, int session, int pos, int end,
                     struct kv_place *out, struct error *e);
/* Likewise of a layer with a ring: chunk behind chunk, as in a buffer of the device's own. */
int rows_ring_place(struct device *d, int layer, int session, int pos, int end,
                    struct kv_place *out, struct error *e);
/* For the job that is being launched: *slot, one of the device's buffers, is the host's memory
 * itself. 1: it is; 0: it stays what it is, and data have to be copied. _at: it starts with the
 * piece that the host offered, and data are *offset bytes behind that. */
int rows_bind(struct device *d, cl_mem *slot, const void *data, size_t bytes);
int rows_bind_at(struct device *d, cl_mem *slot, const void *data, size_t bytes, size_t *offset);
/* The memory that a buffer is instead; NULL: it is the device's own. */
const void *rows_bound(const struct device *d, const cl_mem *slot);
/* Some are parts of a piece, which no other job will have. */
bool rows_parts(const struct device *d);
cl_int rows_end(struct device *d);         /* behind the last command that uses them */
void rows_unbind(struct device *d, int n); /* all but the first n, of which no command was enqueued
                                            * or that are of a job that failed */
/* write: from where to write `data`, which is copied there if it is worth it; read: into
 * what to read it. done: all jobs are; right: they did not fail, so what was read is copied to its
 * place. */
const void *pinned_write(struct device *d, const void *data, size_t bytes);
void *pinned_read(struct device *d, void *data, size_t bytes);
void pinned_done(struct device *d, bool right);

/* selftest.c: fills core_usable, attention_usable and the *_wrong of the types; key: driver,
 * programs and model */
int selftest(struct device *d, uint64_t key, struct error *e);

/* device_report.c: synthetic weights for the report, the configuration to open a device with them,
 * and the figures of it then. NULL: out of memory. */
struct report_model;
struct report_model *report_model_new(void);
void report_model_free(struct report_model *m);
struct device_config report_model_config(const struct report_model *m);
void device_report_fill(struct device *d, const struct report_model *m, struct device_report *out);

/* jobs/ */
struct output {
    const struct part *part;
    cl_mem y;
};
/* y = W x + bias for up to three matrices of one type and one input. add: y += . _own: always with
 * our kernels. */
int jobs_multiply_own(struct device *d, cl_mem x, const struct rows_q *xq, int rows,
                      const struct output *out, int n, bool add, struct error *e);
int jobs_multiply(struct device *d, cl_mem x, const struct rows_q *xq, int rows,
                  const struct output *out, int n, bool add, struct error *e);
/* What the experts of rows gave, in out, to be added: `used` of a row, their weights from place
 * `base` of all_weights on, `stride` of a row, each times scale. used 0: nothing. */
struct expert_sum {
    int used, base, stride;
    float scale;
};
/* Rows of x normed to h, which may be x, and to hq; without weights they are copied. sum: added to
 * x first. */
struct norm_rows {
    cl_mem x, w, b, h;
    int rows;
    struct expert_sum sum;
};
/* Where the kernels find the experts of a launch. */
struct expert_bank {
    struct block *at[BANK]; /* n of them; where joined the first alone, for its shapes */
    int n;
    const struct joined_experts *joined; /* not NULL: all of a layer, by their numbers */
};
/* One token's experts' outputs to x, from mq, by the tiles and weights of the router: in one launch
 * with the norm behind them, of rows like next; next NULL: none. */
int jobs_token_down(struct device *d, const struct expert_bank *bank, const struct expert_sum *sum,
                    const struct norms_shape *s, const struct norm_rows *next, struct error *e);
/* gate_up alone, and down, of what jobs_expert_tiles does. */
int jobs_gate_up(struct device *d, const struct ffn_shape *s, const struct expert_bank *bank,
                 int first, int end, int many, struct error *e);
/* One token's experts, tiles 0 .. used-1, to mq, by token_gate_up. */
int jobs_token_gate_up(struct device *d, const struct ffn_shape *s, const struct expert_bank *bank,
                       int used, struct error *e);
int jobs_down(struct device *d, const struct expert_bank *bank, int first, int end, int many,
              struct error *e);
/* Tiles first .. end-1 of the experts in bank, already in d->tiles and d->entries; from h to out.
 */
int jobs_expert_tiles(struct device *d, const struct ffn_shape *s, const struct expert_bank *bank,
                      int first, int end, int many, struct error *e);
/* Rows of `from` through a layer's router: choices and weights to place `base` of all_chosen and
 * all_weights; tiles: the tiles and entries of a single row, too. */
int jobs_route(struct device *d, int layer, const struct routing *r, cl_mem from, int rows,
               int base, bool tiles, struct error *e);
/* Arguments of the norm's kernel: a work-group of row_items a row. */
int jobs_norm_args(struct device *d, const struct norms_shape *s, const struct norm_rows *n,
                   struct error *e);
/* Rows that are normed in place, each of n values; w NULL: without weights. */
struct rms_rows {
    cl_mem x, w;
    int n, rows;
};
/* a, and b if it is not NULL, in one launch; weights of both or of neither. */
int jobs_rms(struct device *d, const struct rms_rows *a, const struct rms_rows *b, float eps,
             struct error *e);
/* Both for one row in one launch, d->token_route. */
int jobs_token_route(struct device *d, int layer, const struct norm_rows *n,
                     const struct routing *r, int base, bool tiles, struct error *e);
/* x += the layer's output projection of row 0 of heads_out; n and the choice as in
 * jobs_token_route; the only expert of a dense layer is chosen as jobs_choose_dense does
 * (kernel_set_token_outputs). first: the row group of its first work-group, 0 but in tests. */
int jobs_token_output(struct device *d, int layer, const struct part *o, const struct norm_rows *n,
                      const struct routing *r, int base, bool tiles, int first, struct error *e);
/* Rotation, cache, attention and merge for one token at position `token`, row `row` of q, k and v,
 * to that row of heads_out, in one launch (kernel_set_token_attends). Where it is recorded the
 * position is what the buffer says when it is replayed. */
struct token_place {
    const struct kv_place *kv;
    cl_mem sinks, gates;
    int token, row, rope; /* rope: which tables, but second_rope's */
};
int jobs_token_attend(struct device *d, const struct mixer_shape *m, const struct token_place *t,
                      struct error *e);
/* Arguments of the merge of an attention's chunks. */
int jobs_merge_flags(const struct mixer_shape *s);
/* Work-items a row of it. */
size_t jobs_merge_items(const struct device *d, const struct mixer_shape *s);
/* How far the elements of a rotated pair stand apart (attention.cl, rope). */
int jobs_rope_apart(const struct mixer_shape *s);
int jobs_attention(struct device *d, const struct attention_job *j, struct error *e);
int jobs_experts(struct device *d, const struct experts_job *j, struct error *e);
int jobs_head(struct device *d, const struct head_job *j, struct error *e);
int jobs_layers(struct device *d, const struct layers_job *j, struct error *e);
int jobs_kv_rows(struct device *d, const struct kv_move *m, struct error *e);

#endif
