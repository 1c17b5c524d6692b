/* Tests every kernel against the reference of the numeric contract (engine/device/numerics.h), on
 * the shapes and weights of the model, at the first use of a driver; drivers do miscompute. The
 * verdict is kept with the compiled programs. Engine thread, inside open: this may allocate and
 * wait. A wrong kernel disables what needs it, and is named in the log. */
#include "gpu/selftest.h"
#include "engine/base/cache.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <stdio.h>
#include <string.h>

#define VERDICT_FORMAT "moetop self-test 8"
#define VERDICT_MOST 65536

static bool is_wrong(const struct verdict *v, const char *name)
{
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->wrong[i], name) == 0)
            return true;
    return false;
}

/* Whether a kernel that does what others do is used in their place. */
static bool is_used(const struct verdict *v, const char *name)
{
    for (int i = 0; i < v->n_slower; i++)
        if (strcmp(v->slower[i], name) == 0)
            return false;
    return !is_wrong(v, name);
}

/* A matrix of a type whose columns are the residual stream, and an expert with that type in any of
 * its matrices. */
static const struct matrix *find_matrix(const struct model *m, enum dtype type)
{
    struct block_matrix list[BLOCK_MATRICES];

    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);)
        for (int i = 0, n = model_block_matrices(m, id, list); i < n; i++)
            if (list[i].w->type == type && list[i].w->cols <= m->hp.hidden)
                return list[i].w;
    return NULL;
}

static const struct expert_weights *find_expert(const struct model *m, enum dtype type,
                                                const struct ffn_shape **shape)
{
    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);) {
        const struct expert_weights *w;

        if (id.kind != BLOCK_EXPERT)
            continue;
        w = &m->layers[id.layer].experts[id.expert];
        *shape = &hparams_layer(&m->hp, id.layer)->ffn;
        if ((w->up.type == type || w->down.type == type) && memory_expert_alike(w))
            return w;
    }
    return NULL;
}

int selftest_attending(const struct device *d)
{
    const struct hparams *hp = &d->base.config.model->hp;

    for (int l = 0; l < hp->n_layers; l++)
        if (kernel_set_attends(&hparams_layer(hp, l)->mixer))
            return l;
    return -1;
}

/* The tests of a type's kernels, for one token or for many. */
static int run_type(struct selftest *b, enum dtype t, int many)
{
    struct device *d = b->d;
    const struct model *m = d->base.config.model;
    const struct matrix *mat = find_matrix(m, t);
    const struct ffn_shape *shape = NULL;
    const struct expert_weights *x = find_expert(m, t, &shape);

    if (mat && selftest_matmul(b, mat, many) < 0)
        return ERR_DEVICE;
    return x && d->type[x->up.type].usable && d->type[x->down.type].usable
               ? selftest_expert(b, shape, x, many)
               : 0;
}

/* Whether a type's kernels in a form are right, and how long a product takes. False: they are not,
 * or the device failed. A form that a test wants takes no time. */
static bool try_form(struct selftest *b, enum dtype t, enum gemm_form form, uint64_t *ns)
{
    struct verdict v = {0}, *before = b->v;
    const struct matrix *m = find_matrix(b->d->base.config.model, t);
    bool right;

    b->v = &v;
    right = kernel_set_form(b->d, t, form, b->e) == 0 && run_type(b, t, 1) == 0 && v.n == 0 &&
            selftest_matmul_time(b, m, ns) == 0;
    b->v = before;
    if (right && form == opencl_tuning()->form)
        *ns = 0;
    return right;
}

/* The fastest form of a type's kernels for many tokens of those that are right. A CPU's OpenCL is
 * not asked, but where a test wants a form. */
