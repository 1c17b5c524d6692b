/* See fit_page.h. */
#include "app/setup/fit_page.h"

#define MIB ((uint64_t)1 << 20)

/* Like fit_measure, with the memory of this process and of others taken from f: the vocabulary is
 * not loaded again. */
static int measure_as(const struct engine_config *c, const struct fit *f, struct fit *out)
{
    struct error ignored;
    int rc = fit_measure_fast(c, out, &ignored);

    if (rc < 0)
        return rc;
    out->total += f->program - out->program;
    out->program = f->program;
    out->available = f->available;
    return 0;
}

int fit_page(struct engine_config *c, struct fit *f, char *line, size_t size)
{
    struct engine_config try = *c;
    uint64_t others;
    struct fit all;

    try.expert_cache = UINT64_MAX / 2; /* all experts: leaves the other needs */
    if (f->available == UINT64_MAX || measure_as(&try, f, &all) < 0)
        return 0;
    others = fit_needed(&all) - all.weights.cache + engine_memory_spare(f->available);
    if (!all.weights.on_disk || others >= f->available)
        return 0;
    try.expert_cache = (f->available - others) / MIB * MIB; /* as the flag can express */
    if (try.expert_cache < all.weights.cache_least)
        return 0;
    if (measure_as(&try, f, &all) < 0 || fit_needed(&all) > f->available)
        return 0;
    snprintf(line, size,
             "%s does not fit into the %.1f GiB that are free: its %.1f GiB of experts stay on the "
             "disk, %.1f GiB of memory hold some of them (--expert-cache)",
             all.name, (double)f->available / (1 << 30), (double)all.weights.on_disk / (1 << 30),
             (double)all.weights.cache / (1 << 30));
    c->expert_cache = try.expert_cache;
    *f = all;
    return 1;
}

#define STEP_SMALL 128
#define CONTEXT_UNIT 256
#define CONTEXT_LEAST 512

/* Whether fit_page makes it fit with this context; *found and *as are its settings and needs. */
static bool page_at(const struct engine_config *c, const struct fit *f, int context,
                    struct engine_config *found, struct fit *as)
{
    char ignored[300];

    *found = *c;
    *as = *f;
    found->context = context;
    return fit_page(found, as, ignored, sizeof ignored) == 1;
}

/* The longest context that fits; 0: none. */
static int longest(const struct engine_config *c, const struct fit *f, struct engine_config *found,
                   struct fit *as)
{
    int low = CONTEXT_LEAST / CONTEXT_UNIT, high = f->context / CONTEXT_UNIT;

    if (page_at(c, f, f->context, found, as))
        return f->context;
    if (f->context <= CONTEXT_LEAST || !page_at(c, f, CONTEXT_LEAST, found, as))
        return 0;
    while (low + 1 < high) {
        int middle = (low + high) / 2;

        if (page_at(c, f, middle * CONTEXT_UNIT, found, as))
            low = middle;
        else
            high = middle;
    }
    page_at(c, f, low * CONTEXT_UNIT, found, as);
    return low * CONTEXT_UNIT;
}

int fit_page_smaller(struct engine_config *c, struct fit *f, char *flags, size_t size)
{
    struct engine_config try = *c, found;
    char steps[16] = "", context[24] = "";
    struct fit as;
    int longest_found;

    *flags = 0;
    if (!page_at(&try, f, c->context, &found, &as)) {
        if (f->ubatch > STEP_SMALL) {
            try.ubatch = STEP_SMALL;
            snprintf(steps, sizeof steps, "-ub %d ", STEP_SMALL);
        }
        if (!(longest_found = longest(&try, f, &found, &as)))
            return 0;
        if (longest_found < f->context)
            snprintf(context, sizeof context, "-c %d ", longest_found);
    }
    snprintf(flags, size, "%s%s--expert-cache %lluM", steps, context,
             (unsigned long long)(found.expert_cache / MIB));
    *c = found;
    *f = as;
    return 1;
}
