/* The batch: reads lines, answers --parallel of them at a time, and writes one line for each in the
 * order of the input. Main thread, synchronous engine. Finished answers wait for earlier ones, but
 * only a few. A line of output is one write, so a kill leaves whole lines and at most one partial
 * one, which --resume cuts off: exactly the lines in the file are answered. */
#include "app/headless/batch.h"
#include "app/headless/batch_answer.h"
#include "app/headless/batch_input.h"
#include "app/headless/batch_line.h"
#include "app/headless/batch_output.h"
#include "app/headless/batch_remote.h"
#include "app/headless/tool_talk.h"
#include "app/setup/receipt.h"

#include "app/setup/engine_options.h"
#include "app/setup/parallel.h"
#include "app/stats/run_stats.h"
#include "app/common/progress.h"
#include "app/common/signals.h"
#include "app/setup/prompt.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "engine/model/hparams.h"
#include "engine/model/model.h"
#include "engine/run/prompt.h"
#include "engine/text/chat_template.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AHEAD 4 /* times --parallel: lines started ahead of the oldest unanswered one */

struct batch;

/* A line that was read, is being answered, or is answered and waits to be written in order. */
struct job {
    struct batch *batch;
    size_t index; /* of the line */
    struct batch_line line;
    json_t *o; /* the output object */
    /* with --receipts: the line, if it is an object; the answer */
    json_t *asked;
    struct receipt_text said;
    struct strbuf text, reasoning;
    uint64_t *counts, *prompt_counts; /* (layers, experts), with --batch-experts */
    struct session *session;          /* NULL: not being answered (any more) */
    struct session *last;             /* the newest session that answered it */
    struct tool_talk talk;            /* with --mcp */
    char where[32];                   /* "line 3: " */
    bool stepped;                     /* it was running when the pass began */
    bool again;                       /* it called tools: another answer is to begin */
    struct turn_done_event done;
    int rc;
    struct error why;
};

struct batch {
    const struct options *o;
    struct engine *engine;
    struct batch_input *in;
    struct batch_output out;
    struct turn defaults;
    char *system;
    char model[DIGEST_HEX]; /* with --receipts */
    int parallel;
    struct session **sessions;        /* parallel of them, the engine's own first, */
    struct prompt_history *histories; /* and the tokens of each */
    struct job *jobs;                 /* a ring: line i in jobs[i % n_jobs] */
    size_t n_jobs, running;
    bool beginning;             /* a turn is being started: notices refer to the newest line */
    size_t read, index, failed; /* lines read; answered and written, of which failed */
    struct stats stats;         /* over all lines of this run */
    struct mcp *mcp;            /* with --mcp; NULL: no tools */
    struct chat_tools knows;    /* of the template, likewise */
    /* progress */
    struct progress progress;
    uint64_t tokens;
};

/* ---- progress on a terminal ---- */

static void draw_bar(struct batch *b)
{
    double seconds = clock_seconds(clock_now() - b->progress.begun);
    size_t before = b->out.done_before, total = b->in->total > before ? b->in->total - before : 0;
    char of[32] = "", failed[32] = "", note[128];

    if (b->in->total)
        snprintf(of, sizeof of, " of %zu", b->in->total);
    if (b->failed)
        snprintf(failed, sizeof failed, ", %zu failed", b->failed);
    snprintf(note, sizeof note, "line %zu%s%s, %.1f tokens/s", b->index, of, failed,
             seconds > 0 ? (double)b->tokens / seconds : 0.0);
    progress_draw(&b->progress, b->index > before ? (double)(b->index - before) : 0.0,
                  (double)total, note);
}

static void print_notice(struct batch *b, const char *text)
{
    char safe[600];

    progress_end(&b->progress);
    utf8_escape(safe, sizeof safe, text, strlen(text), 0);
    if (b->parallel == 1 || b->beginning)
        fprintf(stderr, "moetop: line %zu: %s\n", b->parallel == 1 ? b->index + 1 : b->read, safe);
    else
        fprintf(stderr, "moetop: %s\n", safe);
}

/* ---- one answer ---- */

