/* Branches: undo, regenerate, continue with another token, switch between branches. UI thread. */
#include "app/chat/internal.h"
#include "app/setup/engine_options.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <assert.h>
#include <string.h>

#define BEGINNING 60 /* columns */

static int trouble(struct conversation *c, const struct error *e)
{
    conversation_say(c, SAY_TROUBLE, "%s", e->text);
    return -1;
}

/* The beginning of a text on one line, quoted, without the marks of a heading or a list. */
static void put_beginning(struct strbuf *b, const char *text)
{
    size_t columns, n;

    text += strspn(text, " \t\n#*>-");
    n = utf8_fit(text, strcspn(text, "\n"), BEGINNING, &columns);
    strbuf_putc(b, '"');
    strbuf_put(b, text, n);
    strbuf_puts(b, text[n] ? "\u2026\"" : "\"");
}

void conversation_end_say(struct conversation *c)
{
    const struct transcript *t = &c->transcript;
    size_t at = transcript_last(t, ROLE_USER);
    struct strbuf b = {0};

    if (c->hooks.keys) /* the screen shows it */
        return;
    if (at == t->n) {
        conversation_say(c, SAY_NOTICE, "nothing is said in the chat now");
        return;
    }
    strbuf_puts(&b, "the chat ends with your message ");
    put_beginning(&b, t->entries[at].text);
    if (at + 1 < t->n) {
        strbuf_puts(&b, " and the answer ");
        put_beginning(&b, t->entries[t->n - 1].text);
    }
    if (b.data)
        conversation_say(c, SAY_NOTICE, "%s", b.data);
    strbuf_release(&b);
}

int conversation_undo(struct conversation *c)
{
    size_t at = transcript_last(&c->transcript, ROLE_USER),
           most = sizeof c->undone / sizeof *c->undone;

    if (at == c->transcript.n || c->n_undone == most) {
        conversation_say(c, SAY_NOTICE, "there is nothing to take back");
        return -1;
    }
    if (conversation_fork(c, at) < 0)
        return -1;
    c->undone[c->n_undone++] = at;
    conversation_end_say(c);
    return 0;
}

int conversation_redo(struct conversation *c)
{
    struct error e = {0};

    if (!c->transcript.waiting.n) {
        conversation_say(c, SAY_NOTICE, "nothing was taken back");
        return -1;
    }
    c->editing = false;
    c->n_undone -= c->n_undone > 0;
    if (transcript_unfork(&c->transcript, &e) < 0 ||
        (c->n_undone && transcript_fork(&c->transcript, c->undone[c->n_undone - 1], &e) < 0))
        return trouble(c, &e);
    conversation_changed(c);
    conversation_end_say(c);
    return 0;
}

/* A seed that none of the sibling answers had, and a notice about it. */
static void reseed(struct conversation *c, size_t siblings)
{
    struct sampling s;

    sampling_from_options(c->options, &s);
    c->reseeded = s.temperature > 0;
    c->seed = c->options->seed == OPTION_SEED_RANDOM ? s.seed : c->options->seed + siblings;
    if (c->reseeded)
        conversation_say(c, SAY_NOTICE, "answer %zu, seed %llu", siblings + 1,
                         (unsigned long long)c->seed);
    else
        conversation_say(
            c, SAY_NOTICE,
            "temp is 0, so the same settings give the same answer; /set temp 0.8 varies it");
}

int conversation_regen(struct conversation *c)
{
    size_t at = transcript_last(&c->transcript, ROLE_USER), siblings;
    int rc;

    if (at == c->transcript.n) {
        conversation_say(c, SAY_NOTICE, "there is no answer to make anew");
        return -1;
    }
    siblings = at + 1 < c->transcript.n ? transcript_siblings(&c->transcript, at + 1) : 0;
    if (conversation_fork(c, at + 1) < 0)
        return -1;
    if (siblings)
        reseed(c, siblings);
    rc = conversation_answer(c, false);
    c->reseeded = false;
    return rc;
}

int conversation_switch(struct conversation *c, size_t at, size_t k)
{
    struct error e = {0};

    assert(!c->busy);
    c->editing = false;
    c->n_undone = 0;
    if (transcript_switch(&c->transcript, at, k, &e) < 0)
        return trouble(c, &e);
    conversation_changed(c);
    conversation_end_say(c);
    return 0;
}

size_t conversation_fork_before(const struct conversation *c, size_t most)
{
    const struct transcript *t = &c->transcript;

    for (size_t i = t->n; i-- > 0;)
        if (i <= most && transcript_siblings(t, i) > 1)
            return i;
    return t->n;
}

/* Checks that the answer is the chat's last entry, and that the token can be replaced. */
static bool can_branch(struct conversation *c, const struct answer_kept *a, size_t at)
{
    const char *why = NULL;

    if (conversation_busy(c))
        why = "not while an answer is being written";
    else if (at >= a->n)
        why = "only a token of the newest answer can be exchanged, as long as its tokens are kept";
    else if (a->tokens[at].at == SIZE_MAX)
        why = "this token is of what was thought before the answer";
    if (why)
        conversation_say(c, SAY_NOTICE, "%s", why);
    return !why;
}

int conversation_token_branch(struct conversation *c, size_t at, int id)
{
    struct error e = {0};
    struct strbuf text = {0};
    char piece[64], *thought = NULL;
    const struct answer_kept a = conversation_answer_tokens(c);
    size_t place = c->transcript.n - 1, tokens;
    int rc;

    if (!can_branch(c, &a, at))
        return -1;
    tokens = (size_t)c->transcript.entries[place].tokens - a.n + at + 1;
    conversation_token_text(c, id, piece, sizeof piece);
    if (!piece[0]) {
        conversation_say(c, SAY_NOTICE, "this token ends the answer: it has no text");
        return -1;
    }
    strbuf_put(&text, a.text, a.tokens[at].at);
    strbuf_puts(&text, piece + (a.tokens[at].at == 0 && piece[0] == ' '));
    if (c->transcript.entries[place].reasoning)
        thought = mem_string(c->transcript.entries[place].reasoning);
    rc = text.failed ? error_set(&e, ERR_MEMORY, "out of memory for the new answer")
                     : transcript_fork(&c->transcript, place, &e);
    if (rc == 0 && (rc = transcript_append(&c->transcript, ROLE_ASSISTANT, text.data, &e)) == 0 &&
        thought)
        rc = transcript_reasoning(&c->transcript, place, thought, &e);
    if (rc == 0)
        c->transcript.entries[place].tokens = (int)tokens;
    mem_free(thought);
    strbuf_release(&text);
    if (rc < 0) {
        transcript_unfork(&c->transcript, NULL);
        return trouble(c, &e);
    }
    c->n_undone = 0;
    conversation_changed(c);
    return conversation_answer(c, true);
}
