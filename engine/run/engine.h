/* The synchronous engine: a loaded model, its devices and its sessions. Used directly by batch,
 * bench and tests; the worker (engine/run/worker/worker.h) runs it on a thread for the chat.
 * Thread: the one that opened it, except engine_session_cancel and engine_session_hold (any thread,
 * async-signal-safe) and engine_info (any thread, except n_devices). The caller tokenizes the text
 * (engine/run/prompt.h).
 *
 * A pass computes rows (tokens of one or more sessions) through all layers, at most -ub rows:
 * engine_step runs one pass, an evaluation one per chunk. After each pass is the safe point of all
 * sessions: cancelled turns end there and placement moves blocks. on_event and tick are also called
 * in the middle of a pass; they may call engine_telemetry, engine_place, engine_timeline_set, the
 * expert reports, and the functions marked as safe inside on_event below. */
#ifndef ENGINE_RUN_ENGINE_H
#define ENGINE_RUN_ENGINE_H

#include "engine/base/error.h"
#include "engine/device/device.h"
#include "engine/placement/bandwidth.h"
#include "engine/placement/plan.h"
#include "engine/run/config.h"
#include "engine/run/report/messages.h"
#include "engine/run/report/telemetry.h"

struct engine;
struct session;
struct planner_input;
struct trace;

/* Any thread. ERR_USAGE: a context, chunk or cache type that this model cannot have. */
int engine_footprint(const struct engine_config *c, const struct model *inspected,
                     struct engine_footprint *out, struct error *e);

/* Bytes to keep free out of `memory` free bytes when a cache may use all the rest; caches start to
 * shrink when less than half of it is left (config.memory_left). */
uint64_t engine_memory_spare(uint64_t memory);

/* The configuration to open the draft model (of->drafting.model) with, for the given context. */
struct engine_config engine_draft_config(const struct engine_config *of, int context);

/* Whether the MTP block drafts where the model's file has one (model.has_mtp), and the
 * configuration to open it with. */
bool engine_mtp_wanted(const struct engine_config *c);
struct engine_config engine_mtp_config(const struct engine_config *of, const struct model *model,
                                       int context);

/* bytes of the model's hidden states that each session keeps for the MTP block */
uint64_t engine_mtp_states(const struct model *model);

/* Loads the model, opens the CPU and the devices that c->placement names; the placement is in
 * effect on return. Errors of model_load, ERR_USAGE, ERR_DEVICE; then *out is NULL. */
int engine_open(struct engine **out, const struct engine_config *c, struct error *e);
void engine_close(struct engine *g); /* accepts NULL */
const struct engine_info *engine_info(const struct engine *g);

/* Measures the kernels that the devices have not tuned yet (device_ops.tune). Call it when idle;
 * engine_idle_step does so after a turn. Returns the number of shapes measured. */
int engine_tune(struct engine *g);

/* Functions without a session argument act on the chat's, engine_session(). tokens: the ids in its
 * KV cache, *ids borrowed until the next call; returns their number. clear drops them and their
 * counts, rewind keeps the first n_tokens: where the state cannot be truncated (checkpoints.h) the
 * next turn or evaluation recomputes some of them. Neither may be called during its turn. */
int engine_session_tokens(const struct engine *g, const int **ids);
void engine_session_clear(struct engine *g);
void engine_session_rewind(struct engine *g, int n_tokens);

/* Appends ids to the session and computes them in chunks of ubatch. logits: NULL, or all_logits ?
 * (n, n_vocab) : (1, n_vocab) of the last. ERR_USAGE, ERR_CONTEXT: nothing has changed.
 * ERR_CANCELLED, ERR_VALUE and ERR_IO (model_check), ERR_DEVICE (the CPU failed too): the session
 * keeps the tokens that were computed completely. */
int engine_eval(struct engine *g, const int *ids, int n, float *logits, bool all_logits,
                struct error *e);
/* The same, computed in chunks of at most `chunk` rows (tests). */
int engine_eval_chunked(struct engine *g, const int *ids, int n, int chunk, float *logits,
                        bool all_logits, struct error *e);