static int on_notice(void *ctx, struct event *ev)
{
    if (ev->kind == EVENT_NOTICE && ev->text) {
        print_notice(ctx, ev->text);
        mem_free(ev->text); /* taken: it is written once */
        ev->text = NULL;
    }
    return signals_last() != 0;
}

static struct prompt_history *history_of(const struct batch *b, const struct session *s)
{
    int i = 0;

    while (b->sessions[i] != s)
        i++;
    return &b->histories[i];
}

static int on_event(void *ctx, struct event *ev)
{
    struct job *j = ctx;

    prompt_history_note(history_of(j->batch, j->session), ev);
    if (j->batch->o->receipts)
        receipt_text_note(&j->said, ev);
    if (j->batch->mcp)
        tool_talk_note(&j->talk, ev);
    if (ev->kind == EVENT_TOKEN) {
        strbuf_put(ev->token.part == PART_REASONING ? &j->reasoning : &j->text, ev->token.text,
                   ev->token.len);
        j->batch->tokens += ev->token.id >= 0;
        draw_bar(j->batch);
    } else if (ev->kind == EVENT_TURN_DONE) {
        j->done = ev->done_turn;
        j->session = NULL;
    } else if (ev->kind == EVENT_ERROR) {
        j->rc = error_set(&j->why, ev->failure.code, "%s", ev->text ? ev->text : "out of memory");
        j->session = NULL;
    }
    return signals_last() != 0 || j->text.failed || j->reasoning.failed;
}

static void on_routing(void *ctx, const struct routing *r)
{
    struct batch *b = ctx;
    int experts = engine_info(b->engine)->model->hp.n_experts;
    struct job *j = b->jobs;

    while (j < b->jobs + b->n_jobs && j->session != r->session)
        j++;
    for (int layer = 0; layer < r->n_layers && j < b->jobs + b->n_jobs; layer++)
        for (int i = 0; i < r->rows * r->used; i++) {
            int x = r->experts[(size_t)layer * r->layer_stride + (size_t)i];

            if (x < 0 || x >= experts)
                continue;
            j->counts[layer * experts + x]++;
            j->prompt_counts[layer * experts + x] += r->prefill;
        }
}

static json_t *count_table(const struct batch *b, const uint64_t *counts)
{
    const struct hparams *hp = &engine_info(b->engine)->model->hp;
    json_t *table = json_array();

    for (int l = 0; l < hp->n_layers; l++) {
        json_t *row = json_array();

        for (int x = 0; x < hp->n_experts; x++)
            json_array_append_new(row, json_integer((json_int_t)counts[l * hp->n_experts + x]));
        json_array_append_new(table, row);
    }
    return table;
}

static void put_answer(struct job *j)
{
    batch_answer_put(j->o, &j->text, &j->reasoning, &j->done);
    if (j->batch->mcp && json_array_size(j->talk.told))
        json_object_set(j->o, "tool_calls", j->talk.told);
    if (j->counts) {
        json_object_set_new(j->o, "experts", count_table(j->batch, j->counts));
        json_object_set_new(j->o, "experts_prompt", count_table(j->batch, j->prompt_counts));
    }
}

static int put_receipt(struct job *j)
{
    const struct batch *b = j->batch;
    const struct engine_info *info = engine_info(b->engine);
    char plan[TELEMETRY_PLAN_NAMES];
    const struct receipt_of of = {
        .info = info,
        .plan = telemetry_plan_names(engine_telemetry(b->engine), plan, sizeof plan),
        .model_sha256 = b->model,
        .settings = receipt_settings_now(b->o, info, j->line.turn.sampling.seed),
        .said = &j->line.said,
        .line = j->asked,
        .prompt = j->line.turn.prompt.ids,
        .n_prompt = j->line.turn.prompt.n,
        .sessions = b->parallel,
        .answer = &j->said};
    json_t *receipt;
    int rc = receipt_make(&of, &receipt, &j->why);

    json_decref(of.settings);
    return rc < 0 ? rc : json_object_set_new(j->o, "receipt", receipt);
}

