/* Internals of the engine, for the files of engine/run only. Thread: the engine's, except cancel
 * and hold. */
#ifndef ENGINE_RUN_INTERNAL_H
#define ENGINE_RUN_INTERNAL_H

#include "engine/base/wake.h"
#include "engine/device/expert_edits.h"
#include "engine/text/chat_template.h"
#include "engine/text/grammar/matcher.h"
#include "engine/text/grammar/vocabulary.h"
#include "engine/text/tokenizer.h"
#include "engine/placement/bandwidth.h"
#include "engine/placement/cost_model.h"
#include "engine/placement/planner.h"
#include "engine/placement/residency.h"
#include "engine/run/state/checkpoints.h"
#include "engine/run/pass/shared_resources.h"
#include "engine/run/config.h"
#include "engine/run/draft/drafter.h"
#include "engine/run/draft/sureness.h"
#include "engine/run/draft/utility.h"
#include "engine/run/pass/apart.h"
#include "engine/run/pass/forward.h"
#include "engine/run/state/kv.h"
#include "engine/run/pass/rope.h"
#include "engine/run/sampling/sampler.h"
#include "engine/run/pass/mixed_pass.h"
#include "engine/run/state/prompt_cache.h"
#include "engine/run/report/telemetry.h"
#include "engine/run/report/trace.h"

#include <stdatomic.h>

#define SCORE_ROWS 16   /* rows of a prompt whose logits are computed at a time */
#define PLAN_WINDOW 512 /* newest token times kept per plan, for its median */

/* Statistics of one plan: the samples behind the published figures. */
struct plan_record {
    double token_s[PLAN_WINDOW];
    uint64_t busy_ns[DEVICE_MAX];
};

/* Output text of an answer. A possible start of a stop string is held back until it is decided. */
struct stop_matcher {
    const struct turn *turn;
    char *held;
    size_t n, room;
    int met; /* the last string matched completely */
};

/* The part of a prompt that is read from disk (disk_sessions.c). */
struct disk_run {
    int end;                 /* last position to read to; 0: nothing, or no more */
    int at;                  /* tokens handled so far */
    char parent[DIGEST_HEX]; /* the piece that ends there */
    char last[DIGEST_HEX];
};

/* The current turn of a session: its prompt is computed in chunks, then every pass samples and
 * computes one token. */
struct turn_run {
    const struct turn *turn; /* the caller's; NULL: none is under way */
    int (*on_event)(void *ctx, struct event *ev);
    void *event_ctx;
    struct stop_matcher out;
    struct detokenizer text;
    struct answer_parts parts;
    int end;                 /* length of the session when the pending tokens are computed */
    int kept;                /* tokens of the session that are a prefix of the prompt */
    float *scores;           /* (SCORE_ROWS, n_vocab) if the prompt's tokens are scored, or NULL */
    struct pooling *pooling; /* if an embedding is asked for, or NULL */
    bool answering;          /* the prompt is computed */
    bool beside;             /* rows of it are in the pass beside others (engine.beside) */
    bool line_ends;          /* in the newest token */
    uint64_t served; /* rows computed, for fairness; starts at the least of the running turns */
    /* A session further on with a prompt that starts with the same whole pages: they are shared
     * from it once computed (prefix_sharing.c). NULL: none, or they are here. */
    struct session *leader;
    int lead; /* common prefix in tokens, whole pages */
    struct disk_run stored;
    /* times: start of the turn, its first token, start of computing the newest one */
    uint64_t start, first, begin;
    uint64_t share_ns; /* in a pass that made several tokens, time per token; 0: it made one */
    uint64_t paused_ns, paused_before; /* by pacing: in all, before the first token */
    struct turn_done_event done;
    int rc; /* how it ended */
    struct error error;
};