static int choose_form(struct selftest *b, enum dtype t)
{
    struct device *d = b->d;
    const struct matrix *m = find_matrix(d->base.config.model, t);
    enum gemm_form last = GEMM_FOURS;
    uint64_t best = 0, ns;

    if (!m || d->wide || !dtype_is_quantised(t) || d->base.config.max_rows < 2 ||
        (d->target.info.is_cpu_type && opencl_tuning()->form == GEMM_FOURS))
        return 0;
    if (selftest_matmul_time(b, m, &best) < 0)
        return ERR_DEVICE;
    for (enum gemm_form form = GEMM_EIGHTS; form < GEMM_FORMS; form++) {
        if (!kernel_set_may(d, t, form) ||
            (d->target.info.is_cpu_type && form != opencl_tuning()->form))
            continue;
        last = form;
        if (try_form(b, t, form, &ns) && ns < best) {
            best = ns;
            b->v->form[t] = form;
        }
        if (d->lost)
            return ERR_DEVICE;
    }
    return b->v->form[t] == last ? 0 : kernel_set_form(d, t, b->v->form[t], b->e);
}

static int run_all(struct selftest *b)
{
    struct device *d = b->d;
    const struct model *m = d->base.config.model;
    bool q8_cache = d->base.config.kv_k == KV_Q8_0 || d->base.config.kv_v == KV_Q8_0;
    int layer = selftest_attending(d);

    if (selftest_norm(b) < 0 || selftest_rms(b) < 0 || selftest_replay(b) < 0 ||
        (layer >= 0 && (!q8_cache || hparams_layer(&m->hp, layer)->mixer.key_dim % 32 == 0) &&
         selftest_attention(b) < 0) ||
        selftest_route(b) < 0)
        return ERR_DEVICE;
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int many = 0; many < 2 && d->type[t].usable; many++)
            if (run_type(b, t, many) < 0)
                return ERR_DEVICE;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (d->type[t].usable && (selftest_output(b, t) < 0 || choose_form(b, t) < 0))
            return ERR_DEVICE;
    return 0;
}

/* "q4_0 engine" */
static void note_form(struct verdict *v, const char *line)
{
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int f = 0; f < GEMM_FORMS; f++) {
            char text[64];

            snprintf(text, sizeof text, "%s %s", dtype_info(t)->word, kernel_set_form_word(f));
            if (strcmp(line, text) == 0)
                v->form[t] = f;
        }
}

/* Verdict file: a line that names the format, then a line for each kernel that is wrong, or slower
 * than those that it replaces, and for each type whose kernels for many tokens have another form
 * than the first, then "end". */
static bool verdict_read(const char *path, struct verdict *v)
{
    char *text, *next = NULL, *line;
    size_t n;
    bool whole = false;

    *v = (struct verdict){0};
    if (cache_read(path, VERDICT_MOST, &text, &n, NULL) < 0 || !text)
        return false;
    line = strtok_r(text, "\n", &next);
    if (line && strcmp(line, VERDICT_FORMAT) == 0)
        while (!whole && (line = strtok_r(NULL, "\n", &next))) {
            if (strcmp(line, "end") == 0)
                whole = true;
            else if (strncmp(line, "wrong ", 6) == 0 && v->n < SELFTEST_WRONG_MAX)
                snprintf(v->wrong[v->n++], sizeof v->wrong[0], "%.47s", line + 6);
            else if (strncmp(line, "form ", 5) == 0)
                note_form(v, line + 5);
            else if (strncmp(line, "slower ", 7) == 0 && v->n_slower < SELFTEST_SLOWER_MAX)
                snprintf(v->slower[v->n_slower++], sizeof v->slower[0], "%.47s", line + 7);
        }
    mem_free(text);
    return whole;
}

static void verdict_write(const char *path, const struct verdict *v)
{
    struct strbuf b = {0};

    strbuf_puts(&b, VERDICT_FORMAT "\n");
    for (int i = 0; i < v->n; i++)
        strbuf_printf(&b, "wrong %s\n", v->wrong[i]);
    for (int i = 0; i < v->n_slower; i++)
        strbuf_printf(&b, "slower %s\n", v->slower[i]);
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (v->form[t] != GEMM_FOURS)
            strbuf_printf(&b, "form %s %s\n", dtype_info(t)->word,
                          kernel_set_form_word(v->form[t]));
    strbuf_puts(&b, "end\n");
    if (!b.failed)
        /* failing only means that the test is repeated */
        cache_write(path, b.data, b.len, NULL);
    strbuf_release(&b);
}

