/* See said.h. */
#include "app/lab/said.h"

#include "app/common/answer_text.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/tokenizer.h"

#include <math.h>
#include <string.h>

void said_begin(struct said *s)
{
    strbuf_clear(&s->text);
    strbuf_clear(&s->thought);
    mem_free(s->chosen);
    mem_free(s->routed);
    s->chosen = NULL;
    s->routed = NULL;
    s->part = PART_ANSWER;
    s->n_tokens = 0;
    s->likely.n = 0;
    s->done = false;
}

void said_release(struct said *s)
{
    said_begin(s);
    strbuf_release(&s->text);
    strbuf_release(&s->thought);
    mem_free(s->tokens);
    *s = (struct said){0};
}

static void note_token(struct said *s, const struct token_event *t)
{
    struct said_token *k;

    if (!MEM_ROOM(s->tokens, s->n_tokens, s->room, 256))
        return;
    k = &s->tokens[s->n_tokens++];
    *k = (struct said_token){.at = t->part == PART_REASONING ? SIZE_MAX : s->text.len,
                             .id = t->id,
                             .probability = t->probability};
    if (s->likely.id == t->id)
        k->n = s->likely.n < SAID_LIKELY ? s->likely.n : SAID_LIKELY;
    for (int i = 0; i < k->n; i++) {
        k->likely[i] = s->likely.ids[i];
        k->likely_probability[i] = expf(s->likely.logprobs[i]);
    }
    s->likely.n = 0;
}

void said_note(struct said *s, const struct event *ev)
{
    if (ev->kind == EVENT_LOGPROBS)
        s->likely = ev->logprobs;
    else if (ev->kind == EVENT_TURN_DONE) {
        s->done = true;
        s->end = ev->done_turn;
    } else if (ev->kind == EVENT_TOKEN) {
        if (ev->token.id >= 0)
            note_token(s, &ev->token);
        if (ev->token.len)
            answer_text_put(&s->text, &s->thought, &s->part, &ev->token);
    }
}

int said_experts(struct said *s, const struct telemetry *t, struct error *e)
{
    size_t n = (size_t)t->n_layers * (size_t)t->n_experts;

    if (!n || !t->answer)
        return 0;
    mem_free(s->chosen);
    mem_free(s->routed);
    s->chosen = mem_alloc(n, sizeof *s->chosen);
    s->routed = mem_alloc((size_t)t->n_layers, sizeof *s->routed);
    if (!s->chosen || !s->routed)
        return error_set(e, ERR_MEMORY, "no memory for the experts of an answer");
    memcpy(s->chosen, t->answer, n * sizeof *s->chosen);
    for (int l = 0; l < t->n_layers; l++)
        s->routed[l] = (uint16_t)(telemetry_blocks(t, l) ? telemetry_routed(t, l) : 0);
    s->n_layers = t->n_layers;
    s->n_experts = t->n_experts;
    return 0;
}

/* ---- where they part ---- */

static size_t common_bytes(const struct strbuf *a, const struct strbuf *b)
{
    size_t n = 0;

    while (n < a->len && n < b->len && a->data[n] == b->data[n])
        n++;
    while (n && ((n < a->len && ((unsigned char)a->data[n] & 0xc0) == 0x80) ||
                 (n < b->len && ((unsigned char)b->data[n] & 0xc0) == 0x80)))
        n--;
    return n;
}

static size_t end_of(const struct said *s, size_t i)
{
    return i + 1 < s->n_tokens ? s->tokens[i + 1].at : s->text.len;
}

/* The token with the first byte that differs; the answer's end if it has none. */
static size_t token_at(const struct said *s, size_t bytes)
{
    size_t i = 0;

    while (i < s->n_tokens && (s->tokens[i].at == SIZE_MAX || end_of(s, i) <= bytes))
        i++;
    return i;
}

static double total_of(const struct said *s, int layer)
{
    double sum = 0;

    for (int x = 0; x < s->routed[layer]; x++)
        sum += s->chosen[layer * s->n_experts + x];
    return sum;
}

static double share_of(const struct said *s, int layer, int expert, double total)
{
    return s->chosen[layer * s->n_experts + expert] / total;
}

/* Half the sum of the differences of the shares; *most: the expert of the greatest. -1: there is
 * nothing to compare. */
static double layer_distance(const struct said *a, const struct said *b, int layer, int *most)
{
    double total_a = total_of(a, layer), total_b = total_of(b, layer), sum = 0, largest = -1;

    if (a->routed[layer] < 2 || a->routed[layer] != b->routed[layer] || !total_a || !total_b)
        return -1;
    for (int x = 0; x < a->routed[layer]; x++) {
        double d = fabs(share_of(a, layer, x, total_a) - share_of(b, layer, x, total_b));

        sum += d;
        if (d > largest) {
            largest = d;
            *most = x;
        }
    }
    return sum / 2;
}