/* The drafting state of a session (speculate.c). */
struct speculation {
    /* NULL: not enabled */
    struct drafter *drafters[DRAFTER_COUNT];
    const struct drafter_ops *ops[DRAFTER_COUNT];
    /* the newest proposal: its drafter (DRAFTER_COUNT: none), n tokens to follow the pending one,
     * and the probability of each together with all before it */
    enum drafter_kind from;
    int n, ids[DRAFT_MOST];
    float p[DRAFT_MOST];
    /* in the current pass: how many are verified, how many were sampled so far, the row of the pass
     * that precedes them, the logits of that row and the ones after it */
    int rows, taken, row;
    float *logits;
    bool drawn;  /* the token sampled last is the next drafted one */
    bool missed; /* nothing was verified, and the first of the proposal was sampled */
    /* hypothetical drafts that would have paid but were not made: n tokens, all right so far, and
     * the verifying cost of passes without drafts */
    struct watched {
        int n, right, ids[DRAFT_MOST];
        double cost;
    } watched;
    /* while the costly drafter is not expected to pay: passes since it was last tried for one
     * token, and the number of passes until the next try */
    int unasked, wait;
};

/* What the newest decode pass verified and produced, until its time is known. */
struct speculated {
    int answers, rows, tokens;
    double experts;     /* touched per layer; 0: no routed experts */
    uint64_t paused_ns; /* by pacing, before its tokens were sampled */
};

/* The lossy settings of an engine (session.c, lossy/). */
struct lossy {
    int used, defer;
    float least;
    enum kv_type k, v;
};

/* The reason in speculation_figures.why: one that changes from pass to pass is reported only now
 * and then. */
enum draft_reason { REASON_NONE, REASON_EARLY, REASON_LASTS, REASON_SILENCE, REASON_COST };

/* A token sequence and its private state: its rows in the devices' caches, its sampler, its newest
 * logits, the current turn. Sessions share the engine's model, devices and placement. */
struct session {
    struct engine *engine;
    int number; /* the same on every device */
    /* (context) ids; the first n_tokens are computed: their rows lie in the KV cache */
    int *tokens, n_tokens;
    /* tokens[n_tokens] was generated and shown, but not computed: it ended an answer */
    bool token_waits;
    /* number of tokens before the first one computed with other lossy settings than at open;
     * INT_MAX: all */
    int as_opened;
    /* positions whose routing was counted, so that a recomputation counts nothing twice */
    int counted;
    enum rope_variant variant;
    /* adapter strengths, of the computed tokens and of those to come */
    float strengths[LORA_ADAPTERS];
    struct expert_edits *edits;      /* likewise, of the routing; a reference, NULL: none */
    struct checkpoints *checkpoints; /* NULL: every layer keeps all rows */
    /* (context, n_layers, used): experts chosen at each position */
    uint16_t *routed;
    struct sampler sampler;
    /* of the newest grammar of a turn, NULL: none yet; its state in the answer */
    struct matcher *matcher;
    int cursor;
    float *logits; /* (1, n_vocab) of the newest token */
    /* with routing_hooks.logprobs: the logits by which a tap judges the token at ahead_at; owned */
    float *ahead;
    int ahead_at;
    struct speculation spec;
    /* For the MTP block: the hidden states joined with its tokens from position states_at on, (…,
     * hparams_state_values); owned by the drafter (mtp.c) */
    const float *states;
    int states_at;
    /* something may not be on disk yet; where its newest messages start */
    struct {
        bool due;
        int marks[PROMPT_MARKS], n_marks;
    } stored;

    struct turn_run run;
    bool turn_cancelled; /* by the return value of on_event */
    /* the only fields that other threads access: engine_session_cancel, engine_session_hold */
    atomic_int cancel;
    atomic_bool held;
};

static inline bool turn_running(const struct session *s)
{
    return s->run.turn != NULL;
}

/* One session's part of a pass: `rows` tokens from its n_tokens on. logits: NULL, or the output for
 * the last row; all_logits (in a pass of one session): for every row. decode: a token of the answer
 * (counted as such). drafted: that many rows at the end are drafts, which belong to the session
 * only once sampled; their logits and those of the row before are in speculation.logits. */
struct pass_part {
    struct session *session;
    int rows, drafted;
    float *logits;
    bool all_logits, decode;
};

