/* Which part of a long chat the model sees, and a summary that replaces the rest. The summary
 * belongs to the message after it (transcript.h), so branches and /undo keep it with that message;
 * no message is lost. UI thread. */
#include "app/chat/internal.h"
#include "app/chat/turn.h"
#include "engine/base/mem.h"

#include <string.h>

/* tokens: maximum of a summary, and as a fraction of the context */
#define TOKENS_MOST 400
#define CONTEXT_PART 8

#define ASK                                                                                     \
    "Summarise our conversation so far in a short paragraph: facts, names, decisions and open " \
    "questions that are needed to go on with it. Write the summary alone."

size_t conversation_view(const struct conversation *c)
{
    size_t at = transcript_view(&c->transcript) + c->dropped;

    return at < c->transcript.n ? at : c->transcript.n;
}

void conversation_view_moved(struct conversation *c, int dropped)
{
    bool moved = c->dropped != (size_t)dropped;
    size_t view;

    c->dropped = (size_t)dropped;
    view = conversation_view(c);
    if (!moved)
        return;
    if (c->hooks.view)
        c->hooks.view(c->hooks.ctx);
    else if (dropped)
        conversation_say(c, SAY_NOTICE,
                         "the model no longer sees the %zu oldest messages; /compact puts a "
                         "summary in their place",
                         view - (c->transcript.entries[0].role == ROLE_SYSTEM));
}

/* Where a summary belongs: the first user message that the model sees completely; if it sees all,
 * the last one. n: nowhere. */
static size_t place(const struct conversation *c)
{
    const struct transcript *t = &c->transcript;
    size_t at = c->dropped ? conversation_view(c) : transcript_last(t, ROLE_USER),
           first = t->n && t->entries[0].role == ROLE_SYSTEM ? 1 : 0;

    while (at < t->n && t->entries[at].role != ROLE_USER)
        at++;
    return at > first ? at : t->n;
}

/* Everything is computed again from here on. */
static int keep(struct conversation *c, size_t at, const char *text)
{
    struct error e = {0};

    if (transcript_summary(&c->transcript, at, text, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    c->dropped = 0;
    prompt_history_clear(&c->prompter.history);
    conversation_changed(c);
    return 0;
}

static void told(struct conversation *c, size_t at)
{
    size_t n = at - (c->transcript.entries[0].role == ROLE_SYSTEM);

    conversation_say(c, SAY_NOTICE,
                     "a summary stands for %zu message%s now; /compact edits it, /compact none "
                     "drops it",
                     n, n == 1 ? "" : "s");
}

/* The messages before entry `at`, and the request for a summary. */
static int question(struct conversation *c, size_t at, struct dialogue *said, struct turn *turn,
                    struct error *e)
{
    struct transcript before = c->transcript; /* the same entries, fewer of them */
    struct message *ask;
    const struct engine_info *info = conversation_info(c);
    int most = info ? info->context / CONTEXT_PART : TOKENS_MOST, rc;

    before.n = at;
    if ((rc = transcript_messages(&before, &said->messages, &said->n_messages, e)) < 0)
        return rc;
    if (!MEM_FIT(said->messages, said->n_messages + 1))
        return error_set(e, ERR_MEMORY, "out of memory for the summary");
    ask = said->messages + said->n_messages++;
    *ask = (struct message){.role = ROLE_USER, .text = mem_string(ASK)};
    if (!ask->text)
        return error_set(e, ERR_MEMORY, "out of memory for the summary");
    sampling_from_options(c->options, &turn->sampling);
    turn->max_tokens = most < TOKENS_MOST ? most : TOKENS_MOST;
    return 0;
}

static int write_one(struct conversation *c, size_t at)
{
    struct dialogue said = {0};
    struct turn turn = {0};
    struct error e = {0};

    if (question(c, at, &said, &turn, &e) < 0 || conversation_tell(c, &said, false, &e) < 0) {
        dialogue_release(&said);
        turn_release(&turn);
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    conversation_answer_clear(c);
    prompt_history_clear(&c->prompter.history);
    if (conversation_turn_begin(c, &said, &turn) < 0)
        return -1;
    c->busy = c->compacting = true;
    c->compact_at = at;
    conversation_say(c, SAY_NOTICE, "writing a summary of what was said before; %s stops it",
                     c->hooks.keys ? "Esc" : "Ctrl-C");
    return 0;
}

int conversation_compact(struct conversation *c, const char *text)
{
    const struct transcript *t = &c->transcript;
    size_t at = place(c);

    if (at == t->n) {
        conversation_say(c, SAY_NOTICE, "there is nothing before your last message to summarise");
        return -1;
    }
    if (text && keep(c, at, text) == 0)
        told(c, at);
    if (text)
        return 0;
    if (t->entries[at].summary && c->hooks.edit) {
        char *line = mem_alloc(strlen(t->entries[at].summary) + 16, 1);

        if (line) {
            strcpy(line, "/compact ");
            strcat(line, t->entries[at].summary);
            c->hooks.edit(c->hooks.ctx, line);
        }
        mem_free(line);
        return 0;
    }
    if (!conversation_info(c)) {
        conversation_say(c, SAY_NOTICE, "not yet: the model is still loading");
        return -1;
    }
    return write_one(c, at);
}

int conversation_compact_none(struct conversation *c)
{
    bool any = false;

    for (size_t i = 0; i < c->transcript.n; i++)
        if (c->transcript.entries[i].summary) {
            any = true;
            transcript_summary(&c->transcript, i, "", NULL);
        }
    if (!any) {
        conversation_say(c, SAY_NOTICE, "there is no summary; /compact makes one");
        return -1;
    }
    c->dropped = 0;
    prompt_history_clear(&c->prompter.history);
    conversation_changed(c);
    return 0;
}

/* Blanks and line ends around it come from the template. */
static const char *trimmed(struct strbuf *b)
{
    while (b->len && strchr(" \n\t", b->data[b->len - 1]))
        b->data[--b->len] = 0;
    return b->data ? b->data + strspn(b->data, " \n\t") : "";
}

void conversation_compact_ended(struct conversation *c, enum stop_reason stop)
{
    const char *text = trimmed(&c->answer);
    bool whole = stop == STOP_TOKEN || stop == STOP_LENGTH || stop == STOP_STRING;

    c->compacting = false;
    prompt_history_clear(&c->prompter.history);
    if (!whole || !*text || c->answer.failed)
        conversation_say(c, SAY_NOTICE, "no summary was written: everything is as before");
    else if (keep(c, c->compact_at, text) == 0)
        told(c, c->compact_at);
    strbuf_clear(&c->answer);
}