/* The chat's session, on which functions without a session argument act. */
struct session *engine_session(struct engine *g);
/* Further sessions on the same model, devices and placement: each has its own KV cache and sampler,
 * and its results are bit-identical to a run without the others (except for float weights
 * multiplied by oneDNN, and deferred experts). Opening allocates the whole context on every device
 * that has or gets attention; where a device other than the CPU lacks memory, attention of its
 * layers moves back to the CPU for all sessions, with a NOTICE. ERR_MEMORY, ERR_DEVICE: it does not
 * fit, nothing was opened. Between passes; engine_close closes the remaining ones. close: not the
 * chat's; a turn under way ends without an event. */
int engine_session_open(struct engine *g, struct session **out, struct error *e);
void engine_session_close(struct session *s); /* accepts NULL */
/* Sets the adapter strengths, one per adapter (engine_info.adapters), for what the session computes
 * from now on. If they differ from the previous ones, its computed tokens are dropped; returns how
 * many. Not during its turn; a turn may bring its own strengths. */
int engine_session_strengths_set(struct session *s, const float *strengths);
const float *engine_session_strengths(const struct session *s);
/* The same for the edits of routing (engine/device/expert_edits.h): takes a reference of its own,
 * NULL: none. Not while recorded routing is imposed, which comes before them: ERR_USAGE. */
int engine_session_edits_set(struct session *s, struct expert_edits *edits, struct error *e);
struct expert_edits *engine_session_edits(const struct session *s); /* NULL: none; not shared */
/* Drops the session's tokens; expert counts stay. Not during its turn. */
void engine_session_forget(struct session *s);
/* Starts a turn on a session: the prompt's ids are queued for engine_step. t must stay valid until
 * the turn is over; its last event is TURN_DONE or ERROR. on_event as in engine_turn, but NOTICE
 * and PLAN, which concern all sessions, go to the callback of engine_events_set. The part of the
 * prompt that the session does not hold is shared with other sessions that have the same prefix,
 * computed or in progress (whole pages, on the CPU, models without recurrent state). A session has
 * one turn at a time: during one, ERR_USAGE and nothing else happens; with every other error the
 * turn is over and on_event got ERROR. Between steps. */
int engine_session_turn(struct session *s, const struct turn *t,
                        int (*on_event)(void *ctx, struct event *ev), void *ctx, struct error *e);
/* Ends the session's current turn or evaluation, or the next one, and no other session's: a cancel
 * is never lost. Checked between the jobs of a pass (a job may be many layers of one token). It is
 * cleared at the end of a turn or by the evaluation that it ended; one that may have come too late
 * is cleared by uncancel, on the engine's thread. Any thread, async-signal-safe. engine_config.stop
 * ends all work for good. */
void engine_session_cancel(struct session *s);
void engine_session_uncancel(struct session *s);
/* While held, the session's answer is paused because its reader is behind; passes compute the other
 * sessions. Its prompt is still computed; a cancel ends it. A turn starts held if the previous one
 * ended held. Any thread, async-signal-safe; releasing it wakes the engine's thread. */
void engine_session_hold(struct session *s, bool held);
/* from the session's next token on; safe inside on_event */
void engine_session_sampling_set(struct session *s, const struct sampling *values);
/* One pass: the next token of every session that is decoding, plus as many prefill rows as do not
 * delay the answers for long. Turns end inside it. false: nothing is left to do, or all that is
 * left is held. */
bool engine_step(struct engine *g);
/* For measuring: one pass that appends ids[i] to session s[i], n different ones (at most -ub) and
 * computes them together, including the logits, which are discarded. Errors as engine_eval. */
int engine_sessions_eval(struct session *const *s, int n, const int *ids, struct error *e);
/* As engine_eval_chunked, for this session; chunk 0: -ub. */
int engine_session_eval(struct session *s, const int *ids, int n, int chunk, float *logits,
                        bool all_logits, struct error *e);

/* A whole turn of the chat's session: prefix reuse, prefill, decode loop. on_event gets
 * TURN_STARTED, PREFILL, TOKEN, NOTICE, PLAN and TURN_DONE; non-zero cancels the turn. ev->text is
 * freed after the callback unless the callback takes it (sets it to NULL). The caller keeps
 * ownership of t. A cancelled turn is no error: see done->reason. Turns of other sessions run at
 * the same time; the chat's must have none. Errors are returned, not sent as events: those of
 * engine_eval, ERR_INPUT, ERR_MODEL. prompt_turn takes text. */
