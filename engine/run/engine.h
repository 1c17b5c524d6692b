/* The synchronous engine: a loaded model, its devices and its sessions. Used directly by batch,
 * bench and tests; the worker (engine/run/worker/worker.h) wraps it in a thread for the chat.
 * Thread: the one that opened it, except engine_session_cancel (any thread, async-signal-safe) and
 * engine_info (any thread, but for n_devices). Text becomes ids on its owner's thread
 * (engine/run/prompt.h).
 *
 * A pass takes rows, tokens of one or more sessions, through all layers, at most -ub together:
 * engine_step is one, each chunk of an evaluation another. Behind it is the safe point of all
 * sessions: cancelled turns end, placement moves on. on_event and tick are called in the middle of
 * passes too and may call engine_telemetry, engine_place, engine_timeline_set, the reports on an
 * expert, and what says so below. */
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

/* What is to be left of so much free memory when a cache takes the rest: with half of it gone
 * caches begin to give back (config.memory_left). */
uint64_t engine_memory_spare(uint64_t memory);

/* What the model that drafts (of->drafting.model) is opened with, beside one of this context. */
struct engine_config engine_draft_config(const struct engine_config *of, int context);

/* Whether the block that predicts further tokens drafts where the model's file has one
 * (model.has_mtp), and what it is opened with. */
bool engine_mtp_wanted(const struct engine_config *c);
struct engine_config engine_mtp_config(const struct engine_config *of, const struct model *model,
                                       int context);

/* bytes of the model's hidden states that each session keeps for it */
uint64_t engine_mtp_states(const struct model *model);

/* Loads the model, opens the CPU, and the devices that c->placement asks for; that is in force when
 * it returns. Errors of model_load, ERR_USAGE, ERR_DEVICE; then *out is NULL. */
int engine_open(struct engine **out, const struct engine_config *c, struct error *e);
void engine_close(struct engine *g); /* accepts NULL */
const struct engine_info *engine_info(const struct engine *g);

/* When nobody waits: what the devices want to measure about their kernels (device_ops.tune).
 * Returns shapes measured. engine_idle_step does it after a turn. */
int engine_tune(struct engine *g);

/* Functions that take no session mean the chat's, engine_session(). Its tokens as they lie in the
 * KV cache, *ids borrowed until the next call; how many. clear forgets them and what was counted of
 * them, rewind keeps the first n_tokens: where their state cannot be cut (checkpoints.h) the next
 * turn or evaluation computes some of them again. Neither while a turn of it is under way. */
int engine_session_tokens(const struct engine *g, const int **ids);
void engine_session_clear(struct engine *g);
void engine_session_rewind(struct engine *g, int n_tokens);

/* Appends ids to the session and computes them in chunks of ubatch. logits: NULL, or all_logits ?
 * (n, n_vocab) : (1, n_vocab) of the last. ERR_USAGE, ERR_CONTEXT: nothing has changed.
 * ERR_CANCELLED, ERR_VALUE and ERR_IO (model_check), ERR_DEVICE (the CPU failed too): the session
 * ends with a whole token. */
int engine_eval(struct engine *g, const int *ids, int n, float *logits, bool all_logits,
                struct error *e);
/* Same, the n rows being computed chunk by chunk of at most `chunk` rows (tests). */
int engine_eval_chunked(struct engine *g, const int *ids, int n, int chunk, float *logits,
                        bool all_logits, struct error *e);

/* The one that functions without a session mean: the chat's. */
struct session *engine_session(struct engine *g);
/* Further lines of tokens on the same model, devices and placement: each has a cache and a sampler
 * of its own, and its bits are what they would be without the others (but for float weights
 * multiplied by oneDNN, and deferred experts). Opening takes room for the whole context on every
 * device that has or gets attention; where a device other than the CPU has none left, attention of
 * its layers goes back to the CPU, for all sessions, and a NOTICE says so. ERR_MEMORY, ERR_DEVICE:
 * one more does not fit, and none is open. Between passes; engine_close closes what is left. close:
 * not the chat's; a turn under way ends with it, untold. */
int engine_session_open(struct engine *g, struct session **out, struct error *e);
void engine_session_close(struct session *s); /* accepts NULL */
/* The strengths with which adapters count in what the session computes from now on, one each
 * (engine_info.adapters). Where they are others than before, what it has computed is forgotten;
 * returns how many tokens that were. Not while its turn is under way; a turn may bring its own. */
