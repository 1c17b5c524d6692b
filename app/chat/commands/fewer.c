/* /experts-used: fewer experts per token from here on, only those with enough weight, or some of
 * them one layer later; the loss is measured after the next answer
 * (app/chat/conversation_shadow.c). The UI thread parses the command, the engine's applies it
 * between two answers. */
#include "app/chat/commands/internal.h"

#include "app/chat/internal.h"
#include "engine/run/engine.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wish {
    enum { TELL, COUNT, WEIGHT, DEFER, UNDO } what;
    int n;
    float least;
};

static int take(struct engine *g, const struct wish *w, struct error *e)
{
    int rc = 0;

    if (w->what == COUNT)
        rc = engine_experts_used_set(g, w->n, e);
    else if (w->what == WEIGHT)
        rc = engine_experts_least_set(g, w->least, e);
    else if (w->what == DEFER || w->what == UNDO)
        engine_defer_set(g, w->n);
    if (w->what == UNDO && (rc = engine_experts_used_set(g, 0, e)) == 0)
        rc = engine_experts_least_set(g, 0, e);
    return rc;
}

static int do_fewer(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct wish *w = ctx;
    struct strbuf b = {0};
    char words[120];
    float least;
    int used, rc = take(g, w, e);

    if (rc < 0)
        return rc;
    shadow_words(g, words, sizeof words);
    engine_experts_lossy(g, &used, &least);
    if (w->what == TELL)
        strbuf_printf(&b, "%s\n", words);
    else if (used || least > 0 || engine_defer(g))
        strbuf_printf(&b,
                      "%s from here on: faster, and another text; the next answer is measured "
                      "against the exact run; /experts-used undo takes it back\n",
                      words);
    else
        strbuf_printf(&b, "%s again, as the model was made\n", words);
    *text = strbuf_take(&b, NULL);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory");
}

/* "", "N", "weight X", "undo"; false: none of these. */
static bool read(const char *arguments, struct wish *w)
{
    char word[16], *end;
    long n;

    *w = (struct wish){.what = TELL};
    if (!*arguments)
        return true;
    chat_word_take(&arguments, word, sizeof word);
    if (strcmp(word, "undo") == 0 || strcmp(word, "all") == 0)
        w->what = UNDO;
    else if (strcmp(word, "weight") == 0 && *arguments) {
        w->what = WEIGHT;
        w->least = strtof(arguments, &end);
        return !*end && w->least >= 0 && w->least <= 1;
    } else {
        w->what = COUNT;
        if (strcmp(word, "defer") == 0 && *arguments) {
            w->what = DEFER;
            chat_word_take(&arguments, word, sizeof word);
        }
        n = strtol(word, &end, 10);
        w->n = n < INT_MAX ? (int)n : INT_MAX;
        if (!*word || *end || n < 0)
            return false;
    }
    return !*arguments;
}

int chat_experts_used(struct conversation *c, const char *arguments)
{
    struct wish wanted;

    if (!read(arguments, &wanted)) {
        conversation_say(
            c, SAY_NOTICE,
            "/experts-used N: the N best of a layer's experts alone; weight X: none of "
            "less routing weight; defer N: up to N of a layer's arrive a layer later, where only "
            "attention is on another device; undo: as the model was made");
        return -1;
    }
    return conversation_shadow_call(c, do_fewer, &wanted, sizeof wanted, wanted.what != TELL);
}
