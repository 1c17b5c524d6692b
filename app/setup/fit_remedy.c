/* See fit_remedy.h. A model is inspected once per type; contexts and chunk sizes are then tried by
 * computation only. */
#include "app/setup/fit_remedy.h"
#include "app/setup/fit_page.h"

#include "engine/convert/export.h"
#include "engine/device/state.h"
#include "engine/file/weights.h"
#include "engine/model/model.h"

#include <string.h>

#define CONTEXT_MEANT 4096 /* above this, less context is preferred to a smaller cache type */

static bool tried(const struct engine_config *c, const struct model *m,
                  const struct model_footprint *weights, uint64_t available)
{
    struct error ignored;
    struct fit f;

    return fit_of_model(c, m, weights, &f, &ignored) == 0 && fit_needed(&f) <= available;
}

int fit_context(const struct engine_config *c, const struct model *m,
                const struct model_footprint *weights, int most, uint64_t available)
{
    struct engine_config try = *c;
    int low = 0, high = most / 256;

    try.context = most < FIT_CONTEXT_LEAST ? most : FIT_CONTEXT_LEAST;
    if (most < 1 || !tried(&try, m, weights, available))
        return 0;
    try.context = most;
    if (most < FIT_CONTEXT_LEAST || tried(&try, m, weights, available))
        return most;
    while (low + 1 < high) {
        try.context = (low + high) / 2 * 256;
        if (tried(&try, m, weights, available))
            low = (low + high) / 2;
        else
            high = (low + high) / 2;
    }
    try.context = high * 256;
    if (!tried(&try, m, weights, available))
        try.context = low * 256;
    return try.context > FIT_CONTEXT_LEAST ? try.context : FIT_CONTEXT_LEAST;
}

struct remedy {
    struct engine_config c;
    const struct fit *f;
    uint64_t available; /* minus the needs besides the model: adapters, drafters */
    char *out;
    size_t size;
};

static bool says(struct remedy *r, const char *type, const char *flags)
{
    snprintf(r->out, r->size, "%s%s%s", type, *type && *flags ? " " : "", flags);
    return true;
}

/* With weights of one type: tries smaller chunks, a smaller KV cache, less context. */
static bool try_type(struct remedy *r, const struct model *m, const struct model_footprint *weights,
                     const char *type)
{
    const struct fit *f = r->f;
    char flags[96] = "";
    int n = 0, context;

    if (tried(&r->c, m, weights, r->available))
        return says(r, type, flags);
    if (f->ubatch > 128) {
        r->c.ubatch = 128;
        n = snprintf(flags, sizeof flags, "-ub 128");
        if (tried(&r->c, m, weights, r->available))
            return says(r, type, flags);
    }
    context = fit_context(&r->c, m, weights, f->context, r->available);
    if (context < CONTEXT_MEANT && context < f->context / 2 && r->c.kv_k < KV_Q8_0 &&
        r->c.kv_v < KV_Q8_0 && !state_not_blocks(&m->hp, KV_Q8_0, KV_Q8_0)) {
        r->c.kv_k = r->c.kv_v = KV_Q8_0;
        n += snprintf(flags + n, sizeof flags - (size_t)n, "%s-ctk q8_0 -ctv q8_0", n ? " " : "");
        if (tried(&r->c, m, weights, r->available))
            return says(r, type, flags);
        context = fit_context(&r->c, m, weights, f->context, r->available);
    }
    if (!context)
        return false;
    r->c.context = context;
    snprintf(flags + n, sizeof flags - (size_t)n, "%s-c %d", n ? " " : "", context);
    return says(r, type, flags);
}

static uint64_t left_for_model(const struct fit *f)
{
    uint64_t others = f->adapters + f->control + f->draft + f->mtp + f->heads;

    return f->available > others ? f->available - others : 0;
}

void fit_suggest(const struct engine_config *c, const struct fit *f, char *out, size_t size,
                 struct engine_config *found)
{
    static const int types[] = {-1, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0};
    bool done = false;

    *out = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types && !done; i++) {
        struct remedy r = {*c, f, left_for_model(f), out, size};
        struct model_footprint weights;
        struct error ignored;
        struct model *m;
        char type[32] = "";

        if (i) {
            if (dtype_is_quantised(f->type) || types[i] == (int)f->type)
                continue; /* only float weights are converted while loading */
            snprintf(type, sizeof type, "--dtype %s", dtype_info((enum dtype)types[i])->word);
            r.c.convert = types[i];
        }
        if (fit_inspect(&r.c, &m, &weights, &ignored) < 0)
            continue;
        done = try_type(&r, m, &weights, type);
        model_free(m);
        if (done && found)
            *found = r.c;
    }
}

