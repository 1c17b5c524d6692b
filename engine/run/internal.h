/* The engine's insides, shared by the files of engine/run alone. Thread: the engine's, but for
 * cancel. */
#ifndef ENGINE_RUN_INTERNAL_H
#define ENGINE_RUN_INTERNAL_H

#include "engine/base/wake.h"
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

/* What one plan did: figures published, and the samples behind them. */
struct plan_record {
    double token_s[PLAN_WINDOW];
    uint64_t busy_ns[DEVICE_MAX];
};

/* Text on its way out. What may be the beginning of a stop string is held back until it is decided.
 */
struct stop_matcher {
    const struct turn *turn;
    char *held;
    size_t n, room;
    int met; /* the string that was complete last */
};

/* What a prompt takes from the disk (disk_sessions.c). */
struct disk_run {
    int end;                 /* how far; 0: nothing, or no more */
    int at;                  /* tokens passed so far */
    char parent[DIGEST_HEX]; /* the piece that ends there */
    char last[DIGEST_HEX];
};

/* The turn under way on a session: its prompt is computed in chunks, then a token is taken and
 * computed with every pass. */
struct turn_run {
    const struct turn *turn; /* the caller's; NULL: none is under way */
    int (*on_event)(void *ctx, struct event *ev);
    void *event_ctx;
    struct stop_matcher out;
    struct detokenizer text;
    struct answer_parts parts;
    int end;         /* tokens there are when what the turn waits for is computed */
    int kept;        /* the session's, that the prompt begins with */
    float *scores;   /* (SCORE_ROWS, n_vocab) if the prompt's tokens are scored, or NULL */
    bool answering;  /* the prompt is computed */
    uint64_t served; /* rows computed, for fairness; it begins with the least of those under way */
    /* Whose prompt begins with the same whole pages and is further: they are taken from there when
     * they are computed (shared.c). NULL: nobody's, or they are here. */
    struct session *leader;
    int lead; /* tokens that begin alike, whole pages */
    struct disk_run stored;
    /* clock: the turn, its first token, the computing of the newest one */
    uint64_t start, first, begin;
    uint64_t share_ns; /* of a pass that made several tokens, each one's; 0: it made one */
    uint64_t paused_ns, paused_before; /* by pacing: in all, before the first token */
    struct turn_done_event done;
    int rc; /* how it ended */
    struct error error;
};

/* What a session drafts (speculate.c). */
struct speculation {
    /* NULL: not asked for */
    struct drafter *drafters[DRAFTER_COUNT];
    const struct drafter_ops *ops[DRAFTER_COUNT];
    /* the newest proposal: whose it is (DRAFTER_COUNT: there is none), n tokens to follow the one
     * that waits, and how probable each of them is with all before it */
    enum drafter_kind from;
    int n, ids[DRAFT_MOST];
    float p[DRAFT_MOST];
    /* in the pass under way, or being served: how many of them, how many were drawn so far, the row
     * of the pass they stand behind, the logits of that row and those after it */
    int rows, taken, row;
    float *logits;
    bool drawn;  /* the token taken last is the next one drafted */
    bool missed; /* nothing was verified, and the first of the proposal was drawn */
    /* drafts that would have paid and were not made: n of them, right so far, in passes without
     * drafts what verifying them takes */
    struct watched {
        int n, right, ids[DRAFT_MOST];
        double cost;
    } watched;
    /* while the drafter that costs time is not expected to pay: passes since it was asked for one
     * token all the same, and how many there have to be until it is again */
    int unasked, wait;
};

/* What the newest pass of answers verified and made, until its time is known. */
struct speculated {
    int answers, rows, tokens;
    double experts;     /* touched, a layer; 0: nobody chooses */
    uint64_t paused_ns; /* by pacing, before its tokens were taken */
};

/* The lossy settings of an engine (session.c, lossy/). */
struct lossy {
    int used, defer;
    float least;
    enum kv_type k, v;
};

