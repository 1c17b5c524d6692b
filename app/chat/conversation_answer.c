/* The running answer of a conversation: sends messages and the turn, stores the text as it arrives,
 * and records data about the answer at its end. UI thread. */
#include "app/chat/internal.h"
#include "app/chat/turn.h"
#include "app/common/answer_text.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* an answer counts as paced if it waited for more than this share of its time */
#define PACED_SHARE 0.05

void conversation_answer_ended(struct conversation *c, enum stop_reason stop)
{
    struct error e = {0};
    struct transcript_entry *last;

    if (c->answer.failed)
        conversation_say(c, SAY_TROUBLE,
                         "out of memory: what is kept of this answer is not all of it");
    if (!c->transcript.n)
        return;
    if (transcript_text(&c->transcript, c->transcript.n - 1, strbuf_text(&c->answer), &e) < 0 ||
        (c->thought.len &&
         transcript_reasoning(&c->transcript, c->transcript.n - 1, c->thought.data, &e) < 0))
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    last = &c->transcript.entries[c->transcript.n - 1];
    snprintf(last->stop, sizeof last->stop, "%s", stop_reason_word(stop));
    c->tools.due = c->tools.mcp && (stop == STOP_TOKEN || stop == STOP_STRING);
    conversation_turn_save(c);
}

/* The active adapters, by name and strength, and the edits of experts, as many as fit. */
static void note_adapters(struct conversation *c, char *out, size_t size)
{
    const struct telemetry *t = conversation_telemetry(c);
    const struct engine_info *info = c->worker ? worker_info(c->worker) : NULL;
    size_t n = 0;

    *out = 0;
    for (int i = 0; t && info && i < adapters_count(info->adapters) && n < size; i++)
        if (t->strengths[i] != 0)
            n += (size_t)snprintf(out + n, size - n, "%s%.48s %g", n ? ", " : "",
                                  adapters_at(info->adapters, i)->name, (double)t->strengths[i]);
    if (t && t->n_edits && n < size)
        snprintf(out + n, size - n, "%sexperts edited: %.100s", n ? ", " : "", t->edits);
}

/* The tokens of /continue are added to those already there. */
void conversation_answer_measured(struct conversation *c, const struct turn_done_event *d)
{
    struct transcript_entry *last = &c->transcript.entries[c->transcript.n - 1];
    double before = last->tok_s > 0 ? last->tokens / last->tok_s : 0,
           now = clock_seconds(d->decode_ns);
    double waited = clock_seconds(d->total_ns) - clock_seconds(d->prefill_ns) - now;
    int steps = d->completion_tokens > 1 ? d->completion_tokens - 1 : 0;

    last->paced |= c->paced && waited > PACED_SHARE * clock_seconds(d->total_ns);
    last->seconds += clock_seconds(d->total_ns);
    last->tok_s = before + now > 0 && steps
                      ? ((before > 0 ? last->tokens : 0) + steps) / (before + now)
                      : last->tok_s;
    last->tokens += d->completion_tokens;
    note_adapters(c, last->adapters, sizeof last->adapters);
}

/* Text is written to disk before it is shown. */
static void part_write(struct conversation *c)
{
    struct error e = {0};

    if (!c->busy || c->compacting ||
        autosave_part_write(&c->autosave, c->answer.data, c->answer.len, &e) == 0)
        return;
    if (!c->save_said)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    c->save_said = true;
}

/* Text of the answer arrived; it is written to disk before it is shown. */
void conversation_answer_text(struct conversation *c, const struct token_event *t)
{
    if (!t->len)
        return;
    answer_text_put(&c->answer, &c->thought, &c->part, t);
    calls_text_note(&c->tools.text, t);
    part_write(c);
}

static void entry_added(struct conversation *c)
{
    if (c->hooks.added)
        c->hooks.added(c->hooks.ctx, &c->transcript.entries[c->transcript.n - 1]);
}

static bool reseed(const struct conversation *c, struct turn *turn)
{
    if (c->reseeded)
        turn->sampling.seed = c->seed;
    return true;
}

int conversation_turn_begin(struct conversation *c, struct dialogue *said, struct turn *turn)
{
    struct error e = {0};

    if (conversation_link_ask(c, said, turn, &e) == 0)
        return 0;
    conversation_say(c, SAY_TROUBLE, "%s", e.text);
    return -1;
}

/* Its prompt is made first; conversation_pump then sends it. */
static int turn_begin(struct conversation *c, bool go_on)
{
    struct dialogue said = {0};
    struct turn turn = {.probabilities = true, .logprobs = true, .top_logprobs = 10};
    struct error e = {0};

    if (turn_make(c->options, &c->transcript, go_on, &said, &turn, &e) == 0 &&
        conversation_tell(c, &said, true, &e) == 0 && reseed(c, &turn)) {
        conversation_receipt_begin(c, &turn, go_on);
        conversation_beside_begin(c, go_on, turn.sampling.seed);
        return conversation_turn_begin(c, &said, &turn);
    }
    dialogue_release(&said);
    turn_release(&turn);
    conversation_say(c, SAY_TROUBLE, "%s", e.text);
    return -1;
}

