/* See answer.h. */
#include "app/serve/dispatch/answer.h"

#include "app/serve/dispatch/tool_answer.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <math.h>
#include <string.h>

/* Sends what a dialect has written. */
static void put_line(struct job *j)
{
    if (j->line.len) {
        reply_stream_put(j->x, j->line.data, j->line.len);
        j->last_put_ns = clock_now();
    }
    strbuf_clear(&j->line);
}

static bool streams(const struct job *j)
{
    return j->wish.stream && !j->failed && !j->cancelled;
}

void answer_begin(struct job *j)
{
    if (j->wish.stream)
        reply_stream_begin(j->x, j->dialect->ndjson);
}

void answer_ping(struct job *j)
{
    if (j->dialect->ndjson) /* has no comments */
        return;
    strbuf_puts(&j->line, ": ping\n\n");
    put_line(j);
}

static void piece(struct task *t, enum answer_part part, const char *text, size_t n)
{
    struct job *j = t->job;

    strbuf_put(part == PART_REASONING ? &t->reasoning : &t->text, text, n);
    if (streams(j)) {
        j->dialect->piece(j, t, part, text, n);
        put_line(j);
    }
}

static void add_entry(struct task *t, const struct logprobs_event *p, bool first)
{
    const struct dialect *dialect = t->job->dialect;
    json_t *o;

    if (!t->logprobs || !dialect->entry)
        return;
    o = dialect->entry(server_info(t->job->server)->tokenizer, p, first);
    json_array_append(t->logprobs, o);
    json_array_append_new(t->fresh, o);
}

/* The token of the next text; only tokens of the answer are reported. */
static void note_logprobs(struct task *t, enum answer_part part)
{
    t->has_newest = false;
    if (part == PART_ANSWER)
        add_entry(t, &t->newest, json_array_size(t->logprobs) == 0 && !t->goes_on);
}

/* The first token of a prompt has no probability: nothing precedes it. */
static void begin_scores(struct task *t)
{
    struct logprobs_event first = {.logprob = NAN};

    if (!t->prompt || !t->logprobs)
        return;
    first.id = t->prompt[0];
    add_entry(t, &first, true);
    t->scored = 1;
}

static void logprobs(struct task *t, const struct logprobs_event *p)
{
    int bos = server_info(t->job->server)->model->hp.bos;

    if (t->job->wish.asks) {
        if (t->n_asked < TURN_ASKED)
            t->asked[t->n_asked++] = p->logprob;
        return;
    }
    if (t->scored > 0 && t->scored < t->n_prompt) {
        add_entry(t, p, t->scored == 1 && t->prompt[0] == bos);
        t->scored++;
        return;
    }
    t->newest = *p;
    t->has_newest = true;
}

static void started(struct task *t, const struct event *ev)
{
    struct job *j = t->job;

    t->done.cached_tokens = (int)ev->progress.done;
    begin_scores(t);
    if (!streams(j))
        return;
    if (!j->begun && j->dialect->begin)
        j->dialect->begin(j);
    j->begun = true;
    if (j->dialect->task_begin)
        j->dialect->task_begin(j, t);
    put_line(j);
}

/* The held text is not a call: sends it. */
static void let_go(struct task *t)
{
    t->answers = true;
    if (!t->held.len)
        return;
    piece(t, PART_ANSWER, t->held.data, t->held.len);
    strbuf_clear(&t->held);
    t->calls = (struct call_stream){0}; /* it was read as a call */
}

static void read_calls(struct task *t)
{
    if (!streams(t->job))
        return;
    tools_stream(t);
    put_line(t->job);
}

/* true: the text is held until it is clear whether it is a call. */
static bool hold(struct task *t, enum answer_part part, const char *text, size_t n)
{
    if (t->answers || part == PART_REASONING)
        return false;
    strbuf_put(&t->held, text, n);
    if (!t->sent_calls && !tools_may_call(t->job, t->held.data, t->held.len))
        let_go(t);
    else
        read_calls(t);
    return true;
}

