/* The tokens of the chat's last answer, as long as they are kept, and their alternatives. An answer
 * is identified by its text, so that branches and /undo can restore an earlier one. UI thread. */
#include "app/chat/internal.h"
#include "app/lab/lens_tell.h"
#include "app/lab/said.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void conversation_answer_token(struct conversation *c, const struct token_event *t)
{
    struct answer_token *k;

    if (t->id < 0 || c->compacting)
        return;
    if (!MEM_ROOM(c->tokens, c->n_tokens, c->room_tokens, 256))
        return; /* the newest ones cannot be asked then */
    k = &c->tokens[c->n_tokens++];
    *k = (struct answer_token){.at = t->part == PART_REASONING ? SIZE_MAX : c->answer.len,
                               .id = t->id,
                               .candidates = t->candidates,
                               .probability = t->probability,
                               .share = t->share,
                               .compute_ns = t->compute_ns,
                               .forbidden = t->forbidden};
    if (c->likely.id == t->id)
        k->likely = c->likely;
    c->likely.n = 0;
}

void conversation_tokens_keep(struct conversation *c)
{
    struct answer_kept *k = &c->kept[c->n_kept % ANSWERS_KEPT];
    char *text = c->n_tokens && c->answer.data ? mem_string(c->answer.data) : NULL;

    if (text) {
        mem_free(k->text);
        mem_free(k->tokens);
        *k = (struct answer_kept){text, c->tokens, c->n_tokens};
        c->n_kept++;
        c->tokens = NULL;
        c->room_tokens = 0;
    }
    c->n_tokens = 0;
}

void conversation_tokens_forget(struct conversation *c)
{
    for (size_t i = 0; i < ANSWERS_KEPT; i++) {
        mem_free(c->kept[i].text);
        mem_free(c->kept[i].tokens);
        c->kept[i] = (struct answer_kept){0};
    }
    c->n_kept = c->n_tokens = 0;
}

struct answer_kept conversation_answer_tokens(const struct conversation *c)
{
    const struct transcript *t = &c->transcript;
    const struct transcript_entry *last = t->n ? &t->entries[t->n - 1] : NULL;

    if (c->busy || conversation_answer_shown(c))
        return (struct answer_kept){c->answer.data, c->tokens, c->n_tokens};
    for (size_t i = 1; last && last->role == ROLE_ASSISTANT && i <= c->n_kept && i <= ANSWERS_KEPT;
         i++) {
        const struct answer_kept *k = &c->kept[(c->n_kept - i) % ANSWERS_KEPT];

        if (strcmp(k->text, last->text) == 0)
            return *k;
    }
    return (struct answer_kept){0};
}

size_t conversation_tokens(const struct conversation *c)
{
    return conversation_answer_tokens(c).n;
}

int conversation_token_alternative(const struct conversation *c, size_t at, size_t k)
{
    const struct answer_kept a = conversation_answer_tokens(c);

    return at < a.n && k < (size_t)a.tokens[at].likely.n ? a.tokens[at].likely.ids[k] : -1;
}

void conversation_token_text(const struct conversation *c, int id, char *out, size_t size)
{
    assert(size >= 16);
    said_token_text(conversation_info(c), id, out, size);
}

/* The newest answer's ids, for the engine's thread. */
struct request_fields {
    int n, at;
    bool swaps;
    int ids[];
};

static int tell_experts(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct request_fields *a = ctx;
    char *experts = NULL;
    struct strbuf b = {0};
    int rc = engine_token_experts(g, a->ids, a->n, a->at, &experts, e);

    if (rc < 0)
        return rc;
    strbuf_printf(&b, "made by these experts, layer by layer, the one of most weight first:\n%s",
                  experts);
    mem_free(experts);
    *text = strbuf_take(&b, NULL);
    return *text ? 0 : error_set(e, ERR_MEMORY, "no memory for a report");
}

static int tell_lens(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct request_fields *a = ctx;

    return lens_tell(g, a->ids, a->n, a->at, a->swaps, text, e);
}

/* The newest answer's ids; NULL: no memory. */
static struct request_fields *fields_of(const struct conversation *c, size_t at, bool swaps)
{
    struct request_fields *a = mem_alloc(1, sizeof *a + c->n_tokens * sizeof *a->ids);

    if (!a)
        return NULL;
    a->n = (int)c->n_tokens;
    a->at = (int)at;
    a->swaps = swaps;
    for (size_t i = 0; i < c->n_tokens; i++)
        a->ids[i] = c->tokens[i].id;
    return a;
}

/* Its experts are printed when the engine has reported them; with a server they are unknown, and a
 * dense model has none. */
static int ask_experts(struct conversation *c, size_t at)
{
    const struct telemetry *t = conversation_telemetry(c);
    struct request_fields *a;

    if (c->remote || !t || t->n_experts_used < 1)
        return 0;
    if (!(a = fields_of(c, at, false)))
        return -1;
    return conversation_call(c, tell_experts, a, mem_free);
}

/* "97.2 % by the model; 99.1 % after temperature and cuts, which left 3 to draw from; 0.45 ms" */
static void put_figures(struct strbuf *b, const struct answer_token *k)
{
    strbuf_printf(b, "%.1f %% by the model; ", k->probability * 100);
    if (k->share > 0)
        strbuf_printf(b, "%.1f %% after temperature and cuts, which left %d to draw from",
                      k->share * 100, k->candidates);
    else
        strbuf_puts(b, "a guess that was let pass, not drawn");
    if (k->compute_ns)
        strbuf_printf(b, "; %.2f ms", (double)k->compute_ns * 1e-6);
}