int engine_session_strengths_set(struct session *s, const float *strengths);
const float *engine_session_strengths(const struct session *s);
/* Its tokens are forgotten; what was counted stays. Not while its turn is under way. */
void engine_session_forget(struct session *s);
/* Begins a turn on a session: the prompt's ids wait for engine_step. t must stay valid
 * until the turn is over, which TURN_DONE or ERROR says, the last event of a turn that was begun.
 * on_event as in engine_turn, but for what concerns all sessions: NOTICE and PLAN go to the one of
 * engine_events_set. What the session does not hold of the prompt is taken from others that begin
 * alike, where they have it or are about to (whole pages, on the CPU, of models without recurrent
 * state). A session has one turn at a time: while it has one ERR_USAGE, and nothing else happens;
 * with every other error the turn is over, and on_event was told. Between steps. */
int engine_session_turn(struct session *s, const struct turn *t,
                        int (*on_event)(void *ctx, struct event *ev), void *ctx, struct error *e);
/* Ends the session's turn or the evaluation of it under way, or the next one, and no other's: a
 * cancel is never lost. Honoured between the jobs of a pass (a job may be many layers of one
 * token). It is spent at the end of a turn or by the evaluation that it ended; one that may have
 * come too late is taken back with uncancel, on the engine's thread. Any thread,
 * async-signal-safe. What ends all work for good is engine_config.stop. */
void engine_session_cancel(struct session *s);
void engine_session_uncancel(struct session *s);
/* While held, its answer is paused because its reader is behind, and passes compute other sessions.
 * Its prompt is computed all the same; a cancel ends it. A turn begins held if the previous one
 * ended held. Any thread, async-signal-safe; releasing it wakes the engine's thread. */
void engine_session_hold(struct session *s, bool held);
/* from the session's next token on; safe inside on_event */
void engine_session_sampling_set(struct session *s, const struct sampling *values);
/* One pass: the next token of every session that answers, and of the prompts that wait as many rows
 * as keep the answers from waiting long. Turns end inside it. false: there is nothing left to do,
 * or all that is left is held. */
bool engine_step(struct engine *g);
/* One pass: ids[i] is appended to session s[i], n different ones (at most -ub), and all of them are
 * computed together; the logits, which nobody reads, are computed too: it is for measuring. Errors
 * as engine_eval. */
int engine_sessions_eval(struct session *const *s, int n, const int *ids, struct error *e);
/* As engine_eval_chunked, of this session; chunk 0: -ub. */
int engine_session_eval(struct session *s, const int *ids, int n, int chunk, float *logits,
                        bool all_logits, struct error *e);

/* A whole turn of the chat's session: prefix reuse, prefill, decode loop. on_event gets
 * TURN_STARTED, PREFILL, TOKEN, NOTICE, PLAN and TURN_DONE; it returns non-zero to cancel. ev->text
 * goes when the callback returns, unless it takes it (sets it NULL). The turn stays the caller's. A
 * cancelled turn is no error: done->reason says so. Turns of other sessions go on beside it; the
 * chat's has none. Errors are returned, not told: those of engine_eval, ERR_INPUT, ERR_MODEL.
 * prompt_turn takes text. */
int engine_turn(struct engine *g, const struct turn *t,
                int (*on_event)(void *ctx, struct event *ev), void *ctx,
                struct turn_done_event *done, struct error *e);

/* Who drafts from now on, how much, when a draft stands: of what the model was opened for, whose
 * `model` stays. Between turns. ERR_USAGE: nothing has changed. */
int engine_drafting_set(struct engine *g, const struct drafting *d, struct error *e);
/* 0: off; safe inside on_event. Heeded while one turn alone is under way. */
void engine_pace_set(struct engine *g, double tokens_per_second);
/* A plan that is wanted: from then on, at each safe point and engine_idle_step, blocks move a
 * little, and each changes sides by itself, an expert or the head when its weights are there, a
 * layer's mixer when every session's rows or state are there too. PLAN tells when all have. The CPU
 * keeps all weights. Inside a turn or evaluation plan_set and place only note the wish, the newest
 * one counts, and what no device can do is a NOTICE at the safe point; else it is the error
 * returned: ERR_USAGE, ERR_DEVICE, ERR_MEMORY. plan_set takes p, also on failure; safe inside
 * on_event. */
