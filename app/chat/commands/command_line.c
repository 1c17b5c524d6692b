/* Shared by all commands: parsing and completing their line, printing their output. See internal.h.
 */
#include "app/chat/commands/internal.h"

#include "app/setup/completion_values.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

const char *chat_blank(const char *s)
{
    return s + strspn(s, " \t");
}

void chat_word_take(const char **s, char *out, size_t size)
{
    size_t n = strcspn(*s, " \t\n");

    snprintf(out, size, "%.*s", (int)n, *s);
    *s = chat_blank(*s + n);
}

int chat_output(struct conversation *c, struct strbuf *b)
{
    const struct conversation_hooks *h = conversation_hooks(c);

    while (b->len && b->data[b->len - 1] == '\n')
        b->data[--b->len] = 0;
    if (b->failed || !b->data)
        conversation_say(c, SAY_TROUBLE, "out of memory");
    else if (h->say)
        h->say(h->ctx, SAY_OUTPUT, b->data);
    strbuf_release(b);
    return 0;
}

void chat_completion_add(char ***list, size_t *n, const char *word, const char *begin)
{
    char *text;

    if (strncmp(word, begin, strlen(begin)) != 0)
        return;
    if (!MEM_FIT(*list, *n + 2) || !(text = mem_string(word)))
        return;
    (*list)[(*n)++] = text;
    (*list)[*n] = NULL;
}

int chat_busy(struct conversation *c)
{
    if (!conversation_busy(c))
        return 0;
    conversation_say(c, SAY_NOTICE, "not while an answer is being written; %s stops it",
                     conversation_hooks(c)->keys ? "Esc" : "Ctrl-C");
    return 1;
}

size_t chat_columns(const struct conversation *c, int before)
{
    const struct conversation_hooks *h = conversation_hooks(c);
    int columns = (h->columns ? h->columns(h->ctx) : 0);

    columns = (columns > 0 ? columns : 64) - before;
    return columns < 24 ? 24 : (size_t)columns;
}

struct completions {
    const char *word;
    char ***list;
    size_t *n;
};

static void add_value(void *ctx, const char *value)
{
    const struct completions *k = ctx;
    size_t n = strlen(value);
    char name[160];

    snprintf(name, sizeof name, "%.*s", (int)(n - (n && value[n - 1] == ':')), value);
    chat_completion_add(k->list, k->n, name, k->word);
}

void chat_complete_values(const struct option *option, const char *word, char ***list, size_t *n)
{
    struct completions k = {word, list, n};

    values_each(option, true, add_value, &k);
}
