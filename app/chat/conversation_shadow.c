/* The first answer of fewer or deferred experts (/experts-used) is computed once more in the
 * shadow, exactly and so, and what that cost and gained is told beside each other. The UI thread
 * asks, the engine's does it between two answers. */
#include "app/chat/internal.h"

#include "engine/base/mem.h"
#include "engine/run/engine.h"

#include <stdio.h>

#define SHADOW_LEAST 8 /* tokens of an answer that is worth it */

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

struct shadow {
    int from;
};

/* Both beside each other. */
static int do_shadow(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct shadow *s = ctx;
    struct fewer_experts loss;
    struct strbuf b = {0};
    char words[120];
    float least;
    int used, rc;

    engine_experts_lossy(g, &used, &least);
    if (!used && least <= 0 && !engine_defer(g)) /* undone before it came to this */
        return 0;
    if ((rc = engine_experts_used_loss(g, s->from, &loss, e)) < 0)
        return rc;
    shadow_words(g, words, sizeof words);
    strbuf_printf(
        &b,
        "%s: %.*f tokens/s, the exact run %.*f (%+.0f %%); mean KL divergence %.3g nats a "
        "token (largest %.3g), %d of %d top tokens changed; /experts-used undo takes it "
        "back\n",
        words, loss.rate < 100, loss.rate, loss.exact_rate < 100, loss.exact_rate,
        100 * (loss.rate / loss.exact_rate - 1), loss.mean_kl, loss.largest_kl, loss.changed,
        loss.tokens);
    *text = strbuf_take(&b, NULL);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory");
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
