/* See fit_page.h. */
#include "app/setup/fit_page.h"

#define SPARE_LEAST ((uint64_t)96 << 20)

/* What is left alone: what grows while a model runs, and what others may want. */
static uint64_t spare(uint64_t available)
{
    return available / 10 > SPARE_LEAST ? available / 10 : SPARE_LEAST;
}

int fit_page(struct engine_config *c, struct fit *f, char *line, size_t size)
{
    struct engine_config try = *c;
    uint64_t others;
    struct error ignored;
    struct fit all;

    try.expert_cache = UINT64_MAX / 2; /* as large as all of them: what else is needed shows */
    if (f->available == UINT64_MAX || fit_measure(&try, &all, &ignored) < 0)
        return 0;
    others = fit_needed(&all) - all.weights.cache + spare(f->available);
    if (!all.weights.on_disk || others >= f->available)
        return 0;
    try.expert_cache = f->available - others;
    if (fit_measure(&try, &all, &ignored) < 0 || fit_needed(&all) > f->available)
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

void fit_page_flag(const struct engine_config *c, const struct fit *f, char *out, size_t size)
{
    struct engine_config try = *c;
    struct fit paged = *f;
    char ignored[300];

    *out = 0;
    if (fit_page(&try, &paged, ignored, sizeof ignored) == 1)
        snprintf(out, size, "--expert-cache %lluM",
                 (unsigned long long)(try.expert_cache >> 20));
}
