/* /lora: the adapters and their strengths. The UI thread parses the command, the engine's applies
 * it between two answers. */
#include "app/chat/commands/internal.h"

#include "engine/base/mem.h"
#include "engine/run/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STRENGTH_MOST 1000.0f

struct wish {
    bool set;
    long adapter;
    float strength;
};

static void list(struct strbuf *b, const struct adapters *all, const float *strengths)
{
    for (int i = 0; i < adapters_count(all); i++) {
        const struct adapter_info *a = adapters_at(all, i);

        strbuf_printf(b, "%2d  %-6g  %s, %s, rank %d%s, on %d matrices (%d of experts)", i,
                      (double)strengths[i], a->name, a->format, a->rank_most,
                      a->rank_least < a->rank_most ? " and less" : "", a->matrices,
                      a->expert_matrices);
        if (a->n_unplaced)
            strbuf_printf(b, "; %d tensors found no place", a->n_unplaced);
        strbuf_puts(b, "\n");
    }
}

static void set(struct strbuf *b, struct engine *g, const struct adapters *all,
                const struct wish *w)
{
    struct session *s = engine_session(g);
    float strengths[LORA_ADAPTERS];
    int again;

    memcpy(strengths, engine_session_strengths(s), sizeof strengths);
    strengths[w->adapter] = w->strength;
    again = engine_session_strengths_set(s, strengths);
    strbuf_printf(b, "%s counts with %g from here on", adapters_at(all, (int)w->adapter)->name,
                  (double)w->strength);
    if (again)
        strbuf_printf(b,
                      "; %d tokens that were computed with another strength are computed again "
                      "with the next message",
                      again);
    strbuf_puts(b, "\n");
}

static int do_lora(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct wish *w = ctx;
    const struct adapters *all = engine_info(g)->adapters;
    struct strbuf b = {0};

    if (w->set && w->adapter >= adapters_count(all))
        return error_set(e, ERR_USAGE, "there is no adapter %ld; /lora lists them", w->adapter);
    if (w->set)
        set(&b, g, all, w);
    else if (adapters_count(all))
        list(&b, all, engine_session_strengths(engine_session(g)));
    else
        strbuf_puts(&b, "no adapters; --lora FOLDER|FILE brings one");
    *text = strbuf_take(&b, NULL);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory");
}

/* "N STRENGTH"; false: neither that nor empty. */
static bool read(const char *arguments, struct wish *w)
{
    char number[16], *end;

    *w = (struct wish){.set = *arguments != 0};
    if (!w->set)
        return true;
    chat_word_take(&arguments, number, sizeof number);
    w->adapter = strtol(number, &end, 10);
    if (!*number || *end || w->adapter < 0 || !*arguments)
        return false;
    w->strength = strtof(arguments, &end);
    return !*end && isfinite(w->strength) && fabsf(w->strength) <= STRENGTH_MOST;
}

int chat_lora(struct conversation *c, const char *arguments)
{
    struct wish *w, wanted;

    if (!read(arguments, &wanted)) {
        conversation_say(c, SAY_NOTICE,
                         "/lora lists the adapters; /lora N STRENGTH sets one: /lora 0 0.5");
        return -1;
    }
    if (!(w = mem_alloc(1, sizeof *w))) {
        conversation_say(c, SAY_TROUBLE, "out of memory");
        return -1;
    }
    *w = wanted;
    return conversation_call(c, do_lora, w, mem_free);
}