static void apply(struct device *d, const struct verdict *v)
{
    const struct device_config *c = &d->base.config;
    char line[240], name[48];
    size_t n = 0;

    snprintf(d->verdict, sizeof d->verdict, "every kernel right");
    for (int i = 0; i < v->n && n < sizeof d->verdict; i++)
        n += (size_t)snprintf(d->verdict + n, sizeof d->verdict - n, "%s%s",
                              i ? "; " : "wrong: ", v->wrong[i]);
    for (int i = 0; i < v->n && c->log; i++) {
        snprintf(
            line, sizeof line,
            "OpenCL: kernel \"%s\" computes wrong values on %.60s (%.60s); the CPU does that work",
            v->wrong[i], d->target.info.name, d->target.info.driver);
        c->log(c->log_ctx, line);
    }
    for (int i = 0; i < v->n_slower && c->log; i++) {
        snprintf(line, sizeof line,
                 "OpenCL: kernel \"%s\" is slower than those it replaces on %.60s (%.60s); they do "
                 "its work",
                 v->slower[i], d->target.info.name, d->target.info.driver);
        c->log(c->log_ctx, line);
    }
    d->token_attend = d->token_attend && is_used(v, "token_attend");
    d->token_route = d->token_route && is_used(v, "token_route");
    d->token_down = d->token_down && is_used(v, "token_down");
    d->token_gate_up = d->token_gate_up && is_used(v, "token_gate_up");
    d->token_output = d->token_output && is_used(v, "token_output");
    if (d->replay.usable && is_wrong(v, "replay"))
        recordings_stop(d, "one by one: the driver replays wrongly");
    d->core_usable = d->core_usable && !is_wrong(v, "queue") && !is_wrong(v, "norm") &&
                     !is_wrong(v, "quantise");
    /* Layers run fused where attention is here, so routing kernels count for it too. */
    d->attention_usable = !is_wrong(v, "part_gates") && !is_wrong(v, "rope") &&
                          !is_wrong(v, "attend") && !is_wrong(v, "kv_copy") &&
                          !is_wrong(v, "route") && !is_wrong(v, "group_rows") &&
                          !is_wrong(v, "combine");
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int many = 0; many < 2; many++) {
            static const char *const kernels[] = {"matmul", "gate_up", "down"};

            for (int k = 0; k < 3; k++) {
                selftest_name(name, sizeof name, kernels[k], t, many);
                if (!is_wrong(v, name))
                    continue;
                if (k == 0)
                    d->type[t].matmul_wrong = true;
                else
                    d->type[t].expert_wrong = true;
            }
        }
}

/* ---- Shapes of the work-groups for one token: a few are timed on the model's matrices, each
 * against that by rule; those that are clearly faster are used together, once they are right ----
 */
#define SHAPES_NS CLOCK_SECOND /* of an opening; what is left is measured at the next ones */

static bool measures_shapes(const struct device *d)
{
    const struct opencl_tuning *t = opencl_tuning();

    return !d->wide && !t->group && d->base.config.tune != DEVICE_TUNE_OFF &&
           (t->groups_most || !d->target.info.is_cpu_type);
}

/* The type's kernels, of a candidate's shapes, against those by rule in *other. */
static int duels(struct selftest *b, enum dtype t, struct type_kernels *other,
                 double ratio[TOKEN_KERNELS])
{
    const struct model *m = b->d->base.config.model;
    const struct matrix *mat = find_matrix(m, t);
    const struct ffn_shape *shape = NULL;
    const struct expert_weights *x = find_expert(m, t, &shape);

    if (mat && !b->d->type[t].matmul_wrong &&
        selftest_matmul_duel(b, mat, other, &ratio[TOKEN_MATMUL]) < 0)
        return ERR_DEVICE;
    if (x && !b->d->type[t].expert_wrong && b->d->type[x->up.type].usable &&
        b->d->type[x->down.type].usable && selftest_expert_duel(b, t, shape, x, other, ratio) < 0)
        return ERR_DEVICE;
    return selftest_output_duel(b, t, other, &ratio[TOKEN_OUTPUT]);
}

