/* Drafters that live on the model's hidden states: Medusa heads, whose logits are compared with the
 * formula written down here, and the straight line through two states. Whatever they guess, the
 * text stays; heads that were fitted to what the model says are right often. */
#include "engine/base/mem.h"
#include "engine/device/device.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/medusa_heads.h"
#include "engine/run/prompt.h"
#include "tests/fake_device.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT 512
#define TOLERANCE 1e-4

static const struct device_ops *const with_fake[] = {&fake_device_ops, &cpu_device_ops, NULL};

/* ---- files ---- */

struct file_tensor {
    char name[64];
    int rows, cols; /* cols 0: one dimension */
    float *values;
};

struct heads_file {
    struct file_tensor tensors[24];
    int n;
};

static float *add(struct heads_file *f, const char *name, int rows, int cols)
{
    struct file_tensor *t = &f->tensors[f->n++];

    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = rows;
    t->cols = cols;
    t->values = mem_alloc((size_t)rows * (size_t)(cols ? cols : 1), sizeof *t->values);
    ck_assert_ptr_nonnull(t->values);
    return t->values;
}

static void release_file(struct heads_file *f)
{
    for (int i = 0; i < f->n; i++)
        mem_free(f->tensors[i].values);
}

static const char *write_file(const struct heads_file *f, const char *name)
{
    static char path[4096];
    char header[8192];
    size_t at = 0, n = 0;
    uint64_t length;
    FILE *out;

    n += (size_t)snprintf(header + n, sizeof header - n, "{");
    for (int i = 0; i < f->n; i++) {
        const struct file_tensor *t = &f->tensors[i];
        size_t bytes = (size_t)t->rows * (size_t)(t->cols ? t->cols : 1) * sizeof(float);
        char columns[20] = "";

        if (t->cols)
            snprintf(columns, sizeof columns, ", %d", t->cols);
        n += (size_t)snprintf(header + n, sizeof header - n,
                              "%s\"%s\": {\"dtype\": \"F32\", \"shape\": [%d%s], "
                              "\"data_offsets\": [%zu, %zu]}",
                              i ? ", " : "", t->name, t->rows, columns, at, at + bytes);
        at += bytes;
    }
    n += (size_t)snprintf(header + n, sizeof header - n, "}");
    ck_assert_uint_lt(n, sizeof header);
    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    length = n;
    fwrite(&length, sizeof length, 1, out);
    fwrite(header, 1, n, out);
    for (int i = 0; i < f->n; i++)
        fwrite(f->tensors[i].values, sizeof(float),
               (size_t)f->tensors[i].rows * (size_t)(f->tensors[i].cols ? f->tensors[i].cols : 1),
               out);
    ck_assert_int_eq(fclose(out), 0);
    return path;
}

static void fill(float *x, size_t n, unsigned *seed, float most)
{
    for (size_t i = 0; i < n; i++)
        x[i] = most * tiny_random(seed);
}

/* Head 0: one block and logits of its own; head 1: two blocks, one without bias, and the model's
 * logits; head 2: logits alone. */
static const char *random_heads(struct heads_file *f, int hidden, int vocab, const char *prefix)
{
    static const struct {
        const char *end;
        int rows, cols; /* of hidden (1) and vocabulary (2) */
    } all[] = {{"0.0.linear.weight", 1, 1}, {"0.0.linear.bias", 1, 0},   {"0.1.weight", 2, 1},
               {"1.0.linear.weight", 1, 1}, {"1.1.linear.weight", 1, 1}, {"1.1.linear.bias", 1, 0},
               {"2.0.weight", 2, 1}};
    unsigned seed = 7;

    *f = (struct heads_file){.n = 0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int rows = all[i].rows == 1 ? hidden : vocab, cols = all[i].cols ? hidden : 0;
        char name[64];

        snprintf(name, sizeof name, "%s%s", prefix, all[i].end);
        fill(add(f, name, rows, cols), (size_t)rows * (size_t)(cols ? cols : 1), &seed, 0.2f);
    }
    return write_file(f, "heads.safetensors");
}

/* ---- engines ---- */

static struct engine_config config_of(const char *model, const char *spec)
{
    struct engine_config c = {.model_path = model,
                              .context = CONTEXT,
                              .n_threads = 2,
                              .ubatch = 64,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = -1,
                              .exact = true,
                              .no_tokenizer = true,
                              .cache_dir = support_tmpdir(),
                              .tune = DEVICE_TUNE_OFF,
                              .drafting = {.always = true, .n_max = 4}};