/* What speculation_figures.why speaks of: a reason that changes from pass to pass is reported only
 * now and then. */
enum draft_reason { REASON_NONE, REASON_EARLY, REASON_LASTS, REASON_SILENCE, REASON_COST };

/* One line of tokens and what belongs to it alone: its rows in the devices' caches, its sampler,
 * its newest logits, the turn under way. Sessions share the engine's model, devices and placement.
 */
struct session {
    struct engine *engine;
    int number; /* on every device */
    /* (context) ids; the first n_tokens are computed: their rows lie in the KV cache */
    int *tokens, n_tokens;
    /* tokens[n_tokens] was generated and shown, but not computed: an answer ended with it */
    bool token_waits;
    /* tokens before the first one that was computed while what is lossy was otherwise than the
     * engine was opened; INT_MAX: there is none */
    int as_opened;
    /* positions whose routing was counted; a recomputation counts nothing twice */
    int counted;
    enum rope_variant variant;
    /* with which the adapters count, of the tokens computed and of those to come */
    float strengths[LORA_ADAPTERS];
    struct checkpoints *checkpoints; /* NULL: every layer keeps all rows */
    /* (context, n_layers, used): experts each position chose */
    uint16_t *routed;
    struct sampler sampler;
    /* of the newest grammar that a turn brought, NULL: none yet; where its answer stands */
    struct matcher *matcher;
    int cursor;
    float *logits; /* (1, n_vocab) of the newest token */
    struct speculation spec;
    /* Of a block that predicts further tokens: the hidden states that its tokens from position
     * states_at on are joined with, (…, hidden); the drafter's (mtp.c) */
    const float *states;
    int states_at;
    /* something of it may not be on the disk yet; where its newest messages begin */
    struct {
        bool due;
        int marks[PROMPT_MARKS], n_marks;
    } stored;

    struct turn_run run;
    bool turn_cancelled; /* on_event said so */
    /* the only things that other threads touch: engine_session_cancel, engine_session_hold */
    atomic_int cancel;
    atomic_bool held;
};

static inline bool turn_running(const struct session *s)
{
    return s->run.turn != NULL;
}

/* What a pass computes of one session: `rows` tokens from its n_tokens on. logits: NULL, or where
 * those of the last row go; all_logits (in a pass of one session): of every row. decode: a token of
 * the answer (counted as such). drafted: so many rows at the end are drafts, which are not the
 * session's until they are drawn; speculation.logits are theirs and those of the row before. */
struct pass_part {
    struct session *session;
    int rows, drafted;
    float *logits;
    bool all_logits, decode;
};

/* What a pass is put together in: n_sessions of each. */
struct pass {
    struct pass_part *parts;
    int n; /* parts of the pass under way */
    struct span *spans;
    const int **ids;
    const float **states; /* see session.states */
    int *wanted;          /* rows whose logits are wanted: as many as logits has */
    int *ends;            /* session_extend_all: where each ends */
    /* (n_sessions + engine.draft_rows, n_vocab), with several sessions or drafts */
    float *logits;
};

/* See memory_pressure.c. */
struct memory_pressure {
    uint64_t looked_ns;
    uint64_t given;                  /* bytes of slots that may be allocated again */
    uint64_t stalled_us;             /* what memory_stalled said then */
    const struct session *evaluated; /* its rows stay; NULL: none is */
    bool told;                       /* of the shortage that lasts */
};