int engine_turn(struct engine *g, const struct turn *t,
                int (*on_event)(void *ctx, struct event *ev), void *ctx,
                struct turn_done_event *done, struct error *e);

/* Changes the drafter, the draft length and the acceptance rule; only drafters that the model was
 * opened for, and `model` stays. Between turns. ERR_USAGE: nothing has changed. */
int engine_drafting_set(struct engine *g, const struct drafting *d, struct error *e);
/* 0: off; safe inside on_event. Ignored while several turns are under way. */
void engine_pace_set(struct engine *g, double tokens_per_second);
/* Of the jobs of devices other than the CPU one in n is computed by the CPU as well and compared
 * bit for bit (pass/audit.h); 0: none. A device that differs is disabled with a NOTICE, in the
 * middle of an answer, which continues: if all of its jobs were audited, its token is computed
 * again, else all tokens of all sessions. Between passes. */
void engine_audit_set(struct engine *g, int n);
/* Requests a plan: from now on blocks move a little at each safe point and engine_idle_step, and
 * each switches device on its own: an expert or the head once its weights are there, a layer's
 * mixer once every session's rows or state are there too. PLAN is sent when all have moved. The CPU
 * keeps all weights. During a turn or evaluation plan_set and place only store the request; the
 * newest one counts, and what no device supports becomes a NOTICE at the safe point. Otherwise it
 * is the error returned: ERR_USAGE, ERR_DEVICE, ERR_MEMORY. plan_set takes ownership of p, also on
 * failure; safe inside on_event. */
int engine_plan_set(struct engine *g, struct plan *p, struct error *e);
/* The same for prompts, which have the tokens' plan as long as they have none of their own. p NULL:
 * they have it again. A pass of prompt rows is computed under it; while the two differ no pass has
 * rows of both, passes of waiting prompts and of answers alternate. What either plan has on a
 * device is resident there all the time: ERR_USAGE if that exceeds the device's budget. When a
 * prompt is computed, its rows of every layer go to where tokens are computed (forward.h). */
int engine_prompt_plan_set(struct engine *g, struct plan *p, struct error *e);
/* A planner spec, or "prompt SPEC" or "prompt same" for prompts; opens the devices it needs, during
 * a turn in parallel with the answer. */
int engine_place(struct engine *g, const char *request, struct error *e);
/* How many of these requests, the newest for tokens and for prompts, wait for their safe point or
 * for devices that are opening. */
int engine_place_waits(const struct engine *g);
/* --place-script */
int engine_script_set(struct engine *g, const char *script, struct error *e);
int engine_profile_set(struct engine *g, const double *counts,
                       struct error *e); /* (n_layers, n_experts), copied; planners use them instead
                                          * of the session's counts; NULL: those again */
/* Continues moving blocks until no move is pending (outside a turn). */
int engine_settle(struct engine *g, struct error *e);
/* Sets the callback for NOTICE and PLAN events outside turns; during a turn the turn's own callback
 * gets them. */
void engine_events_set(struct engine *g, int (*on_event)(void *ctx, struct event *ev), void *ctx);
/* Lossy, explicitly: of a decoded token's experts on the CPU, the results of up to n with the least
 * weight per layer are added one layer later, so that they run while another device computes the
 * next attention. Without such a placement nothing is deferred. 0: exact. */
void engine_defer_set(struct engine *g, int n);
int engine_defer(const struct engine *g);
/* What deferring costs on the session's current tokens, from position `from` on (at most 256
 * tokens): the mean Kullback-Leibler divergence of the next token's distribution from the exact
 * run's, in nats, and how many tokens greedy decoding would choose differently. The session is
 * recomputed twice and keeps its tokens. Outside a turn. */
struct defer_loss {
    int tokens, changed;
    double mean_kl, largest_kl;
};
int engine_defer_loss(struct engine *g, int from, struct defer_loss *out, struct error *e);
/* Lossy, explicitly: the router takes only the n best experts of each layer, as if the model had
 * been made so (their weights sum to 1 where they did); layers that use fewer keep theirs; 0: all.
 * Computed rows stay. But when all lossy settings are again as at open, rows computed with others
 * are recomputed in the next turn, as are those with deferred experts. Outside a turn. ERR_USAGE:
 * more than the model uses, or it has no experts. */
