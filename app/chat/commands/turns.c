/* The slash commands that change the conversation: /system, /regen, /continue, /undo, /edit,
 * /clear, /branches. */
#include "app/chat/commands/internal.h"

#include "engine/run/report/messages.h"

#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BRANCH_AT 24 /* columns before the text of a branch, and the mark after it */

int chat_system(struct conversation *c, const char *arguments)
{
    if (chat_busy(c))
        return -1;
    if (!arguments[0])
        return chat_show(c, "system");
    if (strcmp(arguments, "none") == 0)
        arguments = "";
    if (conversation_system(c, arguments) < 0)
        return -1;
    conversation_say(c, SAY_NOTICE,
                     arguments[0] ? "the system message holds from your next message on"
                                  : "no system message any more");
    return 0;
}

int chat_regen(struct conversation *c, const char *arguments)
{
    return chat_busy(c) ? -1 : conversation_regen(c);
}

int chat_continue(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);

    if (chat_busy(c))
        return -1;
    if (!t->n || t->entries[t->n - 1].role != ROLE_ASSISTANT) {
        conversation_say(c, SAY_NOTICE, "there is no answer to continue");
        return -1;
    }
    if (strcmp(t->entries[t->n - 1].stop, stop_reason_word(STOP_TOKEN)) == 0 &&
        !conversation_options(c)->ignore_eos) {
        conversation_say(c, SAY_NOTICE, "the model had finished: there is nothing to add");
        return -1;
    }
    return conversation_answer(c, true);
}

int chat_undo(struct conversation *c, const char *arguments)
{
    return chat_busy(c) ? -1 : conversation_undo(c);
}

int chat_redo(struct conversation *c, const char *arguments)
{
    return chat_busy(c) ? -1 : conversation_redo(c);
}

int chat_edit(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    const struct conversation_hooks *h = conversation_hooks(c);
    size_t at = transcript_last(t, ROLE_USER);

    if (chat_busy(c))
        return -1;
    if (at == t->n || !h->edit) {
        conversation_say(c, SAY_NOTICE, "there is no message to edit");
        return -1;
    }
    conversation_edit(c);
    return 0;
}

int chat_compact(struct conversation *c, const char *arguments)
{
    if (chat_busy(c))
        return -1;
    if (strcmp(arguments, "none") == 0)
        return conversation_compact_none(c);
    return conversation_compact(c, arguments[0] ? arguments : NULL);
}

int chat_clear(struct conversation *c, const char *arguments)
{
    if (chat_busy(c))
        return -1;
    conversation_new(c);
    return 0;
}

/* "  2 > 1 of 3  moetop: Once upon a time …" */
static void branch_lines(struct strbuf *b, const struct transcript *t, size_t at, size_t columns)
{
    for (size_t k = 0; k < transcript_siblings(t, at); k++) {
        const struct transcript_entry *x = transcript_sibling(t, at, k);
        size_t n = strcspn(x->text, "\n"), cut = utf8_fit(x->text, n, columns, NULL);

        strbuf_printf(b, "%3zu %c %zu of %zu  %s: %.*s%s\n", at + 1,
                      k == t->entries[at].which ? '>' : ' ', k + 1, transcript_siblings(t, at),
                      x->role == ROLE_USER ? "you" : "moetop", (int)cut, x->text,
                      x->text[cut] ? "\u2026" : "");
    }
}

/* Length in bytes of the common prefix, up to the end of a word. */
static size_t alike(const char *a, const char *b)
{
    size_t n = 0, word = 0;

    for (; a[n] && a[n] == b[n]; n++)
        if (a[n] == ' ' || a[n] == '\n')
            word = n + 1;
    return a[n] || b[n] ? word : n;
}

static int branches_compare(struct conversation *c, size_t at, size_t a, size_t b)
{
    const struct transcript *t = conversation_transcript(c);
    const char *x = transcript_sibling(t, at, a - 1)->text,
               *y = transcript_sibling(t, at, b - 1)->text;
    size_t same = alike(x, y);
    struct strbuf out = {0};

    strbuf_printf(&out, "alike: %zu of %zu and %zu bytes\n", same, strlen(x), strlen(y));
    strbuf_printf(&out, "%zu: %s%s\n", a, same ? "\u2026" : "", x[same] ? x + same : "(ends)");
    strbuf_printf(&out, "%zu: %s%s\n", b, same ? "\u2026" : "", y[same] ? y + same : "(ends)");
    return chat_output(c, &out);
}