/* The buffers in which a pass is assembled: n_sessions of each. */
struct pass {
    struct pass_part *parts;
    int n; /* parts of the pass under way */
    struct span *spans;
    const int **ids;
    const float **states; /* see session.states */
    int *wanted;          /* rows whose logits are needed: as many as logits has */
    int *ends;            /* session_extend_all: where each ends */
    /* (n_logits, n_vocab), with several sessions or drafts a row for each */
    float *logits;
    int n_logits;
};

/* Rows of one phase that its plan's device computes while passes of the other go on (scheduler.c).
 * What came of it: telemetry.at_once. */
struct beside {
    struct apart apart;
    struct pass pass;
    enum plan_phase phase; /* of its rows */
    int room;              /* sessions that its buffers are for */
    int n;                 /* parts of the pass under way; 0: none */
    int chunk;             /* rows of prompts in the newest one */
    double row_ns;         /* of one of these; 0: unknown */
    uint64_t start;        /* ns */
    uint64_t token_ns;     /* of a pass of tokens that had the thread to itself; 0: unknown */
    /* Called between the layers of a pass, if set: the scheduler begins the next tokens of answers
     * that the device computes. True: what it did may have voided rows of the pass, which must end
     * and be computed again. */
    bool (*between_layers)(struct engine *g);
};

/* See memory_pressure.c. */
struct memory_pressure {
    uint64_t looked_ns;
    uint64_t given;                  /* bytes of slots that may be allocated again */
    uint64_t stalled_us;             /* previous value of memory_stalled */
    const struct session *evaluated; /* its rows are kept; NULL: none */
    bool told;                       /* the current shortage was reported */
};

/* The buffers of routing_hooks (routing/tap.c). */
struct routing_tap {
    struct imposed_routing imposed; /* of the pass */
    uint16_t *experts;              /* (n_layers, most rows, used); NULL: nothing is imposed */
    float *weights, *scores;        /* likewise; (n_layers, most rows, n_experts) or NULL */
    float *logits, *logprobs;       /* (SCORE_ROWS, n_vocab), (most rows); NULL: not asked for */
    int failed;                     /* what rows() returned, for the end of the pass */
    struct error error;
};

struct engine {
    struct engine_config config; /* strings are copies */
    struct engine_info info;
    struct model *model;
    struct adapters *adapters;       /* NULL: none */
    struct control_vectors *control; /* likewise */
    struct expert_edits *edits;      /* of new sessions; NULL: none */
    struct state_config state;       /* of every session */
    struct tokenizer *tokenizer;
    struct grammar_vocabulary *vocabulary; /* made with the first grammar; NULL: not yet */
    struct chat_template *chat;
    struct device_slot slots[DEVICE_MAX];
    struct device *devices[DEVICE_MAX];
    int n_devices;
    /* which other back ends were probed: 1: real ones, 2: also CPUs posing as devices */
    int devices_sought;
    /* the reason for having no device was just reported: planners do not repeat it */
    bool why_told;
    struct rope rope;
    struct forward forward;
    struct session *session;   /* the first one: the chat's */
    struct session **sessions; /* n_sessions by number; NULL: free */
    int n_sessions;
    struct pass pass;
    struct beside beside;
    /* drafting is on; which drafters are opened, which are enabled (engine_drafting_set) */
    bool drafts, drafters[DRAFTER_COUNT], heard[DRAFTER_COUNT];
    int most_drafted;                       /* most draft tokens that devices have room for */
    struct engine *draft_model, *mtp;       /* NULL: none (drafter.h, enum drafter_needs) */
    struct medusa_heads *medusa;            /* likewise */
    struct shared_resources *own_resources; /* if private; NULL: the configuration's, or none */
    /* for the pass being assembled, if drafting costs time: drafting, and reading the context */
    double drafting_ns, reading_ns;
    struct speculated speculated;
    enum draft_reason reason;
    int silent_passes;  /* since a drafter last proposed something */
    int draft_rows;     /* most drafted rows of a pass */
    size_t draft_bytes; /* of their logits */
    bool has_floats;    /* has float weight matrices; set where drafting is on */
    struct utility utility;
    struct scheduler scheduler;
    int n_running; /* turns */
    /* engine_experts_used_set: the setting in effect, 0: all; the file's value for each layer
     * (NULL: not read yet) */
    int experts_used, *used_trained;
    struct lossy opened;   /* the settings at open */
    struct trace trace;    /* by engine_trace_start */
    struct trace timeline; /* of one token, for the telemetry */
    bool timeline_wanted;
    uint64_t timeline_ns; /* when the newest one was taken */