/* Extra bytes of the sensitive matrices of a mix, compared with its base type. */
#define MIX_EXTRA 1.07

static const char *smaller_type(const struct engine_config *c, const struct model *m,
                                uint64_t available, uint64_t *bytes)
{
    static const char *const words[] = {"q8_0",   "q6_k",   "q5_k_m", "q4_k_m",
                                        "q3_k_m", "q2_k_s", NULL};
    struct engine_config least = *c;
    struct fit f;
    struct error ignored;

    least.ubatch = c->ubatch > 128 ? 128 : c->ubatch;
    least.context = m->hp.context_max < CONTEXT_MEANT ? m->hp.context_max : CONTEXT_MEANT;
    if (fit_of_model(&least, m, &(struct model_footprint){0}, &f, &ignored) < 0)
        return NULL;
    for (const char *const *w = words; *w; w++) {
        const struct export_type *type = export_type_find(*w);

        if (!type)
            continue;
        *bytes = (uint64_t)((double)m->n_params * (double)dtype_row_bytes(type->base, 256) / 256.0 *
                            MIX_EXTRA);
        if (*bytes < weight_file_bytes(m->file) && *bytes + fit_needed(&f) <= available)
            return *w;
    }
    return NULL;
}

const char *fit_smaller(const struct engine_config *c, const struct fit *f, uint64_t *bytes)
{
    struct model_footprint weights;
    const char *word = NULL;
    struct error ignored;
    struct model *m;

    if (fit_inspect(c, &m, &weights, &ignored) < 0)
        return NULL;
    if (weight_file_format(m->file) == WEIGHT_GGUF || strcmp(m->family, "phimoe") == 0)
        word = smaller_type(c, m, f->available, bytes);
    model_free(m);
    return word;
}

int fit_refuse(const struct engine_config *c, const struct fit *f, struct error *e)
{
    struct engine_config try = *c;
    struct fit as = *f;
    char remedy[96], paged[FIT_PAGE_FLAGS];

    fit_suggest(c, f, remedy, sizeof remedy, NULL);
    fit_page_smaller(&try, &as, paged, sizeof paged);
    if (*paged)
        return error_set(e, ERR_FIT,
                         "%s needs %.1f MiB more and %.1f MiB are free; it fits with %s%s%s "
                         "(experts stay on the disk), and --force loads it all the same",
                         f->name, (double)fit_needed(f) / (1 << 20),
                         (double)f->available / (1 << 20), remedy, *remedy ? ", or with " : "",
                         paged);
    if (*remedy)
        return error_set(e, ERR_FIT,
                         "%s needs %.1f MiB more and %.1f MiB are free; it fits with %s, and "
                         "--force loads it all the same",
                         f->name, (double)fit_needed(f) / (1 << 20),
                         (double)f->available / (1 << 20), remedy);
    return error_set(e, ERR_FIT,
                     "%s needs %.1f MiB more and %.1f MiB are free; take a smaller model, or "
                     "--force loads it all the same",
                     f->name, (double)fit_needed(f) / (1 << 20), (double)f->available / (1 << 20));
}

int fit_admit(struct engine_config *c, bool page, uint64_t freed, char *line, size_t size,
              struct error *e)
{
    struct fit f;
    int rc = fit_measure_fast(c, &f, e);

    *line = 0;
    if (rc < 0)
        return rc;
    if (f.available != UINT64_MAX)
        f.available += freed;
    if (fit_fits(&f) || (page && fit_page(c, &f, line, size) == 1))
        return 0;
    return fit_refuse(c, &f, e);
}

int fit_require(struct engine_config *c, bool force, bool page, struct error *e)
{
    char line[300];
    struct fit f;
    int rc;

    if (force)
        return 0;
    if ((rc = fit_admit(c, page, 0, line, sizeof line, e)) == 0 && *line)
        fprintf(stderr, "moetop: %s\n", line);
    if (rc != ERR_FIT)
        return rc;
    if ((rc = fit_measure(c, &f, e)) < 0)
        return rc;
    fit_print(&f, stderr);
    return fit_refuse(c, &f, e);
}