int chat_branches(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    size_t at = conversation_fork_before(c, t->n), n = at < t->n ? transcript_siblings(t, at) : 0;
    unsigned long a, b;
    struct strbuf out = {0};
    int got = sscanf(arguments, "%lu %lu", &a, &b);

    if (!n) {
        conversation_say(c, SAY_NOTICE,
                         "one way was gone so far; /regen and /edit make another beside it");
        return -1;
    }
    if (got > 0 && (a < 1 || a > n || (got == 2 && (b < 1 || b > n)))) {
        conversation_say(c, SAY_TROUBLE, "there are %zu there; /branches lists them", n);
        return -1;
    }
    if (got == 2)
        return branches_compare(c, at, a, b);
    if (got == 1)
        return chat_busy(c) ? -1 : conversation_switch(c, at, a - 1);
    for (size_t i = 0; i < t->n; i++)
        if (transcript_siblings(t, i) > 1)
            branch_lines(&out, t, i, chat_columns(c, BRANCH_AT));
    strbuf_puts(&out, "/branches K goes to number K of the newest; /branches A B compares two");
    if (conversation_hooks(c)->keys)
        strbuf_puts(&out, "; Alt-Left and Alt-Right go between them");
    return chat_output(c, &out);
}

/* "L3.H5", "L3"; "": all. */
static bool head_named(const char *word, int *layer, int *head)
{
    int used = 0;

    *layer = *head = -1;
    if (!*word)
        return true;
    if (sscanf(word, "%*1[lL]%4d%n", layer, &used) != 1 || *layer < 0)
        return false;
    word += used;
    if (!*word)
        return true;
    return sscanf(word, ".%*1[hH]%4d%n", head, &used) == 1 && *head >= 0 && !word[used];
}

/* Tokens are counted from 1. */
int chat_lens(struct conversation *c, const char *arguments)
{
    char word[24], what[24], head_word[24], *end;
    bool swap, attention;
    unsigned long at;
    int layer, head;

    chat_word_take(&arguments, word, sizeof word);
    chat_word_take(&arguments, what, sizeof what);
    chat_word_take(&arguments, head_word, sizeof head_word);
    at = strtoul(word, &end, 10);
    swap = strcmp(what, "swap") == 0;
    attention = strcmp(what, "attention") == 0;
    if (!*word || *end || at < 1 || *arguments || (*what && !swap && !attention) ||
        (*head_word && !attention) || !head_named(head_word, &layer, &head)) {
        conversation_say(c, SAY_NOTICE,
                         "/lens N: what each layer made of token N of the newest answer's %zu; "
                         "/lens N swap: also with each layer's runner-up expert; /lens N attention "
                         "[L3.H5]: where the heads, or that one, looked",
                         conversation_tokens(c));
        return -1;
    }
    if (chat_busy(c))
        return -1;
    return attention ? conversation_attention(c, at - 1, layer, head)
                     : conversation_lens(c, at - 1, swap);
}

/* Tokens and alternatives are counted from 1. */
int chat_token(struct conversation *c, const char *arguments)
{
    unsigned long at = 0, k = 0;
    int got = sscanf(arguments, "%lu %lu", &at, &k), id;

    if (got < 1 || at < 1) {
        conversation_say(c, SAY_NOTICE,
                         "/token N: token N of the newest answer's %zu; /token N K: go on with "
                         "number K of its list instead",
                         conversation_tokens(c));
        return -1;
    }
    if (got == 1)
        return conversation_token_say(c, at - 1);
    id = conversation_token_alternative(c, at - 1, k ? k - 1 : SIZE_MAX);
    if (id < 0 && at <= conversation_tokens(c)) {
        conversation_say(c, SAY_TROUBLE, "token %lu has no number %lu; /token %lu lists them", at,
                         k, at);
        return -1;
    }
    return conversation_token_branch(c, at - 1, id);
}