int engine_experts_used_set(struct engine *g, int n, struct error *e);
/* Lossy too: of those experts, the ones with a routing weight below `least` (0 .. 1) are skipped
 * for a token, except the best; 0: none are. Layers are not fused then. ERR_USAGE: out of range, or
 * no experts. Both disable the prompt cache on disk (engine_config.prompt_cache), except when
 * engine_open applies them. */
int engine_experts_least_set(struct engine *g, float least, struct error *e);
/* The settings in effect; 0 and 0: the model's own. trained: the most that its layers use. */
void engine_experts_lossy(const struct engine *g, int *used, float *least);
int engine_experts_trained(const struct engine *g);
/* Changes the types of the KV cache; the sessions' rows are recomputed in their next turn. Outside
 * a turn; allocates. ERR_USAGE: Q8_0 with heads that are no whole blocks, or devices other than the
 * CPU; ERR_MEMORY: nothing has changed, but the sessions' rows are dropped. */
int engine_kv_types_set(struct engine *g, enum kv_type k, enum kv_type v, struct error *e);
void engine_kv_types(const struct engine *g, enum kv_type *k, enum kv_type *v);
void engine_kv_types_opened(const struct engine *g, enum kv_type *k, enum kv_type *v);
/* Whether any of these settings is lossy: fewer experts, deferred ones, keys or values in less than
 * F16 or than the engine was opened with; or the routing of the chat's session is edited. */
bool engine_lossy(const struct engine *g);
/* What that costs and gains on the session's current tokens, from position `from` on (at most 64
 * tokens): all is computed twice more, exactly (experts not edited) and with the settings, these
 * tokens one by one. The divergence of the next token's distribution from the exact run's, in nats,
 * how many tokens greedy decoding would choose differently, and tokens per second. The session
 * keeps its tokens, computed with the settings in effect. Outside a turn. */
#define SHADOW_TOKENS 64
struct shadow_loss {
    int tokens, changed;
    double mean_kl, largest_kl, exact_rate, rate;
    /* per token: the token, the divergence of the distribution after it, and the likeliest next one
     * of the exact run and of the other */
    int ids[SHADOW_TOKENS], exact_top[SHADOW_TOKENS], top[SHADOW_TOKENS];
    double kl[SHADOW_TOKENS];
    /* the exact run's own answer to the same prompt, drawn with the session's sampling and seed:
     * n_answer tokens, at most as many as `tokens`, without the one that ends it */
    int answer[SHADOW_TOKENS], n_answer;
};
int engine_shadow(struct engine *g, int from, struct shadow_loss *out, struct error *e);
/* between turns: continues moving blocks, tunes once after each turn; true: more moves are left */
bool engine_idle_step(struct engine *g);
/* Sets a callback run on the engine's thread after every token and about ten times a second during
 * long work, with fresh telemetry. NULL: none. */
void engine_tick_set(struct engine *g, void (*tick)(void *ctx), void *ctx);
/* Records spans of everything computed from now on (engine/run/report/trace.h), at most `room`; 0:
 * stop. The trace stays readable until the next call. */
int engine_trace_start(struct engine *g, size_t room, struct error *e);
/* While on, one token a second is computed block by block and its spans are in the telemetry. */
void engine_timeline_set(struct engine *g, bool on);
const struct trace *engine_trace(const struct engine *g);
const struct plan *engine_plan(const struct engine *g);
/* NULL: prompts have that one too */
const struct plan *engine_prompt_plan(const struct engine *g);
/* The planners' input: block sizes, budgets, abilities, measured costs, expert use so far. Opens
 * the other devices when `open_devices`, also CPUs posing as OpenCL devices when one was named;
 * measures missing costs when `measure` (outside a turn). Valid until the next call into the
 * engine; target 0: there is only the CPU. NULL on error. */
const struct planner_input *engine_planner_input(struct engine *g, bool open_devices, bool named,
                                                 bool measure, struct error *e);
