/* The drafter `model`: a smaller model with the same tokens proposes its own continuation, token by
 * token, always the likeliest. It is a second engine that shares threads and devices with the
 * target engine (shared_resources.h), and has a session for each of the target's. It is not in
 * draft/ because those drafters do not use an engine. Its accuracy is learnt by its probability.
 * Engine thread. */
#include "engine/base/mem.h"
#include "engine/run/draft/chain.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <string.h>

struct drafter {
    struct draft_reader reader;
    int n_vocab; /* common range of ids */
};

int draft_reader_init(struct draft_reader *r, struct engine *model, struct error *e)
{
    *r = (struct draft_reader){.model = model};
    sureness_init(&r->sureness);
    r->logits = mem_alloc((size_t)model->model->hp.n_vocab, sizeof *r->logits);
    return r->logits ? session_new(&r->session, model, e)
                     : error_set(e, ERR_MEMORY, "no memory for drafts");
}

void draft_reader_release(struct draft_reader *r)
{
    session_free(r->session);
    mem_free(r->logits);
}

static void release(struct drafter *d)
{
    draft_reader_release(&d->reader);
}

static int init(struct drafter *d, struct engine *model, struct error *e)
{
    d->n_vocab = model->model->hp.n_vocab;
    return draft_reader_init(&d->reader, model, e);
}

static void expect(const struct drafter *d, int most, float *p)
{
    sureness_expect(&d->reader.sureness, most, p);
}

/* Length of the common prefix of these tokens and its session's. */
static int common(const struct session *s, const int *ids, int n)
{
    int same = 0;

    while (same < n && same < s->n_tokens && ids[same] == s->tokens[same])
        same++;
    return same;
}

static int behind(const struct drafter *d, const int *ids, int n)
{
    return n - common(d->reader.session, ids, n);
}

/* Brings its session to these tokens, with the logits after them. */
static bool read_along(struct drafter *d, const int *ids, int n)
{
    struct session *s = d->reader.session;
    struct error e;
    int same = common(s, ids, n);

    session_rewind(s, same < n ? same : n - 1);
    return n <= d->reader.model->info.context &&
           session_extend(s, ids + s->n_tokens, n - s->n_tokens, 0, d->reader.logits, false, &e) ==
               0;
}

/* Whether all ids are in its vocabulary. */
static bool can_read(const struct drafter *d, const int *ids, int n)
{
    for (int i = n - 1; i >= 0; i--)
        if (ids[i] >= d->n_vocab)
            return false;
    return true;
}

static void read_before(struct drafter *d, const int *ids, int n)
{
    if (can_read(d, ids, n))
        read_along(d, ids, n);
}

/* Provides the logits after the last token; those after a drafted one are computed. */
static bool next(void *ctx, int made, int id)
{
    struct drafter *d = ctx;
    struct error e;

    return !made ||
           (d->reader.session->n_tokens < d->reader.model->info.context &&
            session_extend(d->reader.session, &id, 1, 0, d->reader.logits, false, &e) == 0);
}

static int propose(struct drafter *d, const int *ids, int n, int most, float least, int *out,
                   float *p)
{
    const struct chain c = {&d->reader.sureness, d->reader.logits, d->n_vocab, next, d};

    sureness_begin(&d->reader.sureness);
    return can_read(d, ids, n) && read_along(d, ids, n) ? chain_propose(&c, most, least, out, p)
                                                        : 0;
}

static void learn(struct drafter *d, int tried, int taken)
{
    sureness_learn(&d->reader.sureness, tried, taken);
}

const struct drafter_ops drafter_model = {
    .name = "model",
    .summary = "what a smaller model (-md) would say",
    .needs = DRAFTER_NEEDS_MODEL,
    .size = sizeof(struct drafter),
    .init = init,
    .release = release,
    .expect = expect,
    .behind = behind,
    .read = read_before,
    .propose = propose,
    .learn = learn,
};

/* A padding id of a vocabulary: without text, or named [PAD…]. */
static bool is_filler(const char *text, size_t n)
{
    return n == 0 || (n > 5 && text[n - 1] == ']' && memcmp(text, "[PAD", 4) == 0);
}

/* Ids in both vocabularies must mean the same. Compares their text, not whether they are control
 * tokens: an added token of a folder is a control token in a GGUF file of the same model. */
static int check_vocabulary(const struct engine *g, const struct engine *model, struct error *e)
{
    const char *path = weight_file_path(model->model->file);
    int n = tokenizer_size(g->tokenizer), m = tokenizer_size(model->tokenizer);

    for (int id = 0; id < (n < m ? n : m); id++) {
        size_t a, b;
        const char *x = tokenizer_piece(g->tokenizer, id, &a, NULL),
                   *y = tokenizer_piece(model->tokenizer, id, &b, NULL);

        if (is_filler(x, a) || is_filler(y, b) || (a == b && memcmp(x, y, a) == 0))
            continue;
        return error_set(e, ERR_USAGE,
                         "%s cannot draft for %s: token %d is another one there; a draft model "
                         "needs the same vocabulary",
                         path, weight_file_path(g->model->file), id);
    }
    return 0;
}

struct engine_config engine_draft_config(const struct engine_config *of, int context)
{
    struct engine_config c = *of;

    c.model_path = of->drafting.model;
    c.drafting = (struct drafting){0};
    c.mtp_of = NULL;
    c.context = context;
    c.sessions = (of->sessions > 1 ? of->sessions : 1) + 1; /* plus its unused chat session */
    c.overrides = NULL;
    c.adapters = NULL;
    c.n_adapters = 0;
    c.control = NULL;
    c.n_control = 0;
    c.expert_edits = NULL;
    c.n_expert_edits = 0;
    c.chat_template = c.chat_template_file = c.chat_template_globals = NULL;
    c.placement = c.placement_script = c.prompt_cache = NULL;
    c.chat_optional = true;
    c.convert = -1;
    c.expert_cache = 0;
    c.background = false;
    c.defer_experts = 0;
    c.experts_used = 0;
    c.experts_least = 0;
    c.opened = NULL;
    c.routing = NULL;
    return c;
}

int draft_model_check(const struct engine *g, const struct engine *model, struct error *e)
{
    if (!g->tokenizer || !model->tokenizer)
        return error_set(e, ERR_USAGE,
                         "-md: a model without a tokenizer cannot draft, or be drafted for");
    return check_vocabulary(g, model, e);
}