float *said_difference(const struct said *a, const struct said *b)
{
    float *out;

    if (!a->chosen || !b->chosen || a->n_layers != b->n_layers || a->n_experts != b->n_experts ||
        !(out = mem_alloc((size_t)a->n_layers * (size_t)a->n_experts, sizeof *out)))
        return NULL;
    for (int l = 0; l < a->n_layers; l++) {
        double total_a = total_of(a, l), total_b = total_of(b, l);

        for (int x = 0; total_a > 0 && total_b > 0 && x < a->routed[l]; x++)
            out[l * a->n_experts + x] = (float)(share_of(a, l, x, total_a) -
                                                share_of(b, l, x, total_b));
    }
    return out;
}

static void part_experts(const struct said *a, const struct said *b, struct parting *p)
{
    double sum = 0;
    int layers = 0;

    p->distance = p->layer_distance = -1;
    if (!a->chosen || !b->chosen || a->n_layers != b->n_layers || a->n_experts != b->n_experts)
        return;
    for (int l = 0; l < a->n_layers; l++) {
        int most = 0;
        double d = layer_distance(a, b, l, &most);

        if (d < 0)
            continue;
        layers++;
        sum += d;
        if (d > p->layer_distance) {
            p->layer_distance = d;
            p->layer = l;
            p->expert = most;
            p->expert_share[0] = share_of(a, l, most, total_of(a, l));
            p->expert_share[1] = share_of(b, l, most, total_of(b, l));
        }
    }
    p->distance = layers ? sum / layers : -1;
}

void said_part(const struct said *a, const struct said *b, struct parting *p)
{
    *p = (struct parting){.bytes = common_bytes(&a->text, &b->text)};
    p->same = a->text.len == b->text.len && p->bytes == a->text.len;
    p->token[0] = token_at(a, p->bytes);
    p->token[1] = token_at(b, p->bytes);
    p->thinking = strcmp(strbuf_text(&a->thought), strbuf_text(&b->thought)) != 0;
    part_experts(a, b, p);
}

/* ---- in words ---- */

void said_token_text(const struct engine_info *info, int id, char *out, size_t size)
{
    struct detokenizer d;

    out[0] = 0;
    if (!info || !info->tokenizer)
        return;
    detokenizer_init(&d, info->tokenizer, true);
    d.at_start = false;
    if (!detokenizer_push(&d, id, out, size))
        detokenizer_finish(&d, out, size);
}

void said_token_put(struct strbuf *b, const struct engine_info *info, int id)
{
    char text[64];

    said_token_text(info, id, text, sizeof text);
    for (const char *p = text; *p; p++)
        if (*p == ' ')
            strbuf_puts(b, "\u2423");
        else if (*p == '\n')
            strbuf_puts(b, "\u21b5");
        else
            strbuf_put(b, p, 1);
    if (!text[0])
        strbuf_printf(b, "(token %d)", id);
}

/* What s gave to this text where its token k stood; -1: less than to the likeliest ten. */
static double probability_of(const struct said_token *k, const struct engine_info *info,
                             const char *text)
{
    char likely[64];

    for (int i = 0; i < k->n; i++) {
        said_token_text(info, k->likely[i], likely, sizeof likely);
        if (strcmp(likely, text) == 0)
            return k->likely_probability[i];
    }
    return -1;
}

struct side {
    const struct said *said, *other;
    const struct engine_info *info, *info_of_other;
    size_t token, other_token;
};

/* What the other one gave to this one's token: both stand behind the same text only if a token of
 * each begins where they part. */
static double other_probability(const struct side *s)
{
    const struct said *a = s->said, *b = s->other;
    char text[64];

    if (s->token >= a->n_tokens || s->other_token >= b->n_tokens ||
        a->tokens[s->token].at != b->tokens[s->other_token].at)
        return -1;
    said_token_text(s->info, a->tokens[s->token].id, text, sizeof text);
    return probability_of(&b->tokens[s->other_token], s->info_of_other, text);
}

static void put_side(struct strbuf *out, int number, const struct side *s)
{
    const struct said *a = s->said;
    double p = other_probability(s);

    strbuf_printf(out, "%d %s: ", number, a->name);
    if (s->token >= a->n_tokens) {
        strbuf_puts(out, "ends here\n");
        return;
    }
    said_token_put(out, s->info, a->tokens[s->token].id);
    strbuf_printf(out, " (%.1f %% here, ", 100 * (double)a->tokens[s->token].probability);
    if (p >= 0)
        strbuf_printf(out, "%.1f %% there)\n", 100 * p);
    else
        strbuf_puts(out, "there not among the likeliest)\n");
}