struct engine {
    struct engine_config config; /* strings are copies */
    struct engine_info info;
    struct model *model;
    struct adapters *adapters; /* NULL: none */
    struct state_config state; /* of every session */
    struct tokenizer *tokenizer;
    struct grammar_vocabulary *vocabulary; /* made with the first grammar; NULL: not yet */
    struct chat_template *chat;
    struct device_slot slots[DEVICE_MAX];
    struct device *devices[DEVICE_MAX];
    int n_devices;
    /* the other back ends were asked: 1 for real ones, 2 also for those that are the CPU */
    int devices_sought;
    /* why there is no device was said just now: planners need not say it again */
    bool why_told;
    struct rope rope;
    struct forward forward;
    struct session *session;   /* the first one: the chat's */
    struct session **sessions; /* n_sessions by number; NULL: free */
    int n_sessions;
    struct pass pass;
    /* something is drafted; who could, and who is asked for now (engine_drafting_set) */
    bool drafts, drafters[DRAFTER_COUNT], heard[DRAFTER_COUNT];
    int most_drafted;                       /* tokens of a draft that devices have room for */
    struct engine *draft_model, *mtp;       /* NULL: none (drafter.h, enum drafter_needs) */
    struct medusa_heads *medusa;            /* likewise */
    struct shared_resources *own_resources; /* with that; NULL: the configuration's, or none */
    /* of the pass being put together, where drafting costs: that, and reading what came before */
    double drafting_ns, reading_ns;
    struct speculated speculated;
    enum draft_reason reason;
    int silent_passes;  /* since a drafter had something to say */
    int draft_rows;     /* most drafted rows of a pass */
    size_t draft_bytes; /* of their logits */
    bool has_floats;    /* matrices of float weights; known where something is drafted */
    struct utility utility;
    struct scheduler scheduler;
    int n_running; /* turns */
    /* engine_experts_used_set: what is in force, 0: all; of each layer, what the file says (NULL:
     * nobody asked yet) */
    int experts_used, *used_trained;
    struct lossy opened;   /* as the engine was opened */
    struct trace trace;    /* asked for by engine_trace_start */
    struct trace timeline; /* of one token, for the telemetry */
    bool timeline_wanted;
    uint64_t timeline_ns; /* when the newest one was taken */

    struct {
        struct prompt_cache *cache; /* NULL: there is none on the disk */
        bool stopped;               /* what is computed is not what the key says any more */
        struct segment_shape shape;
        char key[DIGEST_HEX];
    } stored;

    bool uncounted; /* engine_counting_set */
    struct memory_pressure pressure;

    /* placement */
    struct kv kv;
    struct plan *in_force; /* what forward really uses; changes block by block */
    struct residency *residency;
    struct bandwidth *bandwidth, own_bandwidth; /* that, or those of the shared resources */
    struct cost_model *cost_model;
    /* of the plan wanted; planner NULL: a plan made elsewhere */
    struct planner_spec spec;
    struct planner_spec spec_before; /* while nothing counts (engine_counting_set) */
    /* generated tokens at which a strategy that re-plans is asked again */
    uint64_t replan_at;
    /* a turn has ended since the devices last measured their kernels */
    bool tune_due;
    double *usage, *recent;   /* n_layers * n_experts, for planners */
    double *profile;          /* counts taken instead of the session's, or NULL */
    struct plan *wanted_plan; /* waits for the safe point */
    char *wanted_spec;
    bool announced; /* the plan in force was told */
    /* devices that a thread opens meanwhile; NULL: none */
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

    struct telemetry t;
    struct plan_record *plans; /* TELEMETRY_PLANS */
    int plan_at;               /* index of the plan now charged, -1: none */
    struct device_stats last_stats[DEVICE_MAX];
    uint64_t metrics_ns;                   /* when medians were last computed */
    struct expert_cache_stats disk_before; /* and what the disk had done by then */
    uint64_t token_weight_bytes;
};

