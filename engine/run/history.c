/* The experts chosen by each token: one small row per position of the session, for expert_tokens
 * and the reports. Engine thread; allocated at open. */
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <assert.h>
#include <string.h>

#define REPORT_TOKENS 12 /* newest ones shown in their text */
#define REPORT_WORDS 8   /* most frequent ones */

size_t history_footprint(const struct hparams *hp, int context)
{
    return (size_t)context * (size_t)hp->n_layers * (size_t)hp->n_experts_used * sizeof(uint16_t);
}

int history_init(struct session *s)
{
    const struct engine *g = s->engine;
    s->routed = mem_alloc(history_footprint(&g->model->hp, g->info.context) / sizeof *s->routed,
                          sizeof *s->routed);
    return s->routed ? 0 : ERR_MEMORY;
}

void history_copy(struct session *to, const struct session *from, int n)
{
    const struct hparams *hp = &to->engine->model->hp;

    memcpy(to->routed, from->routed, history_footprint(hp, n));
}

void history_write(struct session *s, const struct span *span, int row)
{
    const struct forward *f = &s->engine->forward;
    size_t layers = (size_t)f->model->hp.n_layers, used = (size_t)f->model->hp.n_experts_used;

    assert(span->pos >= 0 && span->pos + span->rows <= s->engine->info.context);
    for (int i = 0; i < span->rows; i++)
        for (size_t l = 0; l < layers; l++) {
            const int *from = f->experts + (l * (size_t)f->rows + (size_t)(row + i)) * used;
            uint16_t *to = s->routed + ((size_t)(span->pos + i) * layers + l) * used;

            for (size_t k = 0; k < used; k++)
                to[k] = (uint16_t)from[k];
        }
}

int engine_expert_tokens(const struct engine *g, int layer, int expert, int *positions, int max)
{
    const struct session *s = g->session;
    int layers = g->model->hp.n_layers, used = g->model->hp.n_experts_used, n = 0;

    if (layer < 0 || layer >= layers || expert < 0 || expert >= g->model->hp.n_experts)
        return 0;
    for (int p = 0; p < s->n_tokens; p++)
        for (int k = 0; k < used; k++)
            if (s->routed[((size_t)p * (size_t)layers + (size_t)layer) * (size_t)used +
                          (size_t)k] == expert) {
                if (n < max)
                    positions[n] = p;
                n++;
                break;
            }
    return n;
}

/* Tokens as text within an answer; line ends as a sign. */
static void put_tokens(const struct engine *g, struct strbuf *b, const int *ids, int n)
{
    struct detokenizer d;
    char piece[1024];

    detokenizer_init(&d, g->tokenizer, false);
    d.at_start = false;
    for (int i = 0; i <= n; i++) {
        size_t len = i < n ? detokenizer_push(&d, ids[i], piece, sizeof piece)
                           : detokenizer_finish(&d, piece, sizeof piece);

        for (size_t k = 0; k < len; k++)
            if (piece[k] == '\n')
                strbuf_puts(b, "\xe2\x8f\x8e");
            else
                strbuf_putc(b, piece[k]);
    }
}

static void put_frequent(const struct engine *g, struct strbuf *b, const int *positions, int n)
{
    const struct session *s = g->session;
    int *count = mem_alloc((size_t)g->model->hp.n_vocab, sizeof *count);

    if (!count)
        return;
    for (int i = 0; i < n; i++)
        count[s->tokens[positions[i]]]++;
    strbuf_puts(b, "most often:");
    for (int k = 0; k < REPORT_WORDS; k++) {
        int best = 0;

        for (int id = 1; id < g->model->hp.n_vocab; id++)
            if (count[id] > count[best])
                best = id;
        if (!count[best])
            break;
        strbuf_puts(b, k ? ", \"" : " \"");
        put_tokens(g, b, &best, 1);
        strbuf_printf(b, "\" %d", count[best]);
        count[best] = 0;
    }
    strbuf_putc(b, '\n');
    mem_free(count);
}

int engine_expert_report(const struct engine *g, int layer, int expert, char **text,
                         struct error *e)
{
    const struct hparams *hp = &g->model->hp;
    const struct session *s = g->session;
    struct strbuf b = {0};
    int *positions, n;

    if (layer < 0 || layer >= hp->n_layers || expert < 0 || expert >= hp->n_experts)
        return error_set(
            e, ERR_USAGE,
            "there is no expert %d in layer %d: the model has layers 0 to %d, experts 0 to %d",
            expert, layer, hp->n_layers - 1, hp->n_experts - 1);
    if (!(positions = mem_alloc((size_t)s->n_tokens + 1, sizeof *positions)))
        return error_set(e, ERR_MEMORY, "no memory for a report");
    n = engine_expert_tokens(g, layer, expert, positions, s->n_tokens);
    strbuf_printf(&b,
                  "layer %d, expert %d: chosen by %d of %d tokens in the cache: %d of the layer's "
                  "%d choices = %.1f %% (even %.1f)\n",
                  layer, expert, n, s->n_tokens, n, s->n_tokens * hp->n_experts_used,
                  s->n_tokens ? 100.0 * n / (s->n_tokens * hp->n_experts_used) : 0.0,
                  100.0 / hp->n_experts);
    if (n && g->tokenizer) {
        put_frequent(g, &b, positions, n);
        for (int i = n > REPORT_TOKENS ? n - REPORT_TOKENS : 0; i < n; i++) {
            int p = positions[i], before = p > 5 ? p - 5 : 0,
                after = p + 6 < s->n_tokens ? p + 6 : s->n_tokens;

            strbuf_printf(&b, "%6d  ", p);
            put_tokens(g, &b, s->tokens + before, p - before);
            strbuf_puts(&b, "\xe2\x9f\xa6");
            put_tokens(g, &b, s->tokens + p, 1);
            strbuf_puts(&b, "\xe2\x9f\xa7");
            put_tokens(g, &b, s->tokens + p + 1, after - p - 1);
            strbuf_putc(&b, '\n');
        }
    }
    mem_free(positions);
    *text = strbuf_take(&b, NULL);
    return *text ? 0 : error_set(e, ERR_MEMORY, "no memory for a report");
}

/* Start position of these tokens in the session, whose newest they must be; -1: they are not. */
static int place_of(const struct session *s, const int *ids, int n)
{
    int place = s->n_tokens + s->token_waits - n;

    return place > 0 && memcmp(s->tokens + place, ids, (size_t)n * sizeof *ids) == 0 ? place : -1;
}

int engine_token_experts(const struct engine *g, const int *ids, int n, int at, char **text,
                         struct error *e)
{
    const struct session *s = g->session;
    int layers = g->model->hp.n_layers, used = g->model->hp.n_experts_used,
        place = place_of(s, ids, n);
    const uint16_t *row;
    struct strbuf b = {0};

    assert(at >= 0 && at < n);
    if (place < 0)
        return error_set(e, ERR_USAGE, "the session does not hold this answer any more");
    row = s->routed + (size_t)(place + at - 1) * (size_t)layers * (size_t)used;
    for (int l = 0; l < layers; l++)
        for (int k = 0; k < used; k++) {
            int expert = row[l * used + k];

            if (expert == TELEMETRY_NO_EXPERT)
                break;
            if (k == 0)
                strbuf_printf(&b, "%sL%d", b.len ? ", " : "", l);
            strbuf_printf(&b, " %d", expert);
        }
    if (!b.len && !b.failed)
        return error_set(e, ERR_USAGE, "no layer of this model chooses experts");
    *text = strbuf_take(&b, NULL);
    return *text ? 0 : error_set(e, ERR_MEMORY, "no memory for a report");
}
