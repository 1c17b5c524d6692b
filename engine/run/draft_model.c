/* The drafter `model`: a smaller model that has read the same tokens says what it would say, token
 * after token, always its first choice. It is an engine of its own, which shares threads and
 * devices with the one it drafts for (commons.h), and each session has one of its own there. It
 * stands here and not beside the other drafters because they know no engine. How often it is right
 * is learnt by how sure it was. Engine thread. */
#include "engine/base/mem.h"
#include "engine/run/draft/drafter.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define SURE 8         /* degrees of how sure it was */
#define PRIOR 2.0f     /* as if so many of each had been tried, right as often as it was sure */
#define FADE 0.97f     /* what an older draft counts beside a newer one */
#define UNLIKELY 0.15f /* that all so far are right: not worth another one */
#define EXPECTED 0.7f  /* right, before anything was tried */

struct drafter {
    struct session *session;
    struct engine *model;
    float *logits; /* n_vocab of the draft model */
    int n_vocab;   /* ids that both have */
    float tried[SURE], right[SURE];
    float all_tried, all_right;
    int degree[DRAFT_MOST], n; /* of the newest proposal */
};

static void release(struct drafter *d)
{
    if (!d)
        return;
    engine_session_close(d->session);
    mem_free(d->logits);
    mem_free(d);
}

static int make(struct drafter **out, struct engine *model, struct error *e)
{
    struct drafter *d = mem_alloc(1, sizeof *d);
    int rc = 0;

    *out = NULL;
    if (d) {
        d->model = model;
        d->n_vocab = model->model->hp.n_vocab;
        d->logits = mem_alloc((size_t)d->n_vocab, sizeof *d->logits);
    }
    if (!d || !d->logits)
        rc = error_set(e, ERR_MEMORY, "no memory for drafts");
    else
        rc = engine_session_open(model, &d->session, e);
    if (rc < 0) {
        release(d);
        return rc;
    }
    for (int i = 0; i < SURE; i++) {
        d->tried[i] = PRIOR;
        d->right[i] = PRIOR * ((float)i + 0.5f) / SURE;
    }
    d->all_tried = PRIOR;
    d->all_right = PRIOR * EXPECTED;
    *out = d;
    return 0;
}

static void expect(const struct drafter *d, int most, float *p)
{
    for (int i = 0; i < most; i++)
        p[i] = d->all_right / d->all_tried;
}

/* The draft model's first choice, and how sure it is. */
static int first_choice(const struct drafter *d, float *sure)
{
    const float *x = d->logits;
    double sum = 0;
    int best = 0;

    for (int i = 1; i < d->n_vocab; i++)
        best = x[i] > x[best] ? i : best;
    for (int i = 0; i < d->n_vocab; i++)
        sum += x[i] - x[best] > -20 ? (double)expf(x[i] - x[best]) : 0;
    *sure = (float)(1 / sum);
    return best;
}

/* Leading tokens of these that its session holds. */
static int common(const struct session *s, const int *ids, int n)
{
    int same = 0;

    while (same < n && same < s->n_tokens && ids[same] == s->tokens[same])
        same++;
    return same;
}

static int behind(const struct drafter *d, const int *ids, int n)
{
    return n - common(d->session, ids, n);
}

/* Its session holds these tokens, and the logits are those behind them. */
static bool read_along(struct drafter *d, const int *ids, int n)
{
    struct session *s = d->session;
    struct error e;
    int same = common(s, ids, n);

    session_rewind(s, same < n ? same : n - 1);
    return n <= d->model->info.context &&
           session_extend(s, ids + s->n_tokens, n - s->n_tokens, 0, d->logits, false, &e) == 0;
}

/* It cannot read ids that it does not have. */
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

static int propose(struct drafter *d, const int *ids, int n, int most, int *out, float *p)
{
    float all = 1;

    d->n = 0;
    if (!can_read(d, ids, n) || !read_along(d, ids, n))
        return 0;
    for (int i = 0; i < most && all > UNLIKELY; i++) {
        struct error e;
        float sure;

        if (i && (d->session->n_tokens >= d->model->info.context ||
                  session_extend(d->session, &out[i - 1], 1, 0, d->logits, false, &e) < 0))
            break;
        out[i] = first_choice(d, &sure);
        d->degree[i] = sure < 1.0f ? (int)(sure * SURE) : SURE - 1;
        p[i] = d->right[d->degree[i]] / d->tried[d->degree[i]];
        all *= p[i];
        d->n++;
    }
    return d->n;
}

static void learn(struct drafter *d, int tried, int taken)
{
    assert(taken <= tried && tried <= d->n);
    for (int i = 0; i < tried && i <= taken; i++) {
        int k = d->degree[i];

        d->tried[k] = d->tried[k] * FADE + 1;
        d->right[k] = d->right[k] * FADE + (i < taken ? 1.0f : 0.0f);
        d->all_tried = d->all_tried * FADE + 1;
        d->all_right = d->all_right * FADE + (i < taken ? 1.0f : 0.0f);
    }
}

const struct drafter_ops drafter_model = {
    .name = "model",
    .summary = "what a smaller model (-md) would say",
    .needs_model = true,
    .make = make,
    .release = release,
    .expect = expect,
    .behind = behind,
    .read = read_before,
    .propose = propose,
    .learn = learn,
};

/* An id that one of them fills its table up with: without a text, or called [PAD…]. */
static bool is_filler(const char *text, size_t n)
{
    return n == 0 || (n > 5 && text[n - 1] == ']' && memcmp(text, "[PAD", 4) == 0);
}

/* An id that both have means the same in both. Its text decides, not whether it counts as a control
 * token: what a folder calls an added token, a GGUF file of the same model calls a control token.
 */
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
    c.context = context;
    c.sessions = (of->sessions > 1 ? of->sessions : 1) + 1; /* its own, which nobody asks */
    c.overrides = NULL;
    c.adapters = NULL;
    c.n_adapters = 0;
    c.chat_template = c.chat_template_file = c.chat_template_globals = NULL;
    c.placement = c.placement_script = NULL;
    c.chat_optional = true;
    c.convert = -1;
    c.expert_cache = 0;
    c.background = false;
    c.defer_experts = 0;
    c.opened = NULL;
    return c;
}

int speculate_model_open(struct engine *g, const struct engine_config *of, struct error *e)
{
    struct engine_config c;
    int rc;

    if (!of->drafting.model || !g->drafts)
        return 0;
    c = engine_draft_config(of, g->info.context);
    c.commons = g->config.commons;
    if ((rc = engine_open(&g->draft_model, &c, e)) < 0)
        return error_prefix(e, "-md");
    if (!g->tokenizer || !g->draft_model->tokenizer)
        return error_set(e, ERR_USAGE,
                         "-md: a model without a tokenizer cannot draft, or be drafted for");
    return check_vocabulary(g, g->draft_model, e);
}