/* notice.c */
/* To the log, and to on_event or, where that leaves it, to engine_config.log. */
void engine_notice(struct engine *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* to on_event; frees what it left; remembers a cancel */
int engine_emit(struct engine *g, struct event *ev);
/* nobody wants anything of it: engine_config.stop says so */
bool engine_given_up(const struct engine *g);
/* to the turn's on_event; frees what it left; remembers a cancel */
int session_emit(struct session *s, struct event *ev);
/* likewise: how probable the likeliest tokens are by these logits, and id, which stands there */
void session_logprobs(struct session *s, const float *logits, int id);
bool session_cancelled(struct session *s);

/* session.c */
/* without drafters (speculate_open) */
int session_new(struct session **out, struct engine *g, struct error *e);
void session_free(struct session *s);
/* Appends and computes; see engine_eval. decode: a token of the answer (counted as such). */
/* One pass of the first n parts of g->pass; n_tokens of every session grows by its rows. ERR_DEVICE
 * with *again: n_tokens is what is left of each; compute what is missing again. */
int session_pass(struct engine *g, int n, bool *again, struct error *e);
/* ids stand behind the session's computed tokens, to be computed by passes; n_tokens is less than
 * it was where the rotary table changes with the length, or where recurrent state has to go on from
 * further back. Returns the session's length then. */
int session_append(struct session *s, const int *ids, int n, struct error *e);
/* a token of each, in one pass */
int session_extend_all(struct session *const *s, int n, const int *ids, struct error *e);
int session_extend(struct session *s, const int *ids, int n, int chunk, float *logits,
                   bool all_logits, struct error *e);
/* which lossy settings are in force */
struct lossy lossy_now(const struct engine *g);
bool lossy_as_opened(const struct engine *g);
/* It was changed, outside a turn: where it is as the engine was opened again, what was computed
 * meanwhile is no session's any more. */
void lossy_changed(struct engine *g);

int session_hooks_layer(void *ctx, int layer); /* hooks of forward */
void session_hooks_notice(void *ctx, const char *line);
void session_rewind(struct session *s, int n_tokens);
/* From now on with these strengths, one an adapter: where they are others, nothing that was
 * computed is the session's any more; returns how many tokens that were. */
int session_strengths(struct session *s, const float *strengths);
/* Rows up to where the next message of the prompt begins, at most n. */
int session_rows_to_mark(const struct session *s, int n);

/* devices_async.c: devices opened beside an answer */
/* Starts the thread: it asks the back ends and opens what it finds, as devices_seek does.
 * ERR_MEMORY, ERR_IO: do it yourself. */
int devices_async_start(struct engine *g, bool named, struct error *e);
/* Tells what the thread has to say; once it is done, or always when `wait`, takes the devices in
 * and ends it. true: none is under way. */
bool devices_async_poll(struct engine *g, bool wait);
/* device_config.log: any of the two threads; ctx: the engine */
void devices_async_log(void *ctx, const char *line);

/* devices.c */
/* What was found of one back end's devices, and what became of opening them. */
struct probed_device {
    const struct device_ops *ops;
    struct device_info info;
    struct device *device; /* NULL: not opened */
};
/* Asks every back end but the CPU's and opens the devices that may be used; returns how many, at
 * most max. why: one line where something was wrong. Touches nothing of the engine that changes:
 * any thread. */
int devices_open(struct engine *g, bool named, int first_index, struct probed_device *out, int max,
                 char *why, size_t why_size);
void devices_adopt(struct engine *g, struct probed_device *found, int n, const char *why,
                   bool named);
/* Asks the other back ends once. named: a device that is really the CPU may be taken too (PoCL),
 * because the user asked for a device. In the middle of an answer a thread does it: false, ask
 * again later. */
bool devices_seek(struct engine *g, bool named);

/* memory_pressure.c */
/* Asks engine_config.memory_left, a few times a second at most; between passes. */
void memory_pressure_check(struct engine *g);

/* placement.c */
int place_init(struct engine *g, struct error *e);
void place_release(struct engine *g);
int place_now(struct engine *g, const char *spec, struct error *e); /* at a safe point */
/* The safe point: what waits is applied, moves go on a step. */
void place_safe_point(struct engine *g);
bool place_pending(const struct engine *g); /* moves are left to do */
/* they are, or a wish is, or a device is being opened */
bool place_waits(const struct engine *g);
void place_device_lost(void *ctx, int device); /* hook of forward */
/* A device has no room for what it is to keep: the attention of one of its layers becomes the
 * CPU's, for all sessions, at once. 1: done, 0: it has none, negative: failed. */
int place_give_back(struct engine *g, int device, struct error *e);

/* disk_sessions.c: the prompt cache on the disk */
/* Where the configuration names a folder. ERR_IO, ERR_MEMORY, ERR_CANCELLED. */
int disk_sessions_open(struct engine *g, struct error *e);
/* Before sessions close: what is not written yet gets some seconds. */
void disk_sessions_close(struct engine *g);
/* From now on nothing is read or written; a notice says so. Nothing where no cache is open. */
void disk_sessions_stop(struct engine *g);
/* A turn's prompt stands in the session: whether some of it comes from the disk. */
void disk_sessions_choose(struct session *s);
bool disk_sessions_reading(const struct session *s); /* it waits for that */
/* A piece for every session that reads; true: some go on. Between passes. */
bool disk_sessions_take(struct engine *g);
void disk_sessions_cancel(struct session *s); /* its turn ends */
/* The session's turn has computed something that is worth keeping. */
void disk_sessions_due(struct session *s);
/* Writes a piece, if the one before is done (idle: waits for that a moment); true: more are left.
 */
bool disk_sessions_step(struct engine *g, bool idle);

/* Counts rows of the newest pass, from its row `row` on, which are the session's from now on. */
void session_rows_done(struct session *s, const struct span *span, int row, bool decode);

/* speculate.c: drafted tokens verified beside the one that waits */
/* What the configuration asks for; ERR_USAGE: a drafter that there is not. */
int speculate_init(struct engine *g, struct error *e);
/* Opens the heads that draft, where they are asked for. Errors of medusa_heads_open. */
int speculate_heads_open(struct engine *g, struct error *e);
/* Makes a new session's drafters; they are released with it. ERR_MEMORY. */
int speculate_open(struct session *s, struct error *e);
/* Of the first n parts, answers' next tokens, some become longer by drafted rows, `room` at most in
 * all. Returns how many. */
int speculate_fill(struct engine *g, int n, int room);
/* No answer is under way: a reason why none was drafted that was the moment's is not told. */
void speculate_idle(struct engine *g);
/* The pass of these parts, which waited for nothing else, took ns, drafting included; before its
 * tokens are taken. */
void speculate_computed(struct engine *g, int n, double ns);
/* And ns when they were. */
void speculate_learn(struct engine *g, double ns);
/* The token that stands where id was drawn: that, or the next drafted one where a lossy policy
 * takes it; draw then tells of it. */
int speculate_accept(struct session *s, int id, struct sampler_draw *draw);
/* A token was taken. true: it is the next drafted one, so its row is computed already. */
bool speculate_drawn(struct session *s, int id);
/* That row is the session's now, and its logits: the next token can be taken. false: none is. */
bool speculate_next(struct session *s);
/* Discards what was drafted and not drawn. computed: its rows were computed, so that the
 * statistics may count them. */
void speculate_end(struct session *s, bool computed);

/* draft_model.c */
/* ERR_USAGE: that model cannot draft for g, its vocabulary is another one. */
int draft_model_check(const struct engine *g, const struct engine *model, struct error *e);
/* What a drafter has that reads along in an engine of its own. */
struct draft_reader {
    struct session *session;
    struct engine *model;
    float *logits; /* n_vocab of that model */
    struct sureness sureness;
};
int draft_reader_init(struct draft_reader *r, struct engine *model, struct error *e);
void draft_reader_release(struct draft_reader *r); /* also one that is all zeros */

/* turn.c */
/* Cuts the session back to what the prompt shares with it, and lets its rest wait for passes. t
 * stays the caller's, until turn_end. Negative: there is no turn. */
int turn_begin(struct session *s, const struct turn *t,
               int (*on_event)(void *ctx, struct event *ev), void *ctx, struct error *e);
/* A pass has computed what the turn waited for, up to run.end: takes the next token. */
void turn_step(struct session *s);
/* rc: ERR_CANCELLED, or why else it cannot go on; 0: run.done says how it ended. */
void turn_end(struct session *s, int rc, const struct error *e);

/* rule.c: what a turn lets be drawn */
/* Whether its turn has a grammar. */
bool rule_holds(const struct session *s);
/* Of drafted ids, how many the turn's grammar allows to follow. */
int rule_allowed(struct session *s, const int *ids, int n);
/* The next token is drawn where the grammar stands at cursor; where it stands behind a token. */
void rule_apply(struct session *s, int cursor);
int rule_cursor(struct session *s, int cursor, int id);
/* Logits of a token of the answer: what the turn does not want drawn is out of reach. */
void rule_mask(const struct session *s, float *logits);

/* shared.c: sessions that begin with the same tokens */
/* Who has, or is about to compute, more whole pages of the session's prompt than it has itself. */
void prefix_sharing_choose(struct session *s);
/* Before a pass: what the leaders have by now is taken from them. */
void prefix_sharing_take(struct engine *g);
/* A session ends: nobody waits for it any more. */
void prefix_sharing_forget(struct session *s);

/* history.c */
void history_copy(struct session *to, const struct session *from, int n);
size_t history_footprint(const struct hparams *hp, int context);
int history_init(struct session *s);
/* a span of the newest pass, which began at its row `row` */
void history_write(struct session *s, const struct span *span, int row);

/* metrics.c: telemetry's numbers */
void metrics_init(struct engine *g);
void metrics_turn(struct engine *g, const struct turn_done_event *turn);
/* rows first_row .. end_row - 1 of the newest pass */
void metrics_routed(struct engine *g, int first_row, int end_row, bool decode);
/* a token of an answer was made; told: of the turn that the telemetry tells of */
void metrics_token(struct engine *g, bool told, uint64_t compute_ns);
/* A pass of so many rows, in which so many sessions answered. */
void metrics_pass(struct engine *g, int rows, int answers);
/* this plan is charged from now on */
void metrics_plan(struct engine *g, const char *name);
/* median of the newest tokens' computing time; 0: none yet */
uint64_t metrics_token_ns(const struct engine *g);
/* that happened in the middle of an answer */
void metrics_switched(struct engine *g);
/* The answer waited for plans and moves at a safe point; pending: more of them are to come. */
void metrics_stall(struct engine *g, uint64_t ns, bool pending);
/* Around one token of an answer: its spans go to the telemetry, where they are asked for and a
 * second has passed. */
void metrics_timeline_begin(struct engine *g, uint64_t now);
void metrics_timeline_end(struct engine *g);
/* memory, devices, placement, rates */
void metrics_refresh(struct engine *g);

/* footprint.c: context, chunk and threads as the configuration and the model give them. ERR_USAGE.
 */
#define ENGINE_DEFAULT_CONTEXT 4096 /* where memory is not known, or short */
#define ENGINE_DEFAULT_UBATCH 512
bool drafting_wanted(const struct drafting *c); /* whether anything is drafted at all */
/* Drafted rows that logits are kept for. */
int drafting_most_rows(const struct drafting *c, int ubatch);
/* Most drafted rows of a session in a pass. */
int drafting_rows(const struct drafting *c, int ubatch);
/* Bytes of logits for drafted rows. */
size_t drafting_footprint(const struct drafting *c, const struct hparams *hp, int ubatch,
                          int sessions);
/* What so many sessions keep on the host beside their rows. */
size_t session_footprint(const struct hparams *hp, const struct state_config *state, int sessions);
int engine_resolve(const struct engine_config *c, const struct model *m,
                   struct engine_footprint *out, struct error *e);

/* fewer_experts.c: what the file says of each layer, before it is changed for the first time; then
 * n experts (0: all) and the least weight in force. */
int fewer_experts_remember(struct engine *g, struct error *e);
void fewer_experts_use(struct engine *g, int n, float least);

#endif