static void token(struct task *t, const struct token_event *k)
{
    struct job *j = t->job;

    if (k->first && !j->first_ns)
        j->first_ns = clock_now();
    if (k->id >= 0)
        t->done.completion_tokens++;
    if (k->id >= 0 && k->part == PART_REASONING)
        t->reasoning_tokens++;
    if (k->id >= 0 && t->has_newest)
        note_logprobs(t, k->part);
    if (!k->len)
        return;
    if (j->wish.call ? k->part == PART_ANSWER : k->part == PART_TOOL_CALL && j->wish.tools) {
        if (t->held.len && t->sent_calls) { /* it is a call without a marker */
            hold(t, PART_ANSWER, k->text, k->len);
            return;
        }
        let_go(t);
        strbuf_put(&t->call, k->text, k->len);
        read_calls(t);
    } else if (!hold(t, k->part, k->text, k->len))
        piece(t, k->part, k->text, k->len);
}

static void end_task(struct task *t)
{
    t->over = true;
    t->slot = NULL;
    t->job->left--;
}

static void finished(struct task *t, const struct turn_done_event *done)
{
    struct job *j = t->job;
    size_t told = t->text.len;

    if (j->wish.embed && !t->embedding && done->reason != STOP_CANCELLED) {
        answer_failed(t, ERR_MEMORY, "no memory for an embedding");
        return;
    }
    t->done = *done;
    end_task(t);
    if (t->call.len || t->held.len)
        tools_end(t, streams(j));
    t->finish = t->tool_calls && !t->call_cut                                 ? "tool_calls"
                : done->reason == STOP_LENGTH || done->reason == STOP_CONTEXT ? "length"
                                                                              : "stop";
    if (done->reason == STOP_CANCELLED && !j->cancelled)
        j->cancelled = true; /* cancels the engine's turn */
    if (!streams(j))
        return;
    if (t->text.len > told) /* the text of a call that could not be parsed */
        j->dialect->piece(j, t, PART_ANSWER, t->text.data + told, t->text.len - told);
    j->dialect->task_end(j, t);
    put_line(j);
}

void answer_failed(struct task *t, int code, const char *text)
{
    struct job *j = t->job;
    struct error e = {.code = code};
    struct refusal why;

    end_task(t);
    if (j->failed)
        return;
    error_set(&e, code < 0 ? code : ERR_DEVICE, "%s", text ? text : "the engine failed");
    refuse_error(&why, &e);
    if (j->wish.stream) {
        if (j->dialect->failure && !j->cancelled)
            j->dialect->failure(j, &why);
        put_line(j);
        reply_stream_end(j->x, false);
    } else {
        reply_refusal(j->x, &why);
    }
    j->failed = true;
}

static void take_embedding(struct task *t, struct event *ev)
{
    mem_free(t->embedding);
    t->embedding = ev->embedding.values;
    t->n_embedding = ev->embedding.n;
    ev->embedding.values = NULL;
}

void answer_event(struct task *t, struct event *ev)
{
    switch (ev->kind) {
    case EVENT_TURN_STARTED: started(t, ev); break;
    case EVENT_LOGPROBS: logprobs(t, &ev->logprobs); break;
    case EVENT_TOKEN: token(t, &ev->token); break;
    case EVENT_EMBEDDING: take_embedding(t, ev); break;
    case EVENT_TURN_DONE: finished(t, &ev->done_turn); break;
    case EVENT_ERROR: answer_failed(t, ev->failure.code, ev->text); break;
    default: break;
    }
}

/* Why the rest is not delivered: the client has disconnected, or the server is stopping. */
static void end_cancelled(struct job *j)
{
    struct error e = {.code = ERR_CANCELLED};
    struct refusal why;

    refuse_error(&why, &e);
    if (!j->wish.stream) {
        reply_refusal(j->x, &why);
        return;
    }
    if (j->dialect->failure)
        j->dialect->failure(j, &why);
    put_line(j);
    reply_stream_end(j->x, true);
}

void answer_end(struct job *j)
{
    struct usage u = job_usage(j);

    /* a client that has gone is told of on the server's thread meanwhile */
    pthread_mutex_lock(&j->x->lock);
    j->x->prompt_tokens = u.prompt;
    j->x->cached_tokens = u.cached;
    j->x->completion_tokens = u.completion;
    j->x->first_ns = j->first_ns;
    pthread_mutex_unlock(&j->x->lock);
    if (j->failed)
        return;
    if (j->cancelled) {
        end_cancelled(j);
    } else if (j->wish.stream) {
        j->dialect->end(j);
        put_line(j);
        reply_stream_end(j->x, false);
    } else if (j->dialect->whole_text) {
        j->dialect->whole_text(j, &j->line);
        reply_long_json(j->x, &j->line);
    } else {
        reply_json(j->x, 200, j->dialect->whole(j));
    }
}