void conversation_answer_clear(struct conversation *c)
{
    c->paced = c->pace > 0;
    conversation_tokens_keep(c);
    strbuf_clear(&c->answer);
    strbuf_clear(&c->thought);
    calls_text_clear(&c->tools.text);
    c->part = PART_ANSWER;
}

/* The text that is continued; calls in it are part of the text from now on. */
static void go_on_from(struct conversation *c, const struct transcript_entry *x)
{
    strbuf_puts(&c->answer, x->text);
    strbuf_puts(&c->tools.text.plain, x->text);
    transcript_tools(&c->transcript, c->transcript.n - 1, NULL);
}

int conversation_answer(struct conversation *c, bool go_on)
{
    struct error e = {0};

    assert(!c->busy && (!go_on || c->transcript.n > 0));
    c->editing = false;
    c->tools.rounds = c->tools.going_on ? c->tools.rounds : 0;
    conversation_answer_clear(c);
    if (go_on)
        go_on_from(c, &c->transcript.entries[c->transcript.n - 1]);
    else if (transcript_append(&c->transcript, ROLE_ASSISTANT, "", &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    if (turn_begin(c, go_on) < 0) {
        if (!go_on)
            transcript_unjoin(&c->transcript);
        return -1;
    }
    c->busy = true;
    c->answered = c->transcript.entries[c->transcript.n - 1].tokens;
    autosave_part_begin(&c->autosave);
    part_write(c);
    entry_added(c);
    return 0;
}

/* The edited message and everything after it is put aside, now that a new message replaces it. */
static void edit_cut(struct conversation *c)
{
    size_t at = transcript_last(&c->transcript, ROLE_USER);

    if (c->editing && at < c->transcript.n)
        conversation_fork(c, at);
    c->editing = false;
}

static int message_send(struct conversation *c, const char *text)
{
    struct error e = {0};

    edit_cut(c);
    c->n_undone = 0;
    /* the measurement is cancelled, and tried again after this answer */
    if (c->measuring) {
        conversation_link_cancel(c);
        c->auto_done = false;
    }
    if (transcript_append(&c->transcript, ROLE_USER, text, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    entry_added(c);
    conversation_turn_save(c);
    return conversation_answer(c, false);
}

/* A message waits until the model and the tool servers are there. */
static bool can_send(const struct conversation *c)
{
    return c->ready && !conversation_busy(c) && !(c->tools.mcp && mcp_starting(c->tools.mcp));
}

void conversation_waiting_send(struct conversation *c)
{
    char *text = c->waiting;

    if (!text || !can_send(c) || c->worker_gone)
        return;
    c->waiting = NULL;
    message_send(c, text);
    mem_free(text);
}

int conversation_submit(struct conversation *c, const char *text)
{
    assert(text);
    if (!text[strspn(text, " \t\n")])
        return 0;
    if (c->worker_gone || (c->failure.code && !c->ready)) {
        conversation_say(c, SAY_TROUBLE, "there is no engine to answer; /quit ends");
        return -1;
    }
    if (!can_send(c)) {
        if (c->waiting) {
            conversation_say(c, SAY_NOTICE, "one message is waiting already; %s takes it back",
                             c->hooks.keys ? "Esc" : "Ctrl-C");
            return -1;
        }
        if ((c->waiting = mem_string(text))) {
            if (c->ready && !conversation_busy(c))
                conversation_say(c, SAY_NOTICE, "the message waits for the tool servers");
            return 0;
        }
        conversation_say(c, SAY_TROUBLE, "out of memory: the message was not taken");
        return -1;
    }
    return message_send(c, text);
}

const char *conversation_waiting(const struct conversation *c)
{
    return c->waiting;
}

char *conversation_unqueue(struct conversation *c)
{
    char *text = c->waiting;

    c->waiting = NULL;
    return text;
}

void conversation_edit(struct conversation *c)
{
    size_t at = transcript_last(&c->transcript, ROLE_USER);

    assert(at < c->transcript.n && c->hooks.edit);
    c->editing = true;
    conversation_say(
        c, SAY_NOTICE,
        "Enter sends it in place of your last message; Ctrl-C leaves everything as it is");
    c->hooks.edit(c->hooks.ctx, c->transcript.entries[at].text);
}

bool conversation_edit_end(struct conversation *c)
{
    if (!c->editing)
        return false;
    c->editing = false;
    conversation_say(c, SAY_NOTICE, "your last message stays as it was");
    return true;
}