int engine_plan_set(struct engine *g, struct plan *p, struct error *e);
/* planner spec; devices are opened when it asks for them, in the middle of an answer beside it */
int engine_place(struct engine *g, const char *spec, struct error *e);
/* The newest of these two waits for its safe point or for devices that are being opened. */
bool engine_place_waits(const struct engine *g);
/* --place-script */
int engine_script_set(struct engine *g, const char *script, struct error *e);
int engine_profile_set(struct engine *g, const double *counts,
                       struct error *e); /* (n_layers, n_experts), copied; planners use them instead
                                          * of the session's counts; NULL: those again */
/* Goes on with moves until nothing is pending (outside a turn). */
int engine_settle(struct engine *g, struct error *e);
/* Takes NOTICE and PLAN events outside turns; a turn's own callback stands in for it while the turn
 * runs. */
void engine_events_set(struct engine *g, int (*on_event)(void *ctx, struct event *ev), void *ctx);
/* Lossy, explicitly: of a decoded token's experts on the CPU, up to n of least weight a layer
 * arrive one layer later, so that they run while another device computes the next attention.
 * Without such a placement nothing is deferred. 0: exact. */
void engine_defer_set(struct engine *g, int n);
int engine_defer(const struct engine *g);
/* What that costs on the session as it stands, from position `from` on (at most 256 tokens): the
 * mean Kullback-Leibler divergence of the next token's distribution from the exact run's, in nats,
 * and how many tokens greedy decoding would choose otherwise. The session is computed anew, twice,
 * and stays. Outside a turn. */
struct defer_loss {
    int tokens, changed;
    double mean_kl, largest_kl;
};
int engine_defer_loss(struct engine *g, int from, struct defer_loss *out, struct error *e);
/* Lossy, explicitly: of each layer's experts the router takes the n best alone, as if the model had
 * been made so (their weights sum to 1 where they did); layers that use fewer keep theirs; 0: all.
 * What is computed already stays, but for what was computed with other settings of these than the
 * engine was opened with, once all are again as they were then: that is computed anew with the
 * next turn; so are deferred experts. Outside a turn. ERR_USAGE: more than the model uses, or it
 * has no experts. */
int engine_experts_used_set(struct engine *g, int n, struct error *e);
/* Likewise: of those, the ones of less routing weight than `least` (0 .. 1) are left out of a
 * token, all but the best; 0: none are. Layers are not fused then. ERR_USAGE: out of range, or no
 * experts. Both stop the prompt cache on the disk (engine_config.prompt_cache) where they are not
 * the first setting. */
int engine_experts_least_set(struct engine *g, float least, struct error *e);
/* What is in force; 0 and 0: the model's own. trained: the most that the model's layers use. */
void engine_experts_lossy(const struct engine *g, int *used, float *least);
int engine_experts_trained(const struct engine *g);
/* Keys and values are kept in these types from here on; what the sessions hold is computed anew
 * with their next turn. Outside a turn; allocates. ERR_USAGE: Q8_0 and heads that are no whole
 * blocks, or devices beside the CPU; ERR_MEMORY: all is as before, but for what the sessions held.
 */
int engine_kv_types_set(struct engine *g, enum kv_type k, enum kv_type v, struct error *e);
void engine_kv_types(const struct engine *g, enum kv_type *k, enum kv_type *v);
void engine_kv_types_opened(const struct engine *g, enum kv_type *k, enum kv_type *v);
/* Whether anything of these is lossy: fewer experts, deferred ones, keys or values kept in less
 * than F16 or than the engine was opened with. */
bool engine_lossy(const struct engine *g);
/* What that costs and gains on the session as it stands, from position `from` on (at most 64
 * tokens): all is computed twice more, exactly and so, these tokens one by one. The divergence of
 * the next token's distribution from the exact run's, in nats, how many tokens greedy decoding
 * would choose otherwise, tokens a second. The session stays, computed with the settings in force.
 * Outside a turn. */
