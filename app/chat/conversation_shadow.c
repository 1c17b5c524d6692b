/* The loss of lossy commands (/experts-used, /kv): the first answer after them is computed again,
 * exactly and lossily, and loss and gain are printed. Requested by the UI thread, done by the
 * engine's between two answers. */
#include "app/chat/internal.h"

#include "engine/base/mem.h"
#include "engine/run/engine.h"

#include <stdio.h>
#include <string.h>

#define SHADOW_LEAST 8 /* shorter answers are not measured */

/* "1 of 2 experts a token, none below weight 0.1" */
void shadow_words(const struct engine *g, char *out, size_t size)
{
    size_t n = 0;
    float least;
    int used;

    engine_experts_lossy(g, &used, &least);
    if (used)
        n = (size_t)snprintf(out, size, "%d of the %d experts a token", used,
                             engine_experts_trained(g));
    else
        n = (size_t)snprintf(out, size, "all %d experts a token", engine_experts_trained(g));
    if (least > 0 && n < size)
        n += (size_t)snprintf(out + n, size - n, ", but none of less weight than %g",
                              (double)least);
    if (engine_defer(g) && n < size)
        snprintf(out + n, size - n, ", up to %d of a layer's a layer later", engine_defer(g));
}

const char *const kv_words[] = {"f32", "f16", "q8_0"};

void shadow_kv_words(const struct engine *g, char *out, size_t size)
{
    enum kv_type k, v;

    engine_kv_types(g, &k, &v);
    snprintf(out, size, "keys in %s, values in %s", kv_words[k], kv_words[v]);
}

static bool fewer(const struct engine *g)
{
    float least;
    int used;

    engine_experts_lossy(g, &used, &least);
    return used || least > 0 || engine_defer(g);
}

static bool other_types(const struct engine *g)
{
    enum kv_type k, v, was_k, was_v;

    engine_kv_types(g, &k, &v);
    engine_kv_types_opened(g, &was_k, &was_v);
    return k != was_k || v != was_v;
}

/* Names the lossy settings, and the commands that undo them. */
static void words_of(const struct engine *g, char *out, size_t size, const char **undo)
{
    bool types = other_types(g);

    *out = 0;
    *undo = fewer(g) ? types ? "/experts-used undo and /kv undo take it back"
                             : "/experts-used undo takes it back"
                     : "/kv undo takes it back";
    if (fewer(g))
        shadow_words(g, out, size);
    if (types) {
        size_t n = strlen(out);

        n += (size_t)snprintf(out + n, size - n, "%s", n ? ", " : "");
        shadow_kv_words(g, out + n, size - n);
    }
}

struct shadow {
    int from;
};

/* Prints both for comparison. */
static int do_shadow(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct shadow *s = ctx;
    struct shadow_loss loss;
    struct strbuf b = {0};
    char words[240];
    const char *undo;
    int rc;

    if (!engine_lossy(g)) /* undone in the meantime */
        return 0;
    if ((rc = engine_shadow(g, s->from, &loss, e)) < 0)
        return rc;
    words_of(g, words, sizeof words, &undo);
    strbuf_printf(
        &b,
        "%s: %.*f tokens/s, the exact run %.*f (%+.0f %%); mean KL divergence %.3g nats a "
        "token (largest %.3g), %d of %d top tokens changed; %s\n",
        words, loss.rate < 100, loss.rate, loss.exact_rate < 100, loss.exact_rate,
        100 * (loss.rate / loss.exact_rate - 1), loss.mean_kl, loss.largest_kl, loss.changed,
        loss.tokens, undo);
    *text = strbuf_take(&b, NULL);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory");
}

int conversation_shadow_call(struct conversation *c,
                             int (*fn)(void *ctx, struct engine *g, char **text, struct error *e),
                             const void *wish, size_t size, bool changes)
{
    void *copy = mem_alloc(1, size);

    if (!copy) {
        conversation_say(c, SAY_TROUBLE, "out of memory");
        return -1;
    }
    memcpy(copy, wish, size);
    c->shadow_due |= changes;
    return conversation_call(c, fn, copy, mem_free);
}

void conversation_shadow_after(struct conversation *c, const struct turn_done_event *done)
{
    struct shadow *s;

    if (!c->shadow_due || c->remote || done->completion_tokens < SHADOW_LEAST ||
        done->reason == STOP_CANCELLED || !(s = mem_alloc(1, sizeof *s)))
        return;
    c->shadow_due = false;
    s->from = done->prompt_tokens;
    conversation_call(c, do_shadow, s, mem_free);
}
