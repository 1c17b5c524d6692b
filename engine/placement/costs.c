/* See costs.h. The file is text: a first line with the version, then a word and its value a line.
 */
#include "engine/placement/costs.h"

#include "engine/base/cache.h"
#include "engine/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FILE_MOST 4096
#define FIRST_LINE "moetop costs 1"
#define FIGURES 7
#define LONGEST 1e13 /* ns */

static void figures_of(struct planner_device *d, double *at[FIGURES])
{
    at[0] = &d->handoff_ns;
    at[1] = &d->launch_ns;
    at[2] = &d->attention_ns;
    at[3] = &d->expert_ns;
    at[4] = &d->head_ns;
    at[5] = &d->prompt_attention_ns;
    at[6] = &d->prompt_expert_ns;
}

static bool figure_ok(double v)
{
    return isfinite(v) && v >= 0 && v < LONGEST;
}

static bool take_side(struct planner_device *d, const char *text)
{
    double *at[FIGURES];

    figures_of(d, at);
    if (sscanf(text, "%lf %lf %lf %lf %lf %lf %lf", at[0], at[1], at[2], at[3], at[4], at[5],
               at[6]) != FIGURES)
        return false;
    for (int i = 0; i < FIGURES; i++)
        if (!figure_ok(*at[i]))
            return false;
    return true;
}

static void fill(struct planner_device *d, struct planner_device *kept)
{
    double *to[FIGURES], *from[FIGURES];

    figures_of(d, to);
    figures_of(kept, from);
    for (int i = 0; i < FIGURES; i++)
        if (*to[i] <= 0)
            *to[i] = *from[i];
}

static const char *value_of(const char *line, const char *word)
{
    size_t n = strlen(word);

    return strncmp(line, word, n) == 0 && line[n] == ' ' ? line + n + 1 : NULL;
}

int costs_read(struct planner_input *in, int index, const char *path, const struct verdict_keys *k,
               int *uses)
{
    struct planner_device cpu = {0}, device = {0};
    char *text, *line, *rest;
    double host = 0;
    int found = 0, used = 0;
    bool good;
    size_t n;

    *uses = 0;
    if (cache_read(path, FILE_MOST, &text, &n, NULL) < 0 || !text)
        return 0;
    line = strtok_r(text, "\n", &rest);
    good = line && strcmp(line, FIRST_LINE) == 0;
    while (good && (line = strtok_r(NULL, "\n", &rest))) {
        const char *at;

        if ((at = value_of(line, "driver")))
            good = strcmp(at, k->driver) == 0, found |= 1;
        else if ((at = value_of(line, "machine")))
            good = strcmp(at, k->machine) == 0, found |= 2;
        else if ((at = value_of(line, "uses")))
            good = sscanf(at, "%d", &used) == 1 && used >= 0 && used < COSTS_USES, found |= 4;
        else if ((at = value_of(line, "host")))
            good = sscanf(at, "%lf", &host) == 1 && figure_ok(host), found |= 8;
        else if ((at = value_of(line, "cpu")))
            good = take_side(&cpu, at), found |= 16;
        else if ((at = value_of(line, "device")))
            good = take_side(&device, at), found |= 32;
    }
    mem_free(text);
    if (!good || found != 63)
        return 0;
    fill(&in->devices[0], &cpu);
    fill(&in->devices[index], &device);
    if (in->prompt_host_ns <= 0)
        in->prompt_host_ns = host;
    *uses = used;
    return 1;
}

static int side_line(char *out, size_t size, const char *word, struct planner_device d)
{
    double *at[FIGURES];

    figures_of(&d, at);
    return snprintf(out, size, "%s %.1f %.1f %.1f %.1f %.1f %.1f %.1f\n", word, *at[0], *at[1],
                    *at[2], *at[3], *at[4], *at[5], *at[6]);
}

int costs_write(const struct planner_input *in, int index, const char *path,
                const struct verdict_keys *k, int uses, struct error *e)
{
    char text[FILE_MOST];
    size_t at = (size_t)snprintf(text, sizeof text,
                                 FIRST_LINE "\ndriver %s\nmachine %s\nuses %d\nhost %.1f\n",
                                 k->driver, k->machine, uses, in->prompt_host_ns);

    at += (size_t)side_line(text + at, sizeof text - at, "cpu", in->devices[0]);
    at += (size_t)side_line(text + at, sizeof text - at, "device", in->devices[index]);
    return cache_write(path, text, at, e);
}
