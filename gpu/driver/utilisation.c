/* See utilisation.h. Formats: Documentation/gpu/drm-usage-stats.rst of Linux. A file descriptor may
 * be a duplicate of another one, so clients are counted once by drm-client-id; the busiest engine
 * represents the device, since engines work in parallel. */
#include "gpu/driver/utilisation.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ENGINES 16
#define MAX_CLIENTS 32

struct engine_use {
    char name[24];
    uint64_t busy; /* ns, or cycles of xe; summed over clients */
    /* cycles passed (xe), the largest of the clients; 0: busy is in ns */
    uint64_t total;
    uint64_t capacity; /* engines of this class */
};

struct reading {
    struct engine_use engine[MAX_ENGINES];
    int n;
    uint64_t time_ns;
    int clients;
    char device[32], driver[32]; /* PCI address and driver of the first client */
};

struct utilisation {
    char root[256];
    struct reading last;
    char card[600]; /* sysfs folder of the device; empty: not searched yet */
};

struct utilisation *utilisation_new(const char *root)
{
    struct utilisation *u = mem_alloc(1, sizeof *u);

    if (u)
        snprintf(u->root, sizeof u->root, "%s", root);
    return u;
}

void utilisation_free(struct utilisation *u)
{
    mem_free(u);
}

static bool read_text(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n;

    if (!f)
        return false;
    n = fread(out, 1, size - 1, f);
    out[n] = '\0';
    fclose(f);
    return n > 0;
}

static struct engine_use *engine_named(struct reading *r, const char *name, size_t n)
{
    n = n < sizeof r->engine[0].name ? n : sizeof r->engine[0].name - 1;
    for (int i = 0; i < r->n; i++)
        if (strncmp(r->engine[i].name, name, n) == 0 && r->engine[i].name[n] == '\0')
            return &r->engine[i];
    if (r->n == MAX_ENGINES)
        return NULL;
    memcpy(r->engine[r->n].name, name, n);
    r->engine[r->n].name[n] = '\0';
    r->engine[r->n].capacity = 1;
    return &r->engine[r->n++];
}

static bool field(const char *line, const char *prefix, const char **name, size_t *name_len,
                  const char **value)
{
    size_t n = strlen(prefix);
    const char *colon;

    if (strncmp(line, prefix, n) != 0 || !(colon = strchr(line, ':')))
        return false;
    *name = line + n;
    *name_len = (size_t)(colon - line) - n;
    *value = colon + 1 + strspn(colon + 1, " \t");
    return true;
}

/* Parses one fdinfo file; seen: the clients counted so far. */
static void read_client(struct reading *r, char *text, uint64_t *seen)
{
    const char *name, *value;
    char *next, *line, device[32] = "", driver[32] = "";
    uint64_t client = 0;
    size_t n;
    bool is_client = false;

    for (line = text; line && *line; line = next ? next + 1 : NULL) {
        next = strchr(line, '\n');
        if (next)
            *next = '\0';
        if (field(line, "drm-client-id", &name, &n, &value)) {
            client = strtoull(value, NULL, 10);
            is_client = true;
        } else if (field(line, "drm-pdev", &name, &n, &value)) {
            snprintf(device, sizeof device, "%s", value);
        } else if (field(line, "drm-driver", &name, &n, &value)) {
            snprintf(driver, sizeof driver, "%s", value);
        }
        if (next)
            *next = '\n';
    }
    if (!is_client)
        return;
    device[strcspn(device, "\n")] = driver[strcspn(driver, "\n")] = '\0';
    for (int i = 0; i < r->clients; i++)
        if (seen[i] == client)
            return;
    if (r->clients == MAX_CLIENTS || (r->clients && strcmp(r->device, device) != 0))
        return; /* one device is reported: the first that this process uses */
    seen[r->clients++] = client;
    snprintf(r->device, sizeof r->device, "%s", device);
    snprintf(r->driver, sizeof r->driver, "%s", driver);
    for (line = text; line && *line; line = next ? next + 1 : NULL) {
        struct engine_use *e;

        next = strchr(line, '\n');
        if (next)
            *next = '\0';
        if (field(line, "drm-engine-capacity-", &name, &n, &value)) {
            if ((e = engine_named(r, name, n)))
                e->capacity = strtoull(value, NULL, 10) ? strtoull(value, NULL, 10) : 1;
        } else if (field(line, "drm-total-cycles-", &name, &n, &value)) {
            uint64_t total = strtoull(value, NULL, 10);

            if ((e = engine_named(r, name, n)))
                e->total = total > e->total ? total : e->total;
        } else if (field(line, "drm-cycles-", &name, &n, &value) ||
                   field(line, "drm-engine-", &name, &n, &value)) {
            if ((e = engine_named(r, name, n)))
                e->busy += strtoull(value, NULL, 10);
        }
    }
}