/* The dialogue of the line's next answer, with its tools. */
static int tell_tools(struct job *j)
{
    struct dialogue said;
    int rc = tool_talk_dialogue(&j->talk, &j->batch->knows, &said, &j->why);

    if (rc == 0) {
        dialogue_release(&j->line.said);
        j->line.said = said;
    }
    return rc;
}

/* With --mcp: the calls of the answer are run. True: another answer has to follow. */
static bool calls_tools(struct job *j)
{
    int rc = j->rc == 0 && j->batch->mcp ? tool_talk_next(&j->talk, j->done.reason, &j->why) : 0;

    if (rc > 0 && (rc = tell_tools(j)) == 0)
        rc = 1;
    j->rc = rc < 0 ? rc : j->rc;
    return rc > 0;
}

/* Stores the result of a finished turn. */
static void end_answer(struct job *j)
{
    struct batch *b = j->batch;

    b->running--;
    stats_add_turn(&b->stats, &j->done);
    if (!signals_last() && calls_tools(j)) {
        strbuf_clear(&j->text);
        strbuf_clear(&j->reasoning);
        mem_free(j->line.turn.prompt.ids);
        j->line.turn.prompt = (struct prompt){0};
        j->again = true; /* by its owner: answers do not begin inside one another */
        return;
    }
    if (j->rc == 0 && (j->text.failed || j->reasoning.failed))
        j->rc = error_set(&j->why, ERR_MEMORY, "out of memory for the answer");
    if (j->rc == 0 && (signals_last() || j->done.reason == STOP_CANCELLED))
        j->rc = error_set(&j->why, ERR_CANCELLED, "interrupted");
    if (j->rc == 0)
        put_answer(j);
    if (j->rc == 0 && b->o->receipts)
        j->rc = put_receipt(j);
}

static bool interrupted(void *ctx)
{
    return signals_last() != 0;
}

/* Starts the answer of a line. */
static void begin_answer(struct job *j, struct session *s)
{
    struct prompt_history *history = history_of(j->batch, s);
    struct stop stop = {interrupted, NULL};
    struct turn *t = &j->line.turn;
    struct batch *b = j->batch;
    struct error shown_by_event;

    if (j->counts) {
        const struct hparams *hp = &engine_info(b->engine)->model->hp;
        size_t bytes = (size_t)hp->n_layers * (size_t)hp->n_experts * sizeof *j->counts;

        memset(j->counts, 0, bytes);
        memset(j->prompt_counts, 0, bytes);
        engine_session_forget(s); /* so that expert counts include the whole prompt */
        prompt_history_clear(history);
    }
    if (!b->running && (b->o->stats || b->o->stats_json)) /* takes as long as a short line */
        stats_begin_turn(&b->stats);
    b->running++;
    b->beginning = true;
    j->rc = prompt_make(engine_info(b->engine), history, &j->line.said, t->max_tokens, &stop,
                        &t->prompt, &j->why);
    if (j->rc == 0) {
        j->session = j->last = s;
        engine_session_turn(s, t, on_event, j, &shown_by_event);
    }
    b->beginning = false;
    if (!j->session) /* it ended at once */
        end_answer(j);
}

/* The same, and those that follow at once because this one ended at once. */
static void begin_answers(struct job *j, struct session *s)
{
    do {
        j->again = false;
        begin_answer(j, s);
    } while (j->again);
}

static int begin_talk(struct job *j)
{
    int rc;

    snprintf(j->where, sizeof j->where, "line %zu: ", j->index + 1);
    rc = tool_talk_begin(&j->talk, j->batch->mcp, j->batch->o, j->where, &j->line.said, &j->why);
    return rc < 0 ? rc : tell_tools(j);
}

/* Makes a job from a line; an invalid line is finished at once. */
static void begin_job(struct batch *b, struct job *j, const char *text, size_t n, bool too_long,
                      struct session *s)
{
    struct error ignored; /* reported when it is read again */
    json_t *id;

