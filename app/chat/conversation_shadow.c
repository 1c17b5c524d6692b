/* The loss of lossy commands (/experts-used, /kv) and the effect of /expert: the first answer after
 * them is computed again, exactly and lossily, and loss and gain are printed. Requested by the UI
 * thread, done by the engine's between two answers. */
#include "app/chat/internal.h"

#include "engine/base/mem.h"
#include "engine/run/engine.h"

#include <stdio.h>
#include <string.h>

#define SHADOW_LEAST 8 /* shorter answers are not measured */
#define SHADOW_SHOWN 6 /* tokens of largest divergence that are listed */

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
static void words_of(struct engine *g, char *out, size_t size, const char **undo)
{
    const struct expert_edits *x = engine_session_edits(engine_session(g));
    bool types = other_types(g);

    *out = 0;
    if (x && !types && !fewer(g)) {
        snprintf(out, size, "%d expert%s edited (%.150s)", x->n, x->n == 1 ? "" : "s", x->text);
        *undo = "/expert on takes it back";
        return;
    }
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

static void put_text(struct strbuf *b, const struct tokenizer *t, const int *ids, int n)
{
    struct detokenizer d;
    char piece[512];

    detokenizer_init(&d, t, false);
    for (int i = 0; i < n; i++) {
        size_t len = detokenizer_push(&d, ids[i], piece, sizeof piece);

        for (size_t k = 0; k < len; k++)
            strbuf_putc(b,
                        piece[k] == '\n' || piece[k] == '\r' || piece[k] == '\t' ? ' ' : piece[k]);
    }
}

/* A token in quotes. */
static void put_token(struct strbuf *b, const struct tokenizer *t, int id)
{
    strbuf_putc(b, '\'');
    put_text(b, t, &id, 1);
    strbuf_putc(b, '\'');
}

/* Both answers where they part, and the tokens whose next one was moved most. */
static void side_by_side(struct strbuf *b, const struct tokenizer *t, const struct shadow_loss *l)
{
    bool shown[SHADOW_TOKENS] = {false};
    int same = 0;

    while (same < l->tokens && same < l->n_answer && l->ids[same] == l->answer[same])
        same++;
    if (!t)
        return;
    if (same == l->tokens || (same == l->n_answer && same == l->tokens)) {
        strbuf_printf(b, "the first %d tokens are the same with and without\n", same);
    } else {
        strbuf_printf(b, "with and without part after %d tokens\nwith:    ", same);
        put_text(b, t, l->ids, l->tokens);
        strbuf_puts(b, "\nwithout: ");
        put_text(b, t, l->answer, l->n_answer);
        strbuf_puts(b, "\n");
    }
    for (int k = 0; k < SHADOW_SHOWN && k < l->tokens; k++) {
        int at = -1;

        for (int i = 0; i < l->tokens; i++)
            if (!shown[i] && l->kl[i] > 0 && (at < 0 || l->kl[i] > l->kl[at]))
                at = i;
        if (at < 0)
            break;
        shown[at] = true;
    }
    for (int i = 0; i < l->tokens; i++) {
        if (!shown[i])
            continue;
        strbuf_printf(b, "KL %.3g after token %d ", l->kl[i], i + 1);
        put_token(b, t, l->ids[i]);
        strbuf_puts(b, ": with, ");
        put_token(b, t, l->top[i]);
        strbuf_puts(b, " is likeliest, without, ");
        put_token(b, t, l->exact_top[i]);
        strbuf_puts(b, "\n");
    }
}

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
    side_by_side(&b, engine_info(g)->tokenizer, &loss);
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