    struct {
        struct prompt_cache *cache; /* NULL: no cache on disk */
        bool stopped;               /* the key does not describe the current settings any more */
        struct segment_shape shape;
        char key[DIGEST_HEX];
    } stored;

    bool uncounted; /* engine_counting_set */
    struct memory_pressure pressure;

    /* placement */
    struct kv kv;
    /* the current placement of tokens; changes block by block. That of prompts: place_of_phase */
    struct plan *in_force;
    enum plan_phase phase; /* of the newest pass */
    struct residency *residency;
    struct bandwidth *bandwidth, own_bandwidth; /* bandwidth: the private or the shared one */
    struct cost_model *cost_model;
    /* of all passes since the start, and the part of it that auto's stored verdict counts */
    uint64_t computed_ns, computed_kept_ns;
    bool auto_prompts; /* auto has given the prompts a plan of their own */
    int demoted;       /* phases, a bit each, whose plan a lost device was taken from */
    bool void_told;    /* why a stored verdict is void was said */
    /* of the requested plans; planner NULL: a plan made elsewhere, or the tokens' */
    struct planner_spec spec[PLAN_PHASES];
    /* saved while counting is off (engine_counting_set) */
    struct planner_spec spec_before[PLAN_PHASES];
    /* number of generated tokens at which a re-planning strategy runs again */
    uint64_t replan_at;
    /* rows computed of each phase; and at how many of them balanced decides again, by what was
     * learnt until then */
    uint64_t computed_rows[PLAN_PHASES], rebalance_at[PLAN_PHASES];
    int costs_sought; /* devices up to here were looked up among the costs of earlier runs */
    /* a turn has ended since the devices last measured their kernels */
    bool tune_due;
    double *usage, *recent; /* n_layers * n_experts, for planners */
    double *profile;        /* counts used instead of the session's, or NULL */
    /* pending until the safe point, at most one of the two for a phase */
    struct plan *wanted_plan[PLAN_PHASES];
    char *wanted_spec[PLAN_PHASES]; /* PLANNER_SAME: the prompts' plan is that of the tokens */
    bool announced;                 /* PLAN was sent for the plan in effect */
    /* devices being opened by a thread; NULL: none */
    struct devices_async *devices_async;
    struct planner_step *script;
    int n_script, script_at;

    /* the turn */
    int (*on_event)(void *ctx, struct event *ev);
    void *event_ctx;
    /* inside a turn or an evaluation: changes wait for the safe point */
    bool busy;
    double pace;
    uint64_t pace_due_ns;

    struct wake cancel_wake; /* some session was cancelled */
    void (*tick)(void *ctx);
    void *tick_ctx;
    uint64_t last_tick_ns, pass_ns; /* pass_ns: when the newest pass began */
    void (*observer)(void *ctx, const struct routing *r);
    void *observer_ctx;
    void (*pass_observer)(void *ctx, const struct routing *r);
    void *pass_observer_ctx;

    /* of engine_observe_stream */
    bool matrices_observed; /* engine_observe_matrices */
    void (*stream_observer)(void *ctx, int layer, const float *x, int rows);
    void *stream_observer_ctx;
    struct pass_tap stream_tap;

    struct routing_tap routing;

    struct telemetry t;
    struct plan_record *plans; /* TELEMETRY_PLANS */
    /* indices of the phases' plans, and of the one being charged; -1: none */
    int plan_at[PLAN_PHASES], charged;
    struct device_stats last_stats[DEVICE_MAX];
    uint64_t metrics_ns;                   /* when medians were last computed */
    struct expert_cache_stats disk_before; /* and the disk statistics at that time */
    uint64_t token_weight_bytes;
};

