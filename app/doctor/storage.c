/* The doctor's checks of the cache folder, what is kept in it of the kernels, and the disk. */
#include "app/doctor/internal.h"

#include "engine/base/control_group.h"

#include <stdlib.h>
#include <string.h>

#define SLOW_DISK 0.5e9

/* The mount that a path lies in, of the text of mountinfo (proc(5)): its point and options. The
 * last one of the longest point counts, which lies over the others. */
static bool find_mount(char *text, const char *path, char *point, size_t size, char options[256])
{
    size_t longest = 0;
    bool found = false;
    char *next = NULL;

    for (char *line = strtok_r(text, "\n", &next); line; line = strtok_r(NULL, "\n", &next)) {
        char at[PATH_MAX], flags[256];
        size_t n;

        if (sscanf(line, "%*s %*s %*s %*s %4095s %255s", at, flags) != 2)
            continue;
        n = strlen(at);
        if (strcmp(at, "/") == 0)
            n = 0;
        if (strncmp(path, at, n) || (path[n] != '/' && path[n] && n) || n < longest)
            continue;
        longest = n;
        found = true;
        snprintf(point, size, "%s", at);
        memcpy(options, flags, sizeof flags);
    }
    return found;
}

static bool has_option(const char *options, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = options; (p = strstr(p, word)); p += n)
        if ((p == options || p[-1] == ',') && (!p[n] || p[n] == ','))
            return true;
    return false;
}

void doctor_check_cache(struct doctor *d)
{
    char text[DOCTOR_TEXT], point[PATH_MAX], options[256];
    const char *cache = d->place.cache;
    struct doctor_finding *f;

    if (!cache) {
        f = doctor_find(d, DOCTOR_WARN, "cache",
                        "no folder: every start measures and compiles "
                        "again%s%s",
                        d->place.cache_why[0] ? ": " : "", d->place.cache_why);
        doctor_remedy(f, "mkdir -p -m 700 ~/.cache",
                      "--cache-dir DIR names one that is yours "
                      "alone");
        return;
    }
    if (doctor_text(d, "/proc/self/mountinfo", text) == DOCTOR_READ &&
        find_mount(text, cache, point, sizeof point, options)) {
        if (has_option(options, "ro")) {
            f = doctor_find(d, DOCTOR_WARN, "cache", "%s lies in %s, which is mounted read-only",
                            cache, point);
            doctor_remedy(f, "", "--cache-dir DIR names another folder");
            return;
        }
        if (has_option(options, "noexec")) {
            f = doctor_find(d, DOCTOR_WARN, "cache",
                            "%s lies in %s, mounted noexec: drivers cannot "
                            "run what they compile there",
                            cache, point);
            doctor_remedy(f, "", "--cache-dir DIR in another place, and POCL_CACHE_DIR for PoCL");
            return;
        }
    }
    doctor_find(d, DOCTOR_OK, "cache", "%s", cache);
}

void doctor_check_tuning(struct doctor *d)
{
    const struct tune_count *c = &d->measures.tuned;
    double quota = cpu_group_quota(d->place.root);
    struct doctor_finding *f;

    if (!c->choices)
        return;
    if (!c->busy) {
        doctor_find(d, DOCTOR_OK, "kernel choices", "%d, measured on a quiet machine", c->choices);
        return;
    }
    /* threads that a quota stops now and then measure no better a second time */
    if (quota > 0 && quota < d->measures.threads) {
        f = doctor_find(d, DOCTOR_NOTE, "kernel choices",
                        "%d of %d were measured under the processor limit: they may be slow ones",
                        c->busy, c->choices);
        doctor_remedy(f, "", "raise the limit first; then moetop --bench --tune again");
        return;
    }
    f = doctor_find(d, DOCTOR_WARN, "kernel choices",
                    "%d of %d were measured while other programs took up to %d %% of the machine: "
                    "they may be slow ones",
                    c->busy, c->choices, c->most);
    if (c->floats)
        doctor_remedy(f, "moetop --bench --tune again",
                      "on a quiet machine, with each model: moetop --bench --tune again (%d of "
                      "them are of float weights and kept until then)",
                      c->floats);
    else
        doctor_remedy(f, "moetop --bench --tune again",
                      "none where the machine is quieter at a later start: they are measured again "
                      "after an answer; or at once: moetop --bench --tune again");
}

void doctor_check_disk(struct doctor *d)
{
    double rate = d->measures.disk_rate;
    struct doctor_finding *f;
    char text[24];

    if (!d->measures.disk_of[0])
        return;
    if (rate <= 0) {
        doctor_find(d, DOCTOR_NOTE, "disk",
                    "not measured: no direct reads there, or no model is large enough");
        return;
    }
    f = doctor_find(d, rate < SLOW_DISK ? DOCTOR_NOTE : DOCTOR_OK, "disk",
                    "random reads at %s, for models larger than memory", doctor_rate(rate, text));
    if (rate < SLOW_DISK)
        doctor_remedy(f, "", "keep such models on an NVMe disk");
}