static double rate(const struct said *s)
{
    const struct turn_done_event *d = &s->end;

    return d->completion_tokens > 1 ? clock_rate(d->completion_tokens - 1, d->decode_ns) : 0;
}

/* Mean negative logarithm of the model's own probability of its tokens, as perplexity. */
static double own_perplexity(const struct said *s)
{
    double sum = 0;
    size_t n = 0;

    for (size_t i = 0; i < s->n_tokens; i++)
        if (s->tokens[i].probability > 0) {
            sum -= log((double)s->tokens[i].probability);
            n++;
        }
    return n ? exp(sum / (double)n) : 0;
}

static void put_figures(struct strbuf *out, int number, const struct said *s)
{
    strbuf_printf(out,
                  "%d %s: %d tokens, %.*f tokens/s, first token after %.3f s, perplexity of "
                  "its own text %.2f\n",
                  number, s->name, s->end.completion_tokens, rate(s) < 100, rate(s),
                  clock_seconds(s->end.ttft_ns), own_perplexity(s));
}

static void put_experts(struct strbuf *out, const struct parting *p)
{
    if (p->distance < 0) {
        strbuf_puts(out, "experts: not comparable, the models have layers of other shapes\n");
        return;
    }
    if (p->distance == 0) {
        strbuf_puts(out, "experts: each was chosen as often\n");
        return;
    }
    strbuf_printf(
        out,
        "experts: shares of a layer's choices differ by %.1f %% (mean of the layers), most "
        "in layer %d: %.1f %%, expert %d %.1f against %.1f %%\n",
        100 * p->distance, p->layer, 100 * p->layer_distance, p->expert, 100 * p->expert_share[0],
        100 * p->expert_share[1]);
}

void said_print(const struct said *a, const struct engine_info *of_a, const struct said *b,
                const struct engine_info *of_b, struct strbuf *out)
{
    struct parting p;

    said_part(a, b, &p);
    if (p.same)
        strbuf_printf(out, "1 and 2 say the same, %zu tokens%s\n", p.token[0],
                      p.thinking ? ", after other thoughts" : "");
    else {
        struct side one = {a, b, of_a, of_b, p.token[0], p.token[1]},
                    two = {b, a, of_b, of_a, p.token[1], p.token[0]};

        strbuf_printf(out, "1 and 2 say the same for %zu tokens%s, then\n", p.token[0],
                      p.thinking ? ", after other thoughts" : "");
        put_side(out, 1, &one);
        put_side(out, 2, &two);
    }
    put_figures(out, 1, a);
    put_figures(out, 2, b);
    put_experts(out, &p);
}

/* ---- as JSON ---- */

static json_t *side_json(const struct side *s)
{
    const struct said *a = s->said;
    double p = other_probability(s);
    char text[64] = "";
    bool there = s->token < a->n_tokens;

    if (there)
        said_token_text(s->info, a->tokens[s->token].id, text, sizeof text);
    return json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:i, s:o, s:o, s:o}", "model", a->name, "text",
                     strbuf_text(&a->text), "tokens", a->end.completion_tokens, "decode_tok_s",
                     rate(a), "ttft_s", clock_seconds(a->end.ttft_ns), "own_perplexity",
                     own_perplexity(a), "parts_at_token", (int)s->token, "token",
                     there ? json_string(text) : json_null(), "probability",
                     there ? json_real((double)a->tokens[s->token].probability) : json_null(),
                     "probability_there", p >= 0 ? json_real(p) : json_null());
}

json_t *said_json(const struct said *a, const struct engine_info *of_a, const struct said *b,
                  const struct engine_info *of_b)
{
    struct parting p;
    json_t *experts;

    said_part(a, b, &p);
    struct side one = {a, b, of_a, of_b, p.token[0], p.token[1]},
                two = {b, a, of_b, of_a, p.token[1], p.token[0]};
    experts = p.distance < 0
                  ? json_null()
                  : json_pack("{s:f, s:i, s:f, s:i, s:[f, f]}", "distance", p.distance, "layer",
                              p.layer, "layer_distance", p.layer_distance, "expert", p.expert,
                              "shares", p.expert_share[0], p.expert_share[1]);
    return json_pack("{s:b, s:I, s:o, s:o, s:o}", "same", p.same, "bytes", (json_int_t)p.bytes,
                     "first", side_json(&one), "second", side_json(&two), "experts", experts);
}