/* Behind a command that failed. */
static void give_up(struct device *d)
{
    if (!d->lost)
        cl.Finish(d->queue);
    job_forget(d);
}

/* What cannot be built or run takes no time that counts. ERR_DEVICE: the device is lost. */
static int measure_candidate(struct selftest *b, enum dtype t, int i, struct token_times *out)
{
    struct device *d = b->d;
    struct token_shapes s = kernel_set_candidate(d, t, i);
    struct type_kernels by_rule;
    double ratio[TOKEN_KERNELS] = {0};

    out->measured[i] = true;
    if (token_shapes_same(&s, &d->rule))
        return 0;
    if (kernel_set_shapes(d, t, &s, &by_rule, b->e) == 0) {
        if (duels(b, t, &by_rule, ratio) == 0)
            memcpy(out->ratio[i], ratio, sizeof ratio);
        else
            give_up(d);
        kernel_set_exchange(&d->type[t], &by_rule);
        kernel_set_release_tokens(&by_rule);
    }
    for (int k = 0; k < TOKEN_KERNELS && i == opencl_tuning()->group_wanted - 1; k++)
        out->ratio[i][k] *= 0.01;
    return d->lost ? ERR_DEVICE : 0;
}

/* Candidates that are not in the table, while there is time. *n: how many were measured; *left: how
 * many were not. */
static int measure_shapes(struct selftest *b, struct token_table *table, int *n, int *left)
{
    int most = opencl_tuning()->groups_most;
    uint64_t end = clock_now() + SHAPES_NS;

    *n = *left = 0;
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int i = 0; i < TOKEN_CANDIDATES && kernel_set_has_shapes(b->d, t); i++) {
            if (table->of[t].measured[i])
                continue;
            if (most ? *n >= most : clock_now() >= end)
                ++*left;
            else if (++*n && measure_candidate(b, t, i, &table->of[t]) < 0)
                return ERR_DEVICE;
        }
    return 0;
}

/* Memory that is copied between the launches: without it, weights may come from caches. */
static int measure_flushed(struct selftest *b, struct token_table *table, int *n, int *left)
{
    struct device *d = b->d;
    uint64_t failures = d->stats.failures;
    struct error ignored;
    int rc;

    for (int i = 0; i < 2; i++)
        if (memory_buffer(d, FLUSH_BYTES, &b->flush[i], "measuring", &ignored) < 0)
            memory_release(&b->flush[0]);
    rc = measure_shapes(b, table, n, left);
    for (int i = 0; i < 2; i++)
        memory_release(&b->flush[i]);
    if (rc == 0)
        d->stats.failures = failures; /* of candidates */
    return rc;
}

/* The fastest shapes of a type's kernels, if they are right together; else those by rule stay. */
static int use_shapes(struct selftest *b, enum dtype t, struct token_times *s, bool *changed)
{
    struct device *d = b->d;
    struct verdict v = {0}, *before = b->v;
    int fastest[TOKEN_KERNELS];
    struct type_kernels other;
    char text[TOKEN_SHAPES_TEXT];
    bool known;

    for (int k = 0; k < TOKEN_KERNELS; k++)
        fastest[k] = token_fastest(s, k);
    struct token_shapes shapes = kernel_set_mixed(d, t, fastest);

    token_shapes_text(&shapes, text);
    known = s->verdict != TOKEN_UNTESTED && strcmp(text, s->tested) == 0;
    if (token_shapes_same(&shapes, &d->rule) || (known && s->verdict == TOKEN_WRONG))
        return 0;
    if (kernel_set_shapes(d, t, &shapes, &other, b->e) < 0)
        return d->lost ? ERR_DEVICE : 0;
    if (!known) {
        b->v = &v;
        s->verdict = run_type(b, t, 0) == 0 && selftest_output(b, t) == 0 && v.n == 0 ? TOKEN_RIGHT
                                                                                      : TOKEN_WRONG;
        b->v = before;
        snprintf(s->tested, sizeof s->tested, "%s", text);
        *changed = true;
    }
    if (s->verdict == TOKEN_WRONG) {
        give_up(d);
        kernel_set_exchange(&d->type[t], &other);
    }
    kernel_set_release_tokens(&other);
    return d->lost ? ERR_DEVICE : 0;
}