    j->batch = b;
    j->index = b->read - 1;
    j->o = batch_answer_new(b->read - 1, text, n);
    j->rc = 0;
    j->done = (struct turn_done_event){0};
    j->line = (struct batch_line){0};
    strbuf_clear(&j->text);
    strbuf_clear(&j->reasoning);
    receipt_text_clear(&j->said);
    if (b->o->receipts && !too_long && n && text[0] == '{')
        j->asked = json_read(text, n, "", &ignored);
    if (too_long)
        j->rc = error_set(&j->why, ERR_INPUT, "the line is longer than %zu MiB",
                          BATCH_LINE_MAX >> 20);
    else
        j->rc = batch_line_read(&j->line, text, n, &b->defaults, b->o->raw, b->system, &j->why);
    id = j->line.id ? json_loads(j->line.id, JSON_DECODE_ANY, NULL) : NULL;
    if (id)
        json_object_set_new(j->o, "id", id);
    if (j->rc == 0)
        j->rc = batch_line_edit(&j->line, engine_info(b->engine), &j->why);
    if (j->rc == 0 && b->mcp)
        j->rc = begin_talk(j);
    if (j->rc == 0)
        begin_answers(j, s);
}

/* Writes the oldest line, which is answered. */
static int finish_job(struct batch *b, struct job *j, struct error *e)
{
    int rc = j->rc;

    if (batch_is_fatal(rc)) {
        *e = j->why;
        return rc;
    }
    if (rc < 0) {
        b->failed++;
        batch_answer_failed(j->o, rc, &j->why);
    }
    if ((rc = batch_output_write(&b->out, j->o, e)) == 0)
        b->index++;
    return rc;
}

static void job_release(struct job *j)
{
    json_decref(j->o);
    json_decref(j->asked);
    j->o = j->asked = NULL;
    if (j->batch && j->batch->mcp)
        tool_talk_release(&j->talk);
    batch_line_release(&j->line);
}

/* ---- the mode ---- */

static int count_experts(struct batch *b, struct error *e)
{
    const struct hparams *hp = &engine_info(b->engine)->model->hp;
    size_t n = (size_t)hp->n_layers * (size_t)hp->n_experts;

    for (size_t i = 0; i < b->n_jobs; i++) {
        b->jobs[i].counts = mem_alloc(n, sizeof *b->jobs[i].counts);
        b->jobs[i].prompt_counts = mem_alloc(n, sizeof *b->jobs[i].prompt_counts);
        if (!b->jobs[i].counts || !b->jobs[i].prompt_counts)
            return error_set(e, ERR_MEMORY, "out of memory for the counts of experts");
    }
    engine_observe(b->engine, on_routing, b);
    return 0;
}

static int start_engine(struct batch *b, struct error *e)
{
    int rc = engine_setup_open(b->o, &b->engine, e);

    b->n_jobs = b->parallel > 1 ? AHEAD * (size_t)b->parallel : 1;
    b->sessions = mem_alloc((size_t)b->parallel, sizeof *b->sessions);
    b->histories = mem_alloc((size_t)b->parallel, sizeof *b->histories);
    b->jobs = mem_alloc(b->n_jobs, sizeof *b->jobs);
    if (rc == 0 && (!b->sessions || !b->histories || !b->jobs))
        rc = error_set(e, ERR_MEMORY, "out of memory for %d lines at a time", b->parallel);
    if (rc < 0)
        return rc;
    b->sessions[0] = engine_session(b->engine);
    for (int i = 1; i < b->parallel; i++)
        if ((rc = engine_session_open(b->engine, &b->sessions[i], e)) < 0) {
            error_prefix(e, "--parallel %d: only %d fit", b->parallel, i);
            return rc;
        }
    if (b->mcp && engine_info(b->engine)->chat)
        b->knows = chat_template_tools(engine_info(b->engine)->chat);
    if (b->o->batch_experts)
        rc = count_experts(b, e);
    if (rc == 0 && b->o->receipts)
        rc = receipt_model(b->o, engine_info(b->engine), b->model, e);
    engine_events_set(b->engine, on_notice, b);
    progress_begin(&b->progress, "batch"); /* without the loading time */
    return rc;
}

static struct session *idle_session(const struct batch *b)
{
    for (int i = 0; i < b->parallel; i++) {
        bool idle = true;

        for (size_t k = 0; k < b->n_jobs && idle; k++)
            idle = b->jobs[k].session != b->sessions[i];
        if (idle)
            return b->sessions[i];
    }
    return NULL;
}