    snprintf(c.drafting.type, sizeof c.drafting.type, "%s", spec);
    return c;
}

static struct engine *open_engine(const struct engine_config *c)
{
    struct engine *g = NULL;
    struct error e = {0};

    ck_assert_msg(engine_open(&g, c, &e) == 0, "%s", e.text);
    return g;
}

/* ---- the formula ---- */

static const float *tensor_of(const struct heads_file *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return f->tensors[i].values;
    return NULL;
}

static void formula(const struct heads_file *f, const struct model *m, int k, const double *state,
                    double *logits)
{
    int n = m->hp.hidden;
    double *h = mem_alloc((size_t)n, sizeof *h), *y = mem_alloc((size_t)n, sizeof *y);
    const float *w, *out;
    char name[64];
    int block = 0;

    memcpy(h, state, (size_t)n * sizeof *h);
    for (;; block++) {
        const float *bias;

        snprintf(name, sizeof name, "%d.%d.linear.weight", k, block);
        if (!(w = tensor_of(f, name)))
            break;
        snprintf(name, sizeof name, "%d.%d.linear.bias", k, block);
        bias = tensor_of(f, name);
        for (int r = 0; r < n; r++) {
            y[r] = bias ? (double)bias[r] : 0;
            for (int c = 0; c < n; c++)
                y[r] += (double)w[(size_t)r * (size_t)n + (size_t)c] * h[c];
        }
        for (int r = 0; r < n; r++)
            h[r] += y[r] / (1 + exp(-y[r]));
    }
    snprintf(name, sizeof name, "%d.%d.weight", k, block);
    out = tensor_of(f, name);
    for (int r = 0; r < m->hp.n_vocab; r++) {
        logits[r] = !out && m->head.bias ? (double)m->head.bias[r] : 0;
        for (int c = 0; c < n; c++)
            logits[r] += h[c] * (out ? (double)out[(size_t)r * (size_t)n + (size_t)c]
                                     : (double)tiny_weight(&m->head, r, c));
    }
    mem_free(h);
    mem_free(y);
}

/* What the last norm makes of a state. */
static void normed_state(const struct model *m, const float *x, double *out)
{
    bool layer = m->hp.common.norms.kind == NORM_LAYER;
    const struct norm_weights *w = &m->output_norm;
    double mean = 0, squares = 0;
    int n = m->hp.hidden;

    for (int i = 0; i < n && layer; i++)
        mean += (double)x[i] / n;
    for (int i = 0; i < n; i++)
        squares += pow((double)x[i] - mean, 2) / n;
    for (int i = 0; i < n; i++)
        out[i] = ((double)x[i] - mean) / sqrt(squares + (double)m->hp.common.norms.eps) *
                     (double)w->weight[i] +
                 (w->bias ? (double)w->bias[i] : 0);
}

/* Folders in floats: the norm has a mean and a bias in one, neither in the other. */
static const char *const folders[] = {"golden/phimoe/phimoe-quirk-f32", "golden/families/qwen3_moe",
                                      "golden/families/deepseek_v3"};

static const int prompt[] = {5, 9, 12, 40, 41, 42, 9, 12, 7, 30, 31, 32, 33, 5};
#define PROMPT ((int)(sizeof prompt / sizeof *prompt))

START_TEST(logits_are_the_formulas)
{
    struct engine_config c = config_of(support_path(folders[_i]), "none");
    struct engine *g = open_engine(&c);
    const struct model *m = g->model;
    size_t hidden = (size_t)m->hp.hidden, vocab = (size_t)m->hp.n_vocab;
    struct heads_file f;
    struct medusa_request r = {.path = random_heads(&f, m->hp.hidden, m->hp.n_vocab, "")};
    float *state = mem_alloc(hidden, sizeof *state), *work = mem_alloc(2 * hidden, sizeof *work),
          *got = mem_alloc(vocab, sizeof *got);
    double *want = mem_alloc(vocab, sizeof *want), *h = mem_alloc(hidden, sizeof *h), worst = 0,
           most = 0;
    struct medusa_heads *heads;
    struct error e = {0};

    ck_assert_msg(medusa_heads_open(&heads, m, &r, &e) == 0, "%s", e.text);
    ck_assert_int_eq(medusa_heads_count(heads), 3);
    ck_assert_int_eq(engine_eval(g, prompt, PROMPT, got, false, &e), 0);
    for (int row = 0; row < PROMPT; row += 5) {
        const float *x = g->forward.x + (size_t)row * hidden;

        model_norm(m, &m->output_norm, x, state);
        normed_state(m, x, h);
        for (int k = 0; k < 3; k++) {
            ck_assert_int_eq(medusa_heads_logits(heads, k, &g->slots[0], state, work, got, &e), 0);
            formula(&f, m, k, h, want);
            for (size_t i = 0; i < vocab; i++) {
                worst = fmax(worst, fabs(want[i] - (double)got[i]));
                most = fmax(most, fabs(want[i]));
            }
        }
    }
    support_ran("%s: %.3g of logits up to %.3g", folders[_i], worst, most);
    ck_assert(worst <= TOLERANCE * fmax(1, most));
    ck_assert(most > 0.1);
    medusa_heads_free(heads);
    release_file(&f);
    mem_free(state);
    mem_free(work);
    mem_free(got);
    mem_free(want);
    mem_free(h);
    engine_close(g);
}
END_TEST

