/* moetop -p TEXT: one answer on standard output and nothing else there. Main thread, synchronous
 * engine. Every piece is flushed at once, so an interrupted run keeps what was shown. */
#include "app/headless/oneshot.h"

#include "app/connect/answer.h"
#include "app/common/paths.h"
#include "app/common/safe_text.h"
#include "app/headless/oneshot_beside.h"
#include "app/headless/tool_talk.h"
#include "app/lab/second.h"
#include "app/lab/lens_dump.h"
#include "app/mcp/telling.h"
#include "app/setup/receipt.h"
#include "app/setup/engine_options.h"
#include "app/placement/auto.h"
#include "app/stats/run_stats.h"
#include "app/common/signals.h"
#include "app/common/thoughts.h"
#include "app/setup/prompt.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/run/prompt.h"
#include "engine/text/chat_template.h"
#include "engine/run/report/trace.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct answer {
    struct utf8_marks marks; /* of what went to the terminal */
    struct engine *engine;
    bool tty, started, line_open;
    struct turn_done_event done;
    struct thoughts thoughts;
    enum answer_part part; /* of the newest text */
    int write_errno;       /* of the first write that failed; 0: none */
    bool receipt;          /* requested */
    struct receipt_text said;
    struct tool_talk *talk; /* with --mcp; NULL: no tools */
    bool beside;            /* --beside: */
    struct said first;      /* what this model said, */
    uint64_t seed;          /* with this seed */
};

bool oneshot_wanted(const struct options *o)
{
    return o->prompt || o->file;
}

static int put(struct answer *a, const char *text, size_t n)
{
    if (!n)
        return 0;
    a->line_open = text[n - 1] != '\n';
    if (safe_text_put(stdout, a->tty, &a->marks, text, n) && fflush(stdout) == 0)
        return 0;
    a->write_errno = errno ? errno : EIO;
    return 1;
}

static int put_part(struct answer *a, const struct token_event *t)
{
    const char *border = a->talk ? "" : answer_part_border(a->part, t->part);

    a->part = t->part;
    if (t->part == PART_REASONING) {
        thoughts_put(&a->thoughts, t->text, t->len);
        return 0;
    }
    thoughts_end(&a->thoughts);
    if (a->talk && t->part == PART_TOOL_CALL) /* told on standard error when it is run */
        return 0;
    return put(a, border, strlen(border)) || put(a, t->text, t->len);
}

static int on_event(void *ctx, struct event *ev)
{
    struct answer *a = ctx;

    if (a->receipt)
        receipt_text_note(&a->said, ev);
    if (a->talk)
        tool_talk_note(a->talk, ev);
    if (a->beside)
        said_note(&a->first, ev);
    if (ev->kind == EVENT_TOKEN && ev->token.len)
        return put_part(a, &ev->token) || signals_last();
    if (ev->kind == EVENT_NOTICE && ev->text)
        fprintf(stderr, "moetop: %s\n", ev->text);
    return signals_last() != 0;
}

/* The dialogue of the options; d owns its parts, also on failure. */
static int read_dialogue(const struct options *o, struct dialogue *d, struct error *e)
{
    char *text;
    int rc;

    d->raw = o->raw;
    if (!(d->messages = mem_alloc(2, sizeof *d->messages)))
        return error_set(e, ERR_MEMORY, "out of memory for the prompt");
    if (!o->raw) {
        if ((rc = prompt_system(o, &text, e)) < 0)
            return rc;
        if (text)
            d->messages[d->n_messages++] = (struct message){.role = ROLE_SYSTEM, .text = text};
    }
    if ((rc = prompt_read(o, &text, e)) < 0)
        return rc;
    d->messages[d->n_messages++] = (struct message){.role = ROLE_USER, .text = text};
    return 0;
}

/* After an answer, local or remote. */
static int ended(struct answer *a, struct stats *stats, int rc, struct error *e)
{
    thoughts_end(&a->thoughts);
    if (a->tty && a->line_open)
        put(a, "\n", 1);
    if (a->write_errno)
        return output_failed("the answer", a->write_errno, e);
    stats_add_turn(stats, &a->done);
    if (rc < 0)
        return rc;
    if (signals_last() || a->done.reason == STOP_CANCELLED)
        return error_set(e, ERR_CANCELLED, "interrupted");
    return 0;
}