/* Whether another line can be started. Before the engine is loaded only to find out whether there
 * is work. */
static bool has_room(const struct batch *b)
{
    return !b->engine || (b->read - b->index < b->n_jobs && idle_session(b));
}

/* Reads a line and starts to answer it. 1: started; 0: the end of the input. */
static int take_line(struct batch *b, struct error *e)
{
    const struct batch_input *r = b->in;
    int rc = batch_input_next(b->in, e);

    if (rc <= 0)
        return rc;
    if (b->read < b->out.done_before) { /* answered by an earlier run */
        if ((rc = batch_output_check(&b->out, b->read, r->line ? r->line : "", r->n, e)) < 0)
            return rc;
        b->read++;
        b->index++;
        return 1;
    }
    /* --seed -1: a new seed for every line */
    sampling_from_options(b->o, &b->defaults.sampling);
    if (!b->engine && (rc = start_engine(b, e)) < 0)
        return rc;
    draw_bar(b);
    b->read++;
    begin_job(b, &b->jobs[(b->read - 1) % b->n_jobs], r->line ? r->line : "", r->n, r->too_long,
              idle_session(b));
    return 1;
}

/* Writes finished answers in the order of the input. */
static int write_answers(struct batch *b, struct error *e)
{
    int rc = 0;

    while (rc == 0 && b->index < b->read) {
        struct job *j = &b->jobs[b->index % b->n_jobs];

        if (j->session)
            break;
        rc = finish_job(b, j, e);
        job_release(j);
    }
    return rc;
}

/* One pass of all running answers; then stores those that have ended. */
static void step(struct batch *b)
{
    for (size_t i = b->index; i < b->read; i++)
        b->jobs[i % b->n_jobs].stepped = b->jobs[i % b->n_jobs].session != NULL;
    engine_step(b->engine);
    for (size_t i = b->index; i < b->read; i++) {
        struct job *j = &b->jobs[i % b->n_jobs];

        if (j->stepped && !j->session)
            end_answer(j);
        if (j->again)
            begin_answers(j, j->last);
    }
}

static int answer_lines(struct batch *b, struct error *e)
{
    bool ended = false;
    int rc = 0;

    while (rc == 0 && !(ended && b->index == b->read)) {
        bool waits = !ended && has_room(b);

        if (waits && (!b->running || batch_input_ready(b->in))) {
            rc = take_line(b, e);
            ended = rc == 0;
            rc = rc < 0 ? rc : 0;
        } else if (b->running) {
            step(b);
        }
        if (rc == 0)
            rc = write_answers(b, e);
    }
    return rc;
}

/* The same with a server. */
static int answer_remotely(struct batch *b, struct error *e)
{
    struct batch_remote r = {.o = b->o,
                             .in = b->in,
                             .out = &b->out,
                             .stats = &b->stats,
                             .defaults = &b->defaults,
                             .system = b->system,
                             .parallel = b->parallel};
    int rc;

    sampling_from_options(b->o, &b->defaults.sampling); /* validated when a line is parsed */
    rc = batch_remote_run(&r, e);
    b->index = b->read = b->out.done_before + r.written;
    b->failed += r.failed;
    return rc < 0 ? error_prefix(e, "line %zu", b->index + 1) : rc;
}

static int run_lines(struct batch *b, struct error *e)
{
    int rc = b->o->connect ? answer_remotely(b, e) : answer_lines(b, e);

    progress_end(&b->progress);
    if (rc == ERR_CANCELLED && b->engine)
        error_set(e, rc, "interrupted after %zu lines%s", b->index,
                  b->o->output ? "; the same command with --resume goes on there" : "");
    else if (rc < 0 && b->engine && batch_is_fatal(rc))
        error_prefix(e, "line %zu", b->index + 1);
    if (rc == 0 && b->read < b->out.done_before)
        rc = error_set(
            e, ERR_USAGE,
            "%s holds %zu answers, but the input has only %zu lines; is it the input of that run?",
            b->out.name, b->out.done_before, b->read);
    return rc;
}