/* With a prefix, and as many as there are; made ones behind. */
START_TEST(heads_are_found_and_made)
{
    struct engine_config c = config_of(support_demo(), "none");
    struct engine *g = open_engine(&c);
    const struct model *m = g->model;
    struct heads_file f;
    struct medusa_request r = {.n = 5, .init = (enum medusa_init)_i};
    struct medusa_heads *heads;
    uint64_t bytes;
    float *state = mem_alloc((size_t)m->hp.hidden, sizeof *state),
          *work = mem_alloc(2 * (size_t)m->hp.hidden, sizeof *work),
          *a = mem_alloc((size_t)m->hp.n_vocab, sizeof *a),
          *b = mem_alloc((size_t)m->hp.n_vocab, sizeof *b), spread = 0;
    struct error e = {0};

    r.path = random_heads(&f, m->hp.hidden, m->hp.n_vocab, "medusa_head.");
    ck_assert_msg(medusa_heads_open(&heads, m, &r, &e) == 0, "%s", e.text);
    ck_assert_int_eq(medusa_heads_count(heads), 5);
    ck_assert_int_eq(medusa_heads_footprint(m, &r, &bytes, &e), 0);
    ck_assert_uint_gt(bytes, (uint64_t)m->hp.n_vocab * (uint64_t)m->hp.hidden);
    ck_assert_int_eq(engine_eval(g, prompt, PROMPT, a, false, &e), 0);
    model_norm(m, &m->output_norm, g->forward.x + (size_t)(PROMPT - 1) * (size_t)m->hp.hidden,
               state);
    ck_assert_int_eq(medusa_heads_logits(heads, 4, &g->slots[0], state, work, b, &e), 0);
    for (int i = 0; i < m->hp.n_vocab; i++)
        spread = fmaxf(spread, fabsf(a[i] - b[i]));
    if (_i == MEDUSA_INIT_head)
        ck_assert_msg(spread < 0.05f, "%g", (double)spread);
    for (int i = 0; i < m->hp.n_vocab && _i == MEDUSA_INIT_zero; i++)
        ck_assert(b[i] == 0.0f);
    if (_i == MEDUSA_INIT_random)
        ck_assert(spread > 0.5f);
    medusa_heads_free(heads);
    release_file(&f);
    mem_free(state);
    mem_free(work);
    mem_free(a);
    mem_free(b);
    engine_close(g);
}
END_TEST

/* ---- bad input ---- */

static void refused(struct heads_file *f, const char *says)
{
    struct engine_config c = config_of(support_demo(), "medusa");
    struct engine *g = NULL;
    struct error e = {0};

    c.drafting.medusa.path = f ? write_file(f, "bad.safetensors") : "/nowhere/at/all.safetensors";
    ck_assert_int_lt(engine_open(&g, &c, &e), 0);
    ck_assert_ptr_null(g);
    ck_assert_msg(strstr(e.text, "--medusa") && strstr(e.text, says), "%s", e.text);
    if (f)
        release_file(f);
}