static void read_clients(const struct utilisation *u, struct reading *r)
{
    static _Thread_local char text[8192];
    uint64_t seen[MAX_CLIENTS];
    char path[600];
    struct dirent *f;
    DIR *dir;

    memset(r, 0, sizeof *r);
    r->time_ns = clock_now();
    snprintf(path, sizeof path, "%s/proc/self/fdinfo", u->root);
    if (!(dir = opendir(path)))
        return;
    while ((f = readdir(dir))) {
        if (f->d_name[0] == '.' || snprintf(path, sizeof path, "%s/proc/self/fdinfo/%s", u->root,
                                            f->d_name) >= (int)sizeof path)
            continue;
        if (read_text(path, text, sizeof text) && strstr(text, "drm-client-id:"))
            read_client(r, text, seen);
    }
    closedir(dir);
}

/* The sysfs folder of the DRM card with this PCI address; the first card if unknown. */
static void find_card(struct utilisation *u, const char *device)
{
    char path[600], target[600];
    struct dirent *f;
    DIR *dir;

    snprintf(path, sizeof path, "%s/sys/class/drm", u->root);
    if (!(dir = opendir(path)))
        return;
    while ((f = readdir(dir))) {
        ssize_t n;

        if (strncmp(f->d_name, "card", 4) != 0 || strchr(f->d_name, '-'))
            continue;
        if (snprintf(path, sizeof path, "%s/sys/class/drm/%s/device", u->root, f->d_name) >=
            (int)sizeof path)
            continue;
        n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (!device[0] || strstr(target, device)) {
            path[strlen(path) - strlen("/device")] = '\0';
            snprintf(u->card, sizeof u->card, "%s", path);
            break;
        }
    }
    closedir(dir);
}

/* The first number of the first readable file; NAN: none. */
static float sensor(const struct utilisation *u, const char *const *files, float scale)
{
    char path[800], text[256];

    for (; u->card[0] && *files; files++) {
        snprintf(path, sizeof path, "%s/%s", u->card, *files);
        if (read_text(path, text, sizeof text))
            return (float)atof(text) * scale;
    }
    return NAN;
}

/* amdgpu: "1: 2700Mhz *" is the current state. */
static float amd_mhz(const struct utilisation *u)
{
    char path[800], text[1024], *star;

    snprintf(path, sizeof path, "%s/device/pp_dpm_sclk", u->card);
    if (!u->card[0] || !read_text(path, text, sizeof text) || !(star = strchr(text, '*')))
        return NAN;
    while (star > text && star[-1] != '\n')
        star--;
    star = strchr(star, ':');
    return star ? (float)atof(star + 1) : NAN;
}

static float temperature_of(const struct utilisation *u)
{
    char path[700], text[64];
    struct dirent *f;
    float best = NAN;
    DIR *dir;

    snprintf(path, sizeof path, "%s/device/hwmon", u->card);
    if (!u->card[0] || !(dir = opendir(path)))
        return NAN;
    while ((f = readdir(dir))) {
        if (strncmp(f->d_name, "hwmon", 5) != 0 ||
            snprintf(path, sizeof path, "%.500s/device/hwmon/%.60s/temp1_input", u->card,
                     f->d_name) >= (int)sizeof path)
            continue;
        if (read_text(path, text, sizeof text))
            best = (float)atof(text) * 1e-3f;
    }
    closedir(dir);
    return best;
}

void utilisation_read(struct utilisation *u, float *use, float *mhz, float *temperature, char *why,
                      size_t why_size)
{
    static const char *const clocks[] = {"gt_act_freq_mhz", "gt/gt0/rps_act_freq_mhz",
                                         "device/tile0/gt0/freq0/act_freq", "gt_cur_freq_mhz",
                                         NULL};
    struct reading now;
    uint64_t passed;

    read_clients(u, &now);
    if (!u->card[0])
        find_card(u, now.device);
    *mhz = sensor(u, clocks, 1.0f);
    if (isnan(*mhz))
        *mhz = amd_mhz(u);
    *temperature = temperature_of(u);
    *use = NAN;
    why[0] = '\0';
    passed = now.time_ns - u->last.time_ns;
    if (now.clients == 0)
        snprintf(why, why_size,
                 "the driver reports no GPU client of this process in /proc/self/fdinfo");
    else if (now.n == 0)
        snprintf(why, why_size, "the %s driver reports no engine times",
                 now.driver[0] ? now.driver : "kernel's");
    else if (!u->last.time_ns || !u->last.clients || passed == 0)
        snprintf(why, why_size, "measuring");
    else
        for (int i = 0; i < now.n; i++) {
            const struct engine_use *e = &now.engine[i], *before = NULL;
            double share;

            for (int k = 0; k < u->last.n; k++)
                if (strcmp(u->last.engine[k].name, e->name) == 0)
                    before = &u->last.engine[k];
            if (!before || e->busy < before->busy)
                continue;
            if (e->total) {
                if (e->total <= before->total)
                    continue;
                share = (double)(e->busy - before->busy) / (double)(e->total - before->total);
            } else {
                share = (double)(e->busy - before->busy) / (double)passed;
            }
            share /= (double)e->capacity;
            share = share > 1 ? 1 : share;
            if (isnan(*use) || share > (double)*use)
                *use = (float)share;
        }
    if (now.clients && isnan(*use) && !why[0])
        snprintf(why, why_size, "the driver's counters did not move");
    if (!isnan(*use))
        why[0] = '\0';
    u->last = now;
}