int conversation_token_say(struct conversation *c, size_t at)
{
    const struct answer_kept a = conversation_answer_tokens(c);
    const struct answer_token *k;
    struct strbuf b = {0};

    if (at >= a.n) {
        conversation_say(c, SAY_NOTICE,
                         a.n || transcript_last(&c->transcript, ROLE_ASSISTANT) == c->transcript.n
                             ? "the newest answer has %zu tokens"
                             : "the tokens of this answer are not kept",
                         a.n);
        return -1;
    }
    k = &a.tokens[at];
    strbuf_printf(&b, "token %zu of %zu: ", at + 1, a.n);
    said_token_put(&b, conversation_info(c), k->id);
    strbuf_puts(&b, ", ");
    put_figures(&b, k);
    if (k->forbidden > 0.0f)
        strbuf_printf(&b, "; the grammar kept out %.1f %%", k->forbidden * 100);
    for (int i = 0; i < k->likely.n; i++) {
        strbuf_printf(&b, "\n%3d  %5.1f %%  ", i + 1, exp(k->likely.logprobs[i]) * 100);
        said_token_put(&b, conversation_info(c), k->likely.ids[i]);
    }
    if (c->hooks.say && b.data)
        c->hooks.say(c->hooks.ctx, SAY_OUTPUT, b.data);
    strbuf_release(&b);
    /* the engine has them for the newest computed answer */
    return a.tokens == c->tokens ? ask_experts(c, at) : 0;
}

/* Whether the engine can compute that token again; else says why not. */
static bool has_lens(struct conversation *c, size_t at)
{
    const struct answer_kept kept = conversation_answer_tokens(c);

    if (!c->remote && kept.tokens == c->tokens && at < kept.n)
        return true;
    conversation_say(c, SAY_NOTICE,
                     c->remote          ? "N/A: the model runs on a server"
                     : at < c->n_tokens ? "that answer is not the newest that was computed"
                                        : "the newest answer has %zu tokens",
                     kept.n);
    return false;
}

int conversation_lens(struct conversation *c, size_t at, bool swaps)
{
    struct request_fields *a;

    if (!has_lens(c, at))
        return -1;
    if (!(a = fields_of(c, at, swaps))) {
        conversation_say(c, SAY_TROUBLE, "out of memory");
        return -1;
    }
    return conversation_call(c, tell_lens, a, mem_free);
}

enum { LOOK_ASKED, LOOK_FILLED, LOOK_FAILED };

/* What /lens N attention asked for: the engine's thread's while state is LOOK_ASKED and a call is
 * out, which it changes before the report is posted. */
struct attention_look {
    atomic_int state;
    int layer, head;
    float *times; /* (fields->n) */
    struct request_fields *fields;
};

void attention_look_free(struct attention_look *k)
{
    if (!k)
        return;
    mem_free(k->times);
    mem_free(k->fields);
    mem_free(k);
}

static int tell_attention(void *ctx, struct engine *g, char **text, struct error *e)
{
    struct attention_look *k = ctx;
    int rc = lens_attention(g, k->fields->ids, k->fields->n, k->fields->at, k->layer, k->head,
                            k->times, text, e);

    atomic_store(&k->state, rc == 0 ? LOOK_FILLED : LOOK_FAILED);
    return rc;
}

int conversation_attention(struct conversation *c, size_t at, int layer, int head)
{
    struct attention_look *k;

    if (!has_lens(c, at))
        return -1;
    if (c->look && c->calls && atomic_load(&c->look->state) == LOOK_ASKED) {
        conversation_say(c, SAY_NOTICE, "the last /lens attention is still being computed");
        return -1;
    }
    attention_look_free(c->look);
    c->look = k = mem_alloc(1, sizeof *k);
    if (k) {
        k->layer = layer;
        k->head = head;
        k->fields = fields_of(c, at, false);
        k->times = mem_alloc(c->n_tokens, sizeof *k->times);
    }
    if (!k || !k->fields || !k->times) {
        conversation_say(c, SAY_TROUBLE, "out of memory");
        return -1;
    }
    return conversation_call(c, tell_attention, k, NULL);
}

void conversation_looked(struct conversation *c)
{
    struct attention_look *k = c->look;
    char name[48];

    if (!k || atomic_load(&k->state) != LOOK_FILLED)
        return;
    if (k->head >= 0)
        snprintf(name, sizeof name, "L%d.H%d", k->layer, k->head);
    else if (k->layer >= 0)
        snprintf(name, sizeof name, "L%d", k->layer);
    else
        snprintf(name, sizeof name, "all heads");
    if (c->hooks.attended && (size_t)k->fields->n == c->n_tokens) /* no answer has begun since */
        c->hooks.attended(c->hooks.ctx, name, k->times, (size_t)k->fields->n);
    attention_look_free(k);
    c->look = NULL;
}

bool conversation_answer_shown(const struct conversation *c)
{
    const struct transcript *t = &c->transcript;
    const struct transcript_entry *last = t->n ? &t->entries[t->n - 1] : NULL;

    return last && last->role == ROLE_ASSISTANT && c->answer.data &&
           strcmp(last->text, c->answer.data) == 0;
}