START_TEST(bad_files_are_refused)
{
    struct engine_config c = config_of(support_demo(), "medusa");
    struct engine *g = NULL;
    struct error e = {0};
    struct heads_file f;

    ck_assert_int_eq(engine_open(&g, &c, &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, "--medusa"), "%s", e.text);
    refused(NULL, "nowhere");
    f = (struct heads_file){.n = 0};
    add(&f, "lm_head.weight", 4, 4);
    refused(&f, "no Medusa heads");
    f = (struct heads_file){.n = 0};
    add(&f, "0.0.linear.weight", 255, 256);
    refused(&f, "255 x 256");
    f = (struct heads_file){.n = 0};
    add(&f, "0.0.linear.weight", 256, 256);
    add(&f, "0.0.linear.bias", 255, 0);
    refused(&f, "255 values");
    f = (struct heads_file){.n = 0};
    add(&f, "0.0.weight", 256, 256);
    refused(&f, "4096 x 256");
    f = (struct heads_file){.n = 0};
    add(&f, "0.0.weight", 4096, 256)[70000] = NAN;
    refused(&f, "0.0.weight");
}
END_TEST

/* ---- drafts ---- */

struct said {
    int ids[CONTEXT], n, cancel_after;
    struct turn_done_event done;
};

static int hear(void *ctx, struct event *ev)
{
    struct said *s = ctx;

    if (ev->kind == EVENT_TURN_DONE)
        s->done = ev->done_turn;
    if (ev->kind != EVENT_TOKEN || ev->token.id < 0)
        return 0;
    s->ids[s->n++] = ev->token.id;
    return s->cancel_after && s->n >= s->cancel_after;
}

static void ask(struct engine *g, int first, int n, int tokens, float temperature, int cancel,
                struct said *s)
{
    int ids[64];
    struct turn t = {.max_tokens = tokens,
                     .ignore_eos = true,
                     .prompt = {.ids = ids, .n = n},
                     .sampling = {.temperature = temperature,
                                  .top_k = 40,
                                  .top_p = 0.95f,
                                  .repeat_penalty = 1,
                                  .seed = 11}};
    struct error e = {0};

    for (int i = 0; i < n; i++)
        ids[i] = first + i % 7;
    *s = (struct said){.cancel_after = cancel};
    ck_assert_msg(engine_turn(g, &t, hear, s, NULL, &e) == 0, "%s", e.text);
}

static const struct {
    const char *spec;
    enum medusa_init init;
    int heads;
    float alpha;
    const char *place;
    bool pays;
} drafting[] = {{"medusa", MEDUSA_INIT_head, 4, 0, NULL, false},
                {"medusa", MEDUSA_INIT_random, 3, 0, NULL, false},
                {"medusa", MEDUSA_INIT_zero, 1, 0, NULL, false},
                {"auto", MEDUSA_INIT_head, 2, 0, NULL, true},
                {"eagle", 0, 0, 0, NULL, false},
                {"eagle", 0, 0, 0.7f, NULL, false},
                {"eagle", 0, 0, -0.5f, NULL, true},
                {"medusa", MEDUSA_INIT_head, 4, 0, "layers:4", false},
                {"eagle", 0, 0, 0, "layers:8", false},
                {"eagle", 0, 0, 0, "experts-gpu", false}};

START_TEST(the_text_stays)
{
    static const struct {
        int first, n, tokens, cancel;
        float temperature;
    } turns[] = {{65, 20, 60, 0, 0},
                 {65, 29, 60, 0, 0.8f},
                 {65, 29, 50, 21, 0},
                 {900, 12, 80, 0, 0.3f},
                 {65, 40, 400, 0, 0}};
    struct engine_config plain = config_of(support_demo(), "none"), c;
    struct engine *without = open_engine(&plain), *with;
    static struct said x, y;
    int drafted = 0, accepted = 0;

    c = config_of(support_demo(), drafting[_i].spec);
    c.drafting.medusa = (struct medusa_request){.n = drafting[_i].heads, .init = drafting[_i].init};
    c.drafting.alpha = drafting[_i].alpha;
    c.drafting.always = !drafting[_i].pays;
    c.placement = drafting[_i].place;
    c.backends = drafting[_i].place ? with_fake : NULL;
    fake_device_control(NULL);
    with = open_engine(&c);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        ask(without, turns[i].first, turns[i].n, turns[i].tokens, turns[i].temperature,
            turns[i].cancel, &x);
        ask(with, turns[i].first, turns[i].n, turns[i].tokens, turns[i].temperature,
            turns[i].cancel, &y);
        ck_assert_int_eq(x.n, y.n);
        ck_assert_mem_eq(x.ids, y.ids, (size_t)x.n * sizeof *x.ids);
        drafted += y.done.drafted;
        accepted += y.done.accepted;
    }
    support_ran("%s: %d of %d drafts were right", drafting[_i].spec, accepted, drafted);
    ck_assert(drafting[_i].pays || drafted > 30);
    engine_close(without);
    engine_close(with);
}
END_TEST