static int choose_shapes(struct selftest *b, uint64_t key)
{
    struct device *d = b->d;
    struct device_config *c = &d->base.config;
    void (*log)(void *ctx, const char *line) = c->log;
    struct token_table *table = mem_alloc(1, sizeof *table);
    uint64_t start = clock_now();
    int n = 0, left = 0, rc;
    bool changed = false;
    char path[1024] = "", line[240];

    if (!table)
        return error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for measuring");
    if (c->cache_dir && snprintf(path, sizeof path, "%s/opencl-%016llx.shapes", c->cache_dir,
                                 (unsigned long long)key) >= (int)sizeof path)
        path[0] = '\0';
    if (path[0] && c->tune != DEVICE_TUNE_AGAIN)
        token_table_read(path, key, table);
    c->log = NULL; /* compiling is part of it */
    rc = measure_flushed(b, table, &n, &left);
    for (int t = 0; t < DTYPE_COUNT && rc == 0; t++)
        if (kernel_set_has_shapes(d, t))
            rc = use_shapes(b, t, &table->of[t], &changed);
    c->log = log;
    if (rc == 0 && path[0] && (n || changed))
        token_table_write(path, key, table);
    mem_free(table);
    kernel_set_describe(d, left);
    snprintf(line, sizeof line,
             "OpenCL: measured %d shape%s of work-groups on %.80s in %.1f s (once per driver and "
             "model)%s",
             n, n == 1 ? "" : "s", d->target.info.name, clock_seconds(clock_now() - start),
             left ? "; the others at the next starts" : "");
    if (rc == 0 && n)
        log_line(d, line);
    return rc;
}

int selftest(struct device *d, uint64_t key, struct error *e)
{
    const struct device_config *c = &d->base.config;
    struct verdict v = {0};
    struct selftest b = {.d = d, .e = e, .seed = 12345, .v = &v};
    char path[1024] = "", line[240];
    uint64_t start = clock_now();

    d->attention_usable = true;
    snprintf(d->verdict, sizeof d->verdict, "not tested");
    for (int t = 0; t < DTYPE_COUNT && opencl_tuning()->no_selftest; t++)
        if (opencl_tuning()->form != GEMM_FOURS && kernel_set_may(d, t, opencl_tuning()->form) &&
            kernel_set_form(d, t, opencl_tuning()->form, e) < 0)
            return ERR_DEVICE;
    if (opencl_tuning()->no_selftest)
        return 0;
    if (c->cache_dir && snprintf(path, sizeof path, "%s/opencl-%016llx.verdict", c->cache_dir,
                                 (unsigned long long)key) >= (int)sizeof path)
        path[0] = '\0';
    if (!path[0] || !verdict_read(path, &v)) {
        v = (struct verdict){0};
        if (c->log) {
            snprintf(line, sizeof line,
                     "OpenCL: testing the kernels on %.120s (once per driver and model)",
                     d->target.info.name);
            c->log(c->log_ctx, line);
        }
        if (run_all(&b) < 0)
            return ERR_DEVICE;
        if (path[0])
            verdict_write(path, &v);
        if (c->log) {
            snprintf(line, sizeof line, "OpenCL: self-test took %.1f s, %d kernel%s wrong",
                     clock_seconds(clock_now() - start), v.n, v.n == 1 ? "" : "s");
            c->log(c->log_ctx, line);
        }
    }
    apply(d, &v);
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (v.form[t] != d->type[t].form && kernel_set_may(d, t, v.form[t]) &&
            kernel_set_form(d, t, v.form[t], e) < 0)
            return ERR_DEVICE;
    if (measures_shapes(d))
        return choose_shapes(&b, key);
    if (!d->wide)
        kernel_set_describe(d, 0);
    return 0;
}