/* For --stats-json: the receipt of the answer. */
static int keep_receipt(const struct options *o, const struct answer *a, const struct dialogue *d,
                        const struct turn *t, struct stats *stats, struct error *e)
{
    char model[DIGEST_HEX], plan[TELEMETRY_PLAN_NAMES];
    struct receipt_of of = {.info = engine_info(a->engine),
                            .plan = telemetry_plan_names(engine_telemetry(a->engine), plan,
                                                         sizeof plan),
                            .model_sha256 = model,
                            .said = d,
                            .n_prompt = a->done.prompt_tokens,
                            .sessions = 1,
                            .answer = &a->said};
    int rc = receipt_model(o, of.info, model, e), n = engine_session_tokens(a->engine, &of.prompt);

    of.n_prompt = n < of.n_prompt ? n : of.n_prompt;
    if (rc < 0)
        return rc;
    of.settings = receipt_settings_now(o, of.info, t->sampling.seed);
    rc = receipt_make(&of, &stats->receipt, e);
    json_decref(of.settings);
    return rc;
}

/* How an answer is got: here, or from a server. a->done is filled. */
typedef int ask(void *ctx, struct answer *a, const struct dialogue *d, struct error *e);

/* The answers of a conversation with tools, until one calls none. */
static int talk(struct answer *a, struct stats *stats, const struct chat_tools *knows, ask *how,
                void *ctx, struct error *e)
{
    struct dialogue d;
    int rc = 1;

    while (rc > 0) {
        if ((rc = tool_talk_dialogue(a->talk, knows, &d, e)) < 0)
            return rc;
        rc = how(ctx, a, &d, e);
        dialogue_release(&d);
        if (rc < 0 || signals_last() || a->write_errno)
            return rc;
        rc = tool_talk_next(a->talk, a->done.reason, e);
        if (rc > 0) {
            thoughts_end(&a->thoughts);
            if (a->line_open) /* the next answer begins a line */
                put(a, "\n", 1);
            stats_add_turn(stats, &a->done);
            stats_begin_turn(stats);
        }
    }
    return rc;
}

static int ask_here(void *turn, struct answer *a, const struct dialogue *d, struct error *e)
{
    return prompt_turn(a->engine, NULL, d, turn, on_event, a, &a->done, e);
}

static int answer_once(const struct options *o, struct answer *a, const struct dialogue *d,
                       struct stats *stats, struct error *e)
{
    struct turn t = {.max_tokens = o->n_predict,
                     .ignore_eos = o->ignore_eos,
                     .stops = o->stop.items,
                     .n_stops = o->stop.n,
                     .probabilities = a->beside,
                     .logprobs = a->beside,
                     .top_logprobs = a->beside ? SAID_LIKELY : 0};
    struct chat_tools knows = {0};
    int rc;

    if ((rc = grammar_from_options(o, &t.grammar, e)) < 0)
        return rc;
    sampling_from_options(o, &t.sampling);
    a->seed = t.sampling.seed;
    stats_begin_turn(stats);
    if (a->talk && engine_info(a->engine)->chat)
        knows = chat_template_tools(engine_info(a->engine)->chat);
    rc = a->talk ? talk(a, stats, &knows, ask_here, &t, e) : ask_here(&t, a, d, e);
    grammar_free(t.grammar);
    if ((rc = ended(a, stats, rc, e)) < 0)
        return rc;
    if (a->receipt && (rc = keep_receipt(o, a, d, &t, stats, e)) < 0)
        return rc;
    if (a->done.reason == STOP_CONTEXT)
        fprintf(stderr,
                "moetop: the answer ends here because the context of %d tokens is full; -c sets a "
                "larger one\n",
                engine_info(a->engine)->context);
    return 0;
}