/* Tokens a second that the cost model expects of the plan for a phase (of prompts: in whole
 * passes); 0: the costs of a side that it uses are not known. */
double engine_expected(struct engine *g, enum plan_phase phase);
/* The bandwidth semaphore (engine/placement/bandwidth.h); auto: inactive until bandwidth_decide.
 * Between tokens. */
void engine_bandwidth_set(struct engine *g, enum bandwidth_mode mode, double bytes_per_second);
struct bandwidth *engine_bandwidth(struct engine *g);
/* Synthetic routing for benchmarks (see struct imposed_routing), until called with NULL. The text
 * computed under it means nothing. */
void engine_routing_impose(struct engine *g, const struct imposed_routing *r);
/* Other routing hooks from here on (kept by pointer; NULL: none); calls their begin. All sessions
 * are emptied, so that their next turns are computed whole, and the prompt cache on disk is not
 * used any more. Outside a turn. Errors of begin, ERR_MEMORY: there are no hooks then. */
int engine_routing_hooks_set(struct engine *g, const struct routing_hooks *h, struct error *e);
void engine_tell(struct engine *g, const char *line); /* sends a NOTICE of the application */
/* progress of long work: sends PROGRESS, a line that the next one replaces */
void engine_progress(struct engine *g, const char *line);
/* Off: what is computed from now on counts neither as use of experts nor as a plan's tokens, and
 * clearing the session clears no counts. On again: restores the placement's strategy, but not the
 * session's tokens; the caller recomputes them. */
void engine_counting_set(struct engine *g, bool on);
/* Placement auto's measurement (engine/placement/trial.h), outside a turn. due: there is another
 * device (it is opened, CPUs posing as devices excepted) and no verdict; or the one so far is not
 * decided and the time computed since allows twice the time spent. engine_auto: measures within
 * what is allowed, decides for both phases and stores the verdict; place "auto" applies it. now: a
 * test's clock, in ns; NULL: clock_now. ERR_CANCELLED: nothing is stored. ERR_IO: only for this
 * run. Both keep the session, its counts and the plans. */
bool engine_auto_due(struct engine *g);
int engine_auto(struct engine *g, uint64_t (*now)(void *ctx), void *ctx, struct error *e);

const struct telemetry *engine_telemetry(const struct engine *g); /* engine thread only */

/* Positions of the session's tokens that were routed to this expert: fills at most max, returns the
 * total number. */
int engine_expert_tokens(const struct engine *g, int layer, int expert, int *positions, int max);
/* The same as text for display: how many, the most frequent, the newest in context. Caller frees
 * with mem_*. ERR_USAGE, ERR_MEMORY. */
int engine_expert_report(const struct engine *g, int layer, int expert, char **text,
                         struct error *e);

/* The experts of the newest answer's token `at` by layer, largest weight first: "L0 8 2, L1 5 9",
 * of the pass that produced the token. ids: the answer's n tokens, the session's newest. Caller
 * frees with mem_*. ERR_USAGE: the session does not hold the token (any more), or no layer has
 * routed experts; ERR_MEMORY. */
int engine_token_experts(const struct engine *g, const int *ids, int n, int at, char **text,
                         struct error *e);

/* Sets the routing observer; NULL: none. Called once per pass and session after its layers, on the
 * engine's thread; not for rows that are recomputed. */
void engine_observe(struct engine *g, void (*fn)(void *ctx, const struct routing *r), void *ctx);
/* The same for every pass as it was computed, including drafted rows, kept or not. */
void engine_observe_passes(struct engine *g, void (*fn)(void *ctx, const struct routing *r),
                           void *ctx);
/* Called behind every layer of every pass with the residual stream (rows, hidden) of its rows, in
 * the order of the sessions of the pass; on the engine's thread. It may not allocate. NULL: off. */
void engine_observe_stream(struct engine *g,
                           void (*fn)(void *ctx, int layer, const float *x, int rows), void *ctx);
/* The draft model's engine (-md), for inspection only; NULL: none. Owned by g. */
struct engine *engine_draft_model(struct engine *g);
/* Observes the activations of the CPU's matrices (device.h); all blocks must be on the CPU. NULL:
 * off. */
void engine_observe_matrices(struct engine *g, const struct device_observer *o);

#endif