static int check_options(const struct options *o, struct error *e)
{
    if (o->prompt || o->file)
        return error_set(e, ERR_USAGE, "--batch brings its own prompts; %s has no place beside it",
                         o->prompt ? "-p" : "-f");
    if (o->parallel.n && parallel_count(o) > 1)
        return error_set(e, ERR_USAGE, "--batch takes one number for --parallel");
    if (o->connect && (o->receipts || o->batch_experts))
        return error_set(e, ERR_USAGE, "%s needs the model here; --connect has it elsewhere",
                         o->receipts ? "--receipts" : "--batch-experts");
    if (o->mcp && (o->connect || o->receipts))
        return error_set(e, ERR_USAGE, "--mcp has no place beside %s",
                         o->connect ? "--connect" : "--receipts");
    if (o->resume && !o->output)
        return error_set(e, ERR_USAGE, "--resume goes on in a file: name it with --output");
    return 0;
}

/* Statistics of the answers, also if the run was interrupted; keeps an earlier error in e. */
static int tell_stats(struct batch *b, int rc, struct error *e)
{
    struct error own = {0};
    int told;

    stats_take(&b->stats, b->engine ? engine_info(b->engine) : NULL,
               b->engine ? engine_telemetry(b->engine) : NULL);
    if (b->engine) {
        engine_close(b->engine);
        b->engine = NULL;
    }
    if (b->o->stats || b->o->stats_json)
        /* the buffer for it would be counted as the model's memory */
        stats_measure(&b->stats);
    told = stats_finish(&b->stats, b->o, stderr, &own);
    if (told < 0 && rc >= 0) {
        *e = own;
        return told;
    }
    return rc;
}

static int open_files(struct batch *b, struct error *e)
{
    int rc;

    if (!(b->in = mem_alloc(1, sizeof *b->in)))
        return error_set(e, ERR_MEMORY, "out of memory for the input");
    if ((rc = batch_input_open(b->in, b->o->batch, e)) < 0 ||
        (rc = batch_output_open(&b->out, b->o->output, b->o->resume, b->in->file, e)) < 0)
        return rc;
    b->failed = b->out.failed_before;
    return 0;
}

int batch_run(struct options *o, struct error *e)
{
    struct batch b = {.o = o, .out = {.fd = -1}, .parallel = parallel_most(o)};
    int rc;

    signals_catch();
    progress_begin(&b.progress, "batch");
    b.defaults = (struct turn){.max_tokens = o->n_predict,
                               .ignore_eos = o->ignore_eos,
                               .stops = o->stop.items,
                               .n_stops = o->stop.n};
    if ((rc = check_options(o, e)) < 0 || (rc = stats_open(&b.stats, o, e)) < 0 ||
        (rc = prompt_system(o, &b.system, e)) < 0 ||
        (rc = grammar_from_options(o, &b.defaults.grammar, e)) < 0 ||
        (rc = open_files(&b, e)) < 0 || (rc = tool_talk_open(o, &b.mcp, e)) < 0)
        goto out;
    rc = run_lines(&b, e);
    if (rc == 0)
        rc = batch_output_sync(&b.out, e);
    if (rc == 0 && b.failed)
        rc = error_set(e, ERR_INPUT, "%zu of %zu lines failed; their \"error\" says why", b.failed,
                       b.index);
    rc = tell_stats(&b, rc, e);
out:
    engine_close(b.engine);
    if (b.in)
        batch_input_release(b.in);
    mem_free(b.in);
    batch_output_release(&b.out);
    stats_release(&b.stats);
    mem_free(b.system);
    grammar_free(b.defaults.grammar);
    for (size_t i = 0; i < b.n_jobs && b.jobs; i++) {
        job_release(&b.jobs[i]);
        strbuf_release(&b.jobs[i].text);
        strbuf_release(&b.jobs[i].reasoning);
        receipt_text_release(&b.jobs[i].said);
        mem_free(b.jobs[i].counts);
        mem_free(b.jobs[i].prompt_counts);
    }
    mem_free(b.jobs);
    mcp_close(b.mcp);
    for (int i = 0; i < b.parallel && b.histories; i++)
        prompt_history_release(&b.histories[i]);
    mem_free(b.histories);
    mem_free(b.sessions);
    return rc;
}