/* Prints the loss of a lossy run. */
static int tell_loss(struct engine *g, const struct turn_done_event *done, struct error *e)
{
    struct defer_loss loss;
    int rc;

    if (done->completion_tokens < 2)
        return 0;
    if ((rc = engine_defer_loss(g, done->prompt_tokens, &loss, e)) < 0)
        return rc;
    fprintf(stderr,
            "moetop: deferred experts: mean KL divergence %.3g nats a token (largest %.3g) from "
            "the exact run, %d of %d tokens would differ\n",
            loss.mean_kl, loss.largest_kl, loss.changed, loss.tokens);
    return 0;
}

static int tell_fewer(struct engine *g, const struct turn_done_event *done, struct error *e)
{
    struct shadow_loss loss;
    int rc;

    if (done->completion_tokens < 2)
        return 0;
    if ((rc = engine_shadow(g, done->prompt_tokens, &loss, e)) < 0)
        return rc;
    fprintf(stderr,
            "moetop: fewer experts: mean KL divergence %.3g nats a token (largest %.3g) from the "
            "exact run, %d of %d tokens would differ; %.2f tokens/s against %.2f (%+.0f %%)\n",
            loss.mean_kl, loss.largest_kl, loss.changed, loss.tokens, loss.rate, loss.exact_rate,
            100 * (loss.rate / loss.exact_rate - 1));
    return 0;
}

/* After the answer, so that it is not delayed: measures whether the GPU is faster, for the next
 * run. */
static void measure_after(const struct options *o, struct answer *a)
{
    struct error e = {0};

    fflush(stdout);
    engine_tune(a->engine);
    if (!place_auto_due(a->engine, o->place))
        return;
    engine_tell(a->engine, "auto: measuring what a GPU is worth with this model; Ctrl-C stops it");
    if (place_auto(a->engine, &e) < 0)
        fprintf(stderr, "moetop: auto: %s\n", e.text);
}

/* --beside: the second answer, after the first one's. */
static int ask_second(const struct options *o, struct answer *a, const struct dialogue *d,
                      struct stats *stats, struct error *e)
{
    char path[PATH_MAX];
    int rc = paths_model(o->model, path, sizeof path, e);

    if (rc < 0)
        return rc;
    second_name(path, NULL, a->first.name, sizeof a->first.name);
    a->first.end = a->done;
    if ((rc = said_experts(&a->first, engine_telemetry(a->engine), e)) < 0)
        return rc;
    return oneshot_beside(o, d, a->seed, &a->first, engine_info(a->engine),
                          o->stats_json ? &stats->beside : NULL, e);
}

#define TRACE_SPANS ((size_t)1 << 20) /* 24 MiB; some 8000 tokens of 32 layers */

static const char *device_name(void *ctx, int device)
{
    return engine_info(ctx)->devices[device].name;
}

static int write_trace(struct engine *g, const char *path, struct error *e)
{
    const struct trace *t = engine_trace(g);
    char *text;
    size_t n;
    int rc = trace_json(t, device_name, g, &text, &n, e);

    if (rc < 0)
        return rc;
    rc = file_replace(path, text, n, e);
    mem_free(text);
    if (rc == 0 && t->dropped)
        fprintf(stderr, "moetop: the trace is full: %zu further spans are not in %s\n", t->dropped,
                path);
    return rc;
}

/* --mcp: starts the servers while nothing is loaded yet. */
static int begin_talk(const struct options *o, struct answer *a, struct tool_talk *t,
                      const struct dialogue *d, struct error *e)
{
    struct mcp *mcp;
    int rc = tool_talk_open(o, &mcp, e);

    if (rc < 0 || !mcp)
        return rc;
    a->talk = t;
    a->receipt = false; /* what tools answer cannot be reproduced */
    return tool_talk_begin(t, mcp, o, "", d, e);
}

static void end_talk(struct answer *a)
{
    if (!a->talk)
        return;
    mcp_close(a->talk->mcp);
    tool_talk_release(a->talk);
}