/* A straight line of states goes on where it went, and alpha is what they say. */
START_TEST(alpha_is_fitted)
{
    const struct drafter_ops *ops = drafter_ops(DRAFTER_eagle);
    struct engine_config c = config_of(support_demo(), "eagle");
    struct engine *g = open_engine(&c);
    struct drafter *d = g->session->spec.drafters[DRAFTER_eagle];
    size_t hidden = (size_t)g->model->hp.hidden;
    float *x = mem_alloc(8 * hidden, sizeof *x), *want = mem_alloc(hidden, sizeof *want),
          *logits = mem_alloc((size_t)g->model->hp.n_vocab, sizeof *logits), p[DRAFT_MOST];
    static const float *const none[1];
    int ids[10] = {0}, out[DRAFT_MOST], best = 0;
    unsigned seed = 3;
    struct error e = {0};

    ck_assert_ptr_nonnull(d);
    fill(x, 2 * hidden, &seed, 1);
    for (size_t i = 2 * hidden; i < 8 * hidden; i++) /* each step half of the one before */
        x[i] = x[i - hidden] + 0.5f * (x[i - hidden] - x[i - 2 * hidden]);
    ops->states(d, 0, 8, &(struct hidden_states){.x = x});
    ck_assert_int_eq(ops->propose(d, ids, 8, 1, 0.15f, out, p), 0); /* not the token that waits */
    ck_assert_int_eq(ops->propose(d, ids, 9, 1, 0.15f, out, p), 1);
    for (size_t i = 0; i < hidden; i++)
        want[i] = x[7 * hidden + i] + 0.5f * (x[7 * hidden + i] - x[6 * hidden + i]);
    ck_assert_int_eq(forward_head_at(&g->forward, want, none, 1, logits, &e), 0);
    for (int i = 0; i < g->model->hp.n_vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    ck_assert_int_eq(out[0], best);
    ops->states(d, 5, 0, NULL); /* gone back: nothing to go on from */
    ck_assert_int_eq(ops->propose(d, ids, 9, 1, 0.15f, out, p), 0);
    mem_free(x);
    mem_free(want);
    mem_free(logits);
    engine_close(g);
}
END_TEST

/* ---- heads fitted to what the model says ---- */

#define STORIES 10
#define FIT_HEADS 3

struct text {
    int n;         /* states: of position i, whose next tokens stand at ids + i + 1 */
    float *states; /* (n, hidden), normed */
    int *ids;
};

/* The model's own stories, with the states that the head had. */
static void gather(struct engine *g, struct text *t)
{
    const struct model *m = g->model;
    size_t hidden = (size_t)m->hp.hidden;
    static struct said s;
    struct error e = {0};
    int ids[CONTEXT];

    t->states = mem_alloc((size_t)STORIES * CONTEXT * hidden, sizeof *t->states);
    t->ids = mem_alloc((size_t)STORIES * CONTEXT + FIT_HEADS + 2, sizeof *t->ids);
    for (int i = 0; i < STORIES; i++) {
        const int *held;
        int n;

        engine_session_clear(g);
        ask(g, 300 + 37 * i, 8, 300, 0.6f, 0, &s);
        n = engine_session_tokens(g, &held);
        memcpy(ids, held, (size_t)n * sizeof *ids);
        engine_session_clear(g);
        for (int at = 0; at < n; at += 64) {
            int rows = n - at < 64 ? n - at : 64;

            ck_assert_int_eq(engine_eval(g, ids + at, rows, NULL, false, &e), 0);
            for (int r = 0; r < rows; r++)
                model_norm(m, &m->output_norm, g->forward.x + (size_t)r * hidden,
                           t->states + (size_t)(t->n + at + r) * hidden);
        }
        memcpy(t->ids + t->n, ids, (size_t)n * sizeof *ids);
        t->n += n;
    }
}

/* a (n, n), symmetric and positive: a becomes its Cholesky factor. */
static void factor(double *a, int n)
{
    for (int r = 0; r < n; r++)
        for (int c = 0; c <= r; c++) {
            double sum = a[r * n + c];

            for (int i = 0; i < c; i++)
                sum -= a[r * n + i] * a[c * n + i];
            a[r * n + c] = r == c ? sqrt(sum) : sum / a[c * n + c];
        }
}

static void solve(const double *l, int n, double *b)
{
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < r; i++)
            b[r] -= l[r * n + i] * b[i];
        b[r] /= l[r * n + r];
    }
    for (int r = n - 1; r >= 0; r--) {
        for (int i = r + 1; i < n; i++)
            b[r] -= l[i * n + r] * b[i];
        b[r] /= l[r * n + r];
    }
}