struct shadow_loss {
    int tokens, changed;
    double mean_kl, largest_kl, exact_rate, rate;
};
int engine_shadow(struct engine *g, int from, struct shadow_loss *out, struct error *e);
/* between turns: goes on with moves, and tunes once after each; true: more moves are left */
bool engine_idle_step(struct engine *g);
/* Called on the engine's thread after every token and about ten times a second in long work,
 * telemetry being fresh. NULL: none. */
void engine_tick_set(struct engine *g, void (*tick)(void *ctx), void *ctx);
/* Spans of everything computed from now on (engine/run/report/trace.h), at most `room`; 0: stop.
 * The trace stays readable until the next call. */
int engine_trace_start(struct engine *g, size_t room, struct error *e);
/* While on, one token a second is computed block by block and its spans stand in the telemetry. */
void engine_timeline_set(struct engine *g, bool on);
const struct trace *engine_trace(const struct engine *g);
const struct plan *engine_plan(const struct engine *g);
/* What planners are asked with: block sizes, budgets, abilities, measured costs, use so far. Opens
 * the other devices when `open_devices`, also those that are really the CPU when one was named;
 * measures missing costs when `measure` (outside a turn). Valid until the next call into the
 * engine; target 0: there is only the CPU. NULL: e says why. */
const struct planner_input *engine_planner_input(struct engine *g, bool open_devices, bool named,
                                                 bool measure, struct error *e);
/* The bandwidth semaphore (engine/placement/bandwidth.h); auto: inactive until bandwidth_decide.
 * Between tokens. */
void engine_bandwidth_set(struct engine *g, enum bandwidth_mode mode, double bytes_per_second);
struct bandwidth *engine_bandwidth(struct engine *g);
/* Synthetic routing for benchmarks (see struct imposed_routing), until called with NULL. The text
 * computed under it means nothing. */
void engine_routing_impose(struct engine *g, const struct imposed_routing *r);
void engine_tell(struct engine *g, const char *line); /* a NOTICE of the application's own */
/* how far long work is: PROGRESS, a line that the next one replaces */
void engine_progress(struct engine *g, const char *line);
/* Off: what is computed from now on happens beside the session: it counts neither in the use of
 * experts nor as a plan's tokens, and clearing the session clears no counts. On again: the
 * placement's strategy is put back; the session's tokens are not, the caller computes them anew. */
void engine_counting_set(struct engine *g, bool on);
/* auto's verdict for this model and device, kept in cache_dir: spec won; the best plan with the
 * device was slower by `loss` (0.12: 12 %). */
int engine_verdict_set(struct engine *g, const char *spec, double loss, struct error *e);

const struct telemetry *engine_telemetry(const struct engine *g); /* engine thread only */

/* Positions of the session whose token chose this expert: fills at most max, returns how many there
 * are. */
int engine_expert_tokens(const struct engine *g, int layer, int expert, int *positions, int max);
/* The same as text for people: how many, the most frequent, the newest in their surroundings. mem_*
 * memory. ERR_USAGE, ERR_MEMORY. */
int engine_expert_report(const struct engine *g, int layer, int expert, char **text,
                         struct error *e);

/* The experts of the newest answer's token `at`, layer by layer, the one of most weight first: "L0
 * 8 2, L1 5 9". They are those of the pass that made it. ids: the answer's n tokens, the
 * session's newest. mem_* memory. ERR_USAGE: the session does not hold it (any more), or
 * no layer has experts to choose from; ERR_MEMORY. */
int engine_token_experts(const struct engine *g, const int *ids, int n, int at, char **text,
                         struct error *e);

/* One observer; NULL: none. Called once a pass and session, when its layers are computed, on the
 * engine's thread; not of rows that are computed a second time. */
void engine_observe(struct engine *g, void (*fn)(void *ctx, const struct routing *r), void *ctx);
/* Likewise of every pass as it was computed: drafted rows too, whether they are kept or not. */
void engine_observe_passes(struct engine *g, void (*fn)(void *ctx, const struct routing *r),
                           void *ctx);
/* The engine of the model that drafts (-md), to be looked at; NULL: there is none. g's. */
struct engine *engine_draft_model(struct engine *g);
/* What the CPU's matrices meet (device.h); everything must be placed there. NULL: nobody asks. */
void engine_observe_matrices(struct engine *g, const struct device_observer *o);

#endif