static int local_run(struct options *o, struct error *e)
{
    struct answer a = {
        .tty = isatty(STDOUT_FILENO), .receipt = o->stats_json != NULL, .beside = second_wanted(o)};
    struct tool_talk tools;
    struct stats stats = {0};
    struct dialogue d = {0};
    int rc, stats_rc;

    signals_catch();
    if (a.beside && (rc = oneshot_beside_check(o, e)) < 0)
        return rc;
    if ((rc = read_dialogue(o, &d, e)) < 0 || (rc = begin_talk(o, &a, &tools, &d, e)) < 0)
        goto out;
    if ((rc = stats_open(&stats, o, e)) < 0 || (rc = engine_setup_open(o, &a.engine, e)) < 0)
        goto out;
    if (o->trace && (rc = engine_trace_start(a.engine, TRACE_SPANS, e)) < 0)
        goto out;
    rc = answer_once(o, &a, &d, &stats, e);
    if (rc >= 0)
        measure_after(o, &a);
    if (o->defer_experts > 0 && rc >= 0)
        rc = tell_loss(a.engine, &a.done, e);
    if ((o->experts_used > 0 || o->experts_weight > 0) && rc >= 0)
        rc = tell_fewer(a.engine, &a.done, e);
    if (a.beside && rc >= 0)
        rc = ask_second(o, &a, &d, &stats, e);
    if (o->lens && rc >= 0)
        rc = lens_dump(a.engine, a.done.prompt_tokens, o->lens_swaps, o->lens, e);
    if (o->trace && rc >= 0)
        rc = write_trace(a.engine, o->trace, e);
    stats_take(&stats, engine_info(a.engine), engine_telemetry(a.engine));
    engine_close(a.engine);
    a.engine = NULL;
    if ((o->stats || o->stats_json) && rc >= 0)
        /* the buffer for it would be counted as the model's memory */
        stats_measure(&stats);
    /* An interrupted answer has statistics too. */
    if ((stats_rc = stats_finish(&stats, o, stderr, rc < 0 ? NULL : e)) < 0 && rc >= 0)
        rc = stats_rc;
out:
    end_talk(&a);
    dialogue_release(&d);
    stats_release(&stats);
    receipt_text_release(&a.said);
    said_release(&a.first);
    engine_close(a.engine);
    return rc;
}

/* ---- from a server ---- */

static bool stopped(void *ctx)
{
    (void)ctx;
    return signals_last() != 0;
}

static void tell(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "moetop: %s\n", line);
}

/* Where a server is asked. */
struct place {
    const struct options *o;
    struct server server;
};

static int ask_there(void *ctx, struct answer *a, const struct dialogue *d, struct error *e)
{
    struct place *p = ctx;
    const struct answer_listener to = {on_event, stopped, NULL, a};
    struct request request = {0};
    int rc = request_make(p->o, &p->server, d, p->o->n_predict, NULL, &request, e);

    if (rc == 0)
        rc = answer_remote(&p->server, &request, &to, &a->done, e);
    request_release(&request);
    return rc;
}

static int ask_server(const struct options *o, struct answer *a, const struct dialogue *d,
                      struct stats *stats, struct error *e)
{
    struct place p = {.o = o};
    const struct server_address at = server_address(o);
    int rc = server_open(&p.server, &at, stopped, tell, NULL, e);

    if (rc < 0)
        return rc;
    stats_remote(stats, p.server.model, p.server.http.base);
    stats_begin_turn(stats);
    rc = a->talk ? talk(a, stats, &telling_api, ask_there, &p, e) : ask_there(&p, a, d, e);
    return ended(a, stats, rc, e);
}

static int remote_run(struct options *o, struct error *e)
{
    struct answer a = {.tty = isatty(STDOUT_FILENO)};
    struct tool_talk tools;
    struct stats stats = {0};
    struct dialogue d = {0};
    int rc, stats_rc;

    signals_catch();
    if ((rc = read_dialogue(o, &d, e)) < 0 || (rc = begin_talk(o, &a, &tools, &d, e)) < 0 ||
        (rc = stats_open(&stats, o, e)) < 0)
        goto out;
    rc = ask_server(o, &a, &d, &stats, e);
    stats_take(&stats, NULL, NULL);
    if (stats.turns && (stats_rc = stats_finish(&stats, o, stderr, rc < 0 ? NULL : e)) < 0 &&
        rc >= 0)
        rc = stats_rc;
out:
    end_talk(&a);
    dialogue_release(&d);
    stats_release(&stats);
    return rc;
}

int oneshot_run(struct options *o, struct error *e)
{
    return o->connect ? remote_run(o, e) : local_run(o, e);
}