/* Logits of head k: the ridge regression of which token stands there. */
static void fit_head(const struct text *t, const double *l, int hidden, int vocab, int k, float *w)
{
    double *b = mem_alloc((size_t)hidden, sizeof *b);

    for (int v = 0; v < vocab; v++) {
        int seen = 0;

        memset(b, 0, (size_t)hidden * sizeof *b);
        for (int i = 0; i + k + 2 < t->n; i++)
            if (t->ids[i + k + 2] == v) {
                seen++;
                for (int c = 0; c < hidden; c++)
                    b[c] += (double)t->states[(size_t)i * (size_t)hidden + (size_t)c];
            }
        if (seen)
            solve(l, hidden, b);
        for (int c = 0; c < hidden; c++)
            w[(size_t)v * (size_t)hidden + (size_t)c] = (float)b[c] * 20;
    }
    mem_free(b);
}

static const char *fitted_heads(struct engine *g)
{
    int hidden = g->model->hp.hidden, vocab = g->model->hp.n_vocab;
    double *a = mem_alloc((size_t)hidden * (size_t)hidden, sizeof *a);
    struct heads_file f = {.n = 0};
    struct text t = {.n = 0};
    const char *path;

    gather(g, &t);
    for (int i = 0; i < t.n; i++)
        for (int r = 0; r < hidden; r++)
            for (int c = 0; c <= r; c++)
                a[r * hidden + c] += (double)t.states[(size_t)(i * hidden + r)] *
                                     (double)t.states[(size_t)(i * hidden + c)];
    for (int r = 0; r < hidden; r++)
        a[r * hidden + r] += 30;
    factor(a, hidden);
    for (int k = 0; k < FIT_HEADS; k++) {
        char name[40];

        snprintf(name, sizeof name, "%d.0.weight", k);
        fit_head(&t, a, hidden, vocab, k, add(&f, name, vocab, hidden));
    }
    path = write_file(&f, "fitted.safetensors");
    release_file(&f);
    mem_free(a);
    mem_free(t.states);
    mem_free(t.ids);
    return path;
}

START_TEST(fitted_heads_are_right_often)
{
    struct engine_config plain = config_of(support_demo(), "none"),
                         c = config_of(support_demo(), "medusa");
    struct engine *without = open_engine(&plain), *with;
    const struct speculation_figures *f;
    static struct said x, y;
    int drafted = 0, accepted = 0;

    c.drafting.medusa.path = fitted_heads(without);
    with = open_engine(&c);
    f = &engine_telemetry(with)->speculation;
    for (int i = 0; i < 6; i++) {
        engine_session_clear(without);
        ask(without, 310 + 41 * i, 9, 250, i % 2 ? 0.6f : 0, 0, &x);
        ask(with, 310 + 41 * i, 9, 250, i % 2 ? 0.6f : 0, 0, &y);
        ck_assert_int_eq(x.n, y.n);
        ck_assert_mem_eq(x.ids, y.ids, (size_t)x.n * sizeof *x.ids);
        drafted += y.done.drafted;
        accepted += y.done.accepted;
    }
    support_ran("%d of %d drafts of fitted heads were right; of the first %.0f %%", accepted,
                drafted, 100.0 * (double)f->right[0] / (double)f->tried[0]);
    ck_assert_int_gt(accepted * 8, drafted);
    engine_close(without);
    engine_close(with);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("heads");
    TCase *t = tcase_create("heads");

    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, logits_are_the_formulas, 0, (int)(sizeof folders / sizeof *folders));
    tcase_add_loop_test(t, heads_are_found_and_made, 0, 3);
    tcase_add_test(t, bad_files_are_refused);
    tcase_add_loop_test(t, the_text_stays, 0, (int)(sizeof drafting / sizeof *drafting));
    tcase_add_test(t, alpha_is_fitted);
    tcase_add_test(t, fitted_heads_are_right_often);
    suite_add_tcase(s, t);
    return support_run(s);
}