/* notice.c */
/* Logs a line and sends it to on_event or, if not taken there, to engine_config.log. */
void engine_notice(struct engine *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* to on_event; frees what was not taken; records a cancel */
int engine_emit(struct engine *g, struct event *ev);
/* engine_config.stop returned true */
bool engine_given_up(const struct engine *g);
/* to the turn's on_event; frees what was not taken; records a cancel */
int session_emit(struct session *s, struct event *ev);
/* Frees the logits of passes with several rows; the devices are still open. */
void pass_logits_free(struct engine *g);
/* Frees the rest of a pass's buffers. */
void pass_free(struct pass *p);
/* likewise: sends the log probabilities of the likeliest tokens by these logits, and of id, the
 * token there */
void session_logprobs(struct session *s, const float *logits, int id);
bool session_cancelled(struct session *s);

/* session.c */
/* without drafters (speculate_open) */
int session_new(struct session **out, struct engine *g, struct error *e);
void session_free(struct session *s);
/* One pass of the first n parts of g->pass, under the plan of that phase; n_tokens of every session
 * grows by its rows. ERR_DEVICE with *again: n_tokens is what is left of each; compute what is
 * missing again. */
int session_pass(struct engine *g, int n, enum plan_phase phase, bool *again, struct error *e);
/* Allocates what a pass beside others needs, with as many sessions as there are. ERR_MEMORY. */
int session_beside_room(struct engine *g, struct error *e);
/* Begins it, with the first n parts of g->beside.pass, rows of that phase, on the device that
 * apart_device named. What fails is told by its end. */
void session_beside_begin(struct engine *g, int n, enum plan_phase phase, int device);
/* Exchanges the engine's pass and its rows with those beside it: between two calls the latter's are
 * assembled, or its results taken. */
void session_beside_swap(struct engine *g);
/* The pass is over: rc is apart_step's, or ERR_CANCELLED. As session_pass. */
int session_beside_end(struct engine *g, int rc, bool *again, struct error *e);
/* Appends ids after the session's computed tokens, to be computed by passes; n_tokens shrinks where
 * the rotary table changes with the length, or where recurrent state must continue from an earlier
 * position. Returns the session's new length. */
int session_append(struct session *s, const int *ids, int n, struct error *e);
/* one token for each, in one pass */
int session_extend_all(struct session *const *s, int n, const int *ids, struct error *e);
/* Appends and computes; see engine_eval. */
int session_extend(struct session *s, const int *ids, int n, int chunk, float *logits,
                   bool all_logits, struct error *e);
/* the lossy settings in effect */
struct lossy lossy_now(const struct engine *g);
bool lossy_as_opened(const struct engine *g);
/* Call after a change, outside a turn: if the settings are again as at open, drops all rows
 * computed with others. */
void lossy_changed(struct engine *g);

int session_hooks_layer(void *ctx, int layer); /* hooks of forward */
void session_hooks_notice(void *ctx, const char *line);
int session_hooks_distrust(void *ctx, int device);
void session_rewind(struct session *s, int n_tokens);
/* Sets the adapter strengths, one per adapter: if they differ, drops all computed tokens; returns
 * how many. */
int session_strengths(struct session *s, const float *strengths);
/* Likewise, the edits of routing (NULL: none); takes a reference of its own. */
int session_edits(struct session *s, struct expert_edits *edits);
/* Rows up to the start of the next message of the prompt, at most n. */
int session_rows_to_mark(const struct session *s, int n);

/* devices_async.c: opens devices during an answer */
/* Starts the thread, which probes the back ends and opens devices, as devices_seek does.
 * ERR_MEMORY, ERR_IO: the caller must do it itself. */
int devices_async_start(struct engine *g, bool named, struct error *e);
/* Reports the thread's messages; once it is done, or always if `wait`, adopts its devices and ends
 * it. true: no thread is running. */
bool devices_async_poll(struct engine *g, bool wait);
/* device_config.log: on either thread; ctx: the engine */
void devices_async_log(void *ctx, const char *line);

/* devices.c */
/* One probed device of a back end, and the result of opening it. */
struct probed_device {
    const struct device_ops *ops;
    struct device_info info;
    struct device *device; /* NULL: not opened */
};
/* Probes every back end but the CPU's and opens the usable devices; returns how many, at most max.
 * why: one line if something failed. Accesses no mutable state of the engine: any thread. */
int devices_open(struct engine *g, bool named, int first_index, struct probed_device *out, int max,
                 char *why, size_t why_size);
/* Memory that rows of jobs are in from now on; 0 bytes: no longer (device_ops.host_rows). */
void devices_offer_rows(struct engine *g, void *at, size_t bytes);
void devices_adopt(struct engine *g, struct probed_device *found, int n, const char *why,
                   bool named);
/* Prepares audits, once there is a device to audit. */
void devices_audit(struct engine *g);
/* Probes the other back ends once. named: also accept CPUs posing as devices (PoCL), because the
 * user named a device. During an answer a thread does it: returns false, call again later. */
bool devices_seek(struct engine *g, bool named);

/* memory_pressure.c */
/* Polls engine_config.memory_left, a few times a second at most; between passes. */
void memory_pressure_check(struct engine *g);

/* placement.c, placement_auto.c, place/ */
int place_init(struct engine *g, struct error *e);
void place_release(struct engine *g);
/* At a safe point; a request of planner_parse_request. 1: not yet, call again. */
int place_now(struct engine *g, const char *request, struct error *e);
/* The plan in effect for a phase. */
const struct plan *place_of_phase(const struct engine *g, enum plan_phase phase);
/* Whether prompts and tokens have different plans in effect, so that no pass has rows of both. */
bool place_apart(const struct engine *g);
/* The safe point: applies pending requests and continues moving blocks. */
void place_safe_point(struct engine *g);
bool place_pending(const struct engine *g); /* moves are left to do */
/* The phase whose plan a pass of so many rows has: where balanced made the prompts' plan, passes
 * too short to be split have the tokens'. */
enum plan_phase place_phase_of(const struct engine *g, enum plan_phase phase, int rows);
/* Tokens a second that the cost model expects of the plan requested for a phase; unchanged while
 * the costs of a side that it uses are not known. */
void place_expect(struct engine *g, enum plan_phase phase, double *tok_s);
/* they are, or a request is pending, or a device is being opened */
bool place_waits(const struct engine *g);
void place_device_lost(void *ctx, int device); /* hook of forward */
/* A device lacks memory for session state: moves the attention of one of its layers to the CPU, for
 * all sessions, at once. 1: done, 0: it has none, negative: failed. */
int place_give_back(struct engine *g, int device, struct error *e);

/* disk_sessions.c: the prompt cache on disk */
/* Opens it if the configuration names a folder. ERR_IO, ERR_MEMORY, ERR_CANCELLED. */
int disk_sessions_open(struct engine *g, struct error *e);
/* Before sessions close: waits some seconds for unwritten data. */
void disk_sessions_close(struct engine *g);
/* Stops reading and writing for good, with a notice that says why. No-op if no cache is open. */
#define DISK_SESSIONS_OTHER "what is computed with other experts is another state"
#define DISK_SESSIONS_WHOLE "a recorded text is computed from its start"
void disk_sessions_stop(struct engine *g, const char *why);
/* What this run computed cannot be relied on: stops likewise, and removes what it wrote. */
void disk_sessions_distrust(struct engine *g);
/* After a turn's prompt is in the session: chooses what to read from disk. */
void disk_sessions_choose(struct session *s);
bool disk_sessions_reading(const struct session *s); /* a read is pending */
/* Reads a piece for every session that has one pending; true: some have more. Between passes. */
bool disk_sessions_take(struct engine *g);
void disk_sessions_cancel(struct session *s); /* its turn ends */
/* The session's turn has computed something worth storing. */
void disk_sessions_due(struct session *s);
/* Writes a piece once the previous one is done (idle: waits for it briefly); true: more are
 * left. */
bool disk_sessions_step(struct engine *g, bool idle);

/* Counts rows of the newest pass, from its row `row` on, as the session's. */
void session_rows_done(struct session *s, const struct span *span, int row, bool decode);

/* speculate.c: drafted tokens verified together with the pending one */
/* Applies the configuration; ERR_USAGE: unknown drafter. */
int speculate_init(struct engine *g, struct error *e);
/* Opens the Medusa heads if configured. Errors of medusa_heads_open. */
int speculate_heads_open(struct engine *g, struct error *e);
/* Makes a new session's drafters; they are released with it. ERR_MEMORY. */
int speculate_open(struct session *s, struct error *e);
/* Adds drafted rows to some of the first n parts (the answers' next tokens), at most `room` in all.
 * Returns how many. */
int speculate_fill(struct engine *g, int n, int room);
/* No answer is running: a transient reason for not drafting is not reported. */
void speculate_idle(struct engine *g);
/* Records the time (ns, drafting included) of the pass of these parts, which did nothing else; call
 * before its tokens are sampled. */
void speculate_computed(struct engine *g, int n, double ns);
/* The same for the time ns after they were sampled. */
void speculate_learn(struct engine *g, double ns);
/* Returns the token to use where id was sampled: id, or the next drafted one where a lossy policy
 * accepts it; draw is updated then. */
int speculate_accept(struct session *s, int id, struct sampler_draw *draw);
/* A token was sampled. true: it is the next drafted one, so its row is computed already. #71 72 A
 * session further on with a prompt that starts with the same whole pages: they are shared from it
 * once computed (prefix_sharing.c). NULL: none, or they are here. */
bool speculate_drawn(struct session *s, int id);
/* Makes that row and its logits the session's: the next token can be sampled. false: none is. */
bool speculate_next(struct session *s);
/* Discards drafted tokens that were not sampled. computed: their rows were computed, so the
 * statistics may count them. */
void speculate_end(struct session *s, bool computed);

/* draft_model.c */
/* ERR_USAGE: that model cannot draft for g, its vocabulary differs. */
int draft_model_check(const struct engine *g, const struct engine *model, struct error *e);
/* State of a drafter that runs a second engine over the same tokens. */
struct draft_reader {
    struct session *session;
    struct engine *model;
    float *logits; /* n_vocab of that model */
    struct sureness sureness;
};
int draft_reader_init(struct draft_reader *r, struct engine *model, struct error *e);
void draft_reader_release(struct draft_reader *r); /* also accepts all zeros */

/* turn.c */
/* Truncates the session to the prefix shared with the prompt and queues the rest for passes. The
 * caller keeps ownership of t, which must live until turn_end. Negative: no turn was started. */
int turn_begin(struct session *s, const struct turn *t,
               int (*on_event)(void *ctx, struct event *ev), void *ctx, struct error *e);
/* After a pass has computed the turn's pending tokens, up to run.end: samples the next token. */
void turn_step(struct session *s);
/* rc: ERR_CANCELLED or another reason for stopping; 0: see run.done. */
void turn_end(struct session *s, int rc, const struct error *e);

/* rule.c: which tokens a turn allows */
/* Whether the turn's grammar applies to the next token: not in reasoning, but in tool calls. */
bool rule_holds(const struct session *s);
/* How many of the drafted ids the turn's grammar allows. */
int rule_allowed(struct session *s, const int *ids, int n);
/* Applies the grammar's state `cursor` to the next draw; the state after a token. */
void rule_apply(struct session *s, int cursor);
int rule_cursor(struct session *s, int cursor, int id);
/* Masks the logits of a token of the answer that the turn does not allow. */
void rule_mask(const struct session *s, float *logits);

/* prefix_sharing.c: sessions with a common prefix */
/* Finds a session that has, or is about to compute, more whole pages of this session's prompt. */
void prefix_sharing_choose(struct session *s);
/* Before a pass: shares the pages that the leaders have computed by now. */
void prefix_sharing_take(struct engine *g);
/* A session ends: no other session waits for it any more. */
void prefix_sharing_forget(struct session *s);

/* history.c */
void history_copy(struct session *to, const struct session *from, int n);
size_t history_footprint(const struct hparams *hp, int context);
int history_init(struct session *s);
/* a span of the newest pass, which began at its row `row` */
void history_write(struct session *s, const struct span *span, int row);

/* routing/tap.c: routing_hooks */
/* Allocates what they need and begins them. ERR_MEMORY, and what begin() returns. */
int routing_tap_open(struct engine *g, struct error *e);
/* What a session needs for them. ERR_MEMORY. */
int routing_tap_session(struct session *s, struct error *e);
void routing_tap_release(struct engine *g);
/* Before a pass of n spans: what it imposes and keeps. What impose() returns. */
int routing_tap_begin(struct engine *g, int n, struct error *e);
/* Rows that became the session's, without the first `first` of them. */
void routing_tap_rows(struct session *s, const struct routing *from, int first);
/* After a pass, and after the rows of accepted drafts: what rows() returned. */
int routing_tap_end(struct engine *g, struct error *e);

/* metrics.c: telemetry's numbers */
void metrics_init(struct engine *g);
void metrics_turn(struct engine *g, const struct turn_done_event *turn);
/* rows first_row .. end_row - 1 of the newest pass */
void metrics_routed(struct engine *g, int first_row, int end_row, bool decode);
/* an answer token was made; told: by the turn that the telemetry describes */
void metrics_token(struct engine *g, bool told, uint64_t compute_ns);
/* A pass of `rows` rows, with `answers` decoding sessions. */
void metrics_pass(struct engine *g, int rows, int answers);
/* The plans in effect or on their way have changed. */
void metrics_plan(struct engine *g);
/* What the cost model expects of the plans requested, by what is known now. */
void metrics_expect(struct engine *g);
/* charges the plan of this phase from now on */
void metrics_phase(struct engine *g, enum plan_phase phase);
/* a pass computed so many rows of prompts, and nothing else */
void metrics_prompt(struct engine *g, int rows, uint64_t ns);
/* median of the newest tokens' computing time; 0: none yet */
uint64_t metrics_token_ns(const struct engine *g);
/* the switch happened during an answer */
void metrics_switched(struct engine *g);
/* The answer waited for plans and moves at a safe point; pending: more are to come. */
void metrics_stall(struct engine *g, uint64_t ns, bool pending);
/* Called around one token of an answer: its spans go to the telemetry, if enabled and a second has
 * passed. */
void metrics_timeline_begin(struct engine *g, uint64_t now);
void metrics_timeline_end(struct engine *g);
/* memory, devices, placement, rates */
void metrics_refresh(struct engine *g);

/* footprint.c: resolves context, chunk and threads from the configuration and the model.
 * ERR_USAGE. */
#define ENGINE_DEFAULT_CONTEXT 4096 /* where memory is not known, or short */
#define ENGINE_DEFAULT_UBATCH 512
bool drafting_wanted(const struct drafting *c); /* whether drafting is on at all */
/* Drafted rows whose logits are kept. */
int drafting_most_rows(const struct drafting *c, int ubatch);
/* Most drafted rows of a session per pass. */
int drafting_rows(const struct drafting *c, int ubatch);
/* Bytes of logits for drafted rows. */
size_t drafting_footprint(const struct drafting *c, const struct hparams *hp, int ubatch,
                          int sessions);
/* Host memory of so many sessions, besides their rows. */
size_t session_footprint(const struct hparams *hp, const struct state_config *state, int sessions);
int engine_resolve(const struct engine_config *c, const struct model *m,
                   struct engine_footprint *out, struct error *e);

/* fewer_experts.c: saves the file's value for each layer before the first change; then sets n
 * experts (0: all) and the least weight. */
int fewer_experts_remember(struct engine *g, struct error *e);
void fewer_experts_use(struct engine *g, int n, float least);

#endif
