/* See energy.h. Formulas: Documentation/power/powercap, Documentation/gpu/amdgpu and
 * Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon of the Linux kernel: energy_uj and
 * energy1_input count microjoules, power1_average, power1_input and power_now are microwatts,
 * current_now is microamperes, voltage_now microvolts. */
#include "app/common/energy.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNTERS 16
#define PATH 600

struct counter { /* of microjoules */
    char path[PATH];
    enum energy_source source;
    double range; /* at which it starts again at 0; 0: never */
    double last, sum;
};

struct energy {
    char root[256], why[200];
    struct counter counter[COUNTERS];
    int n;
    char power[PATH];   /* a GPU's sensor of power, where it has no counter; empty: none */
    char battery[PATH]; /* its folder; empty: none */
    struct energy_reading before;
};

static int read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0 ? 0 : -1;
}

/* NAN: it cannot be read. */
static double read_number(const char *folder, const char *name)
{
    char path[PATH + 40], text[40], *end;
    double v;

    snprintf(path, sizeof path, "%s%s%s", folder, *name ? "/" : "", name);
    if (read_text(path, text, sizeof text) < 0)
        return NAN;
    v = strtod(text, &end);
    return end == text || !isfinite(v) || v < 0 ? NAN : v;
}

static bool add_counter(struct energy *g, const char *folder, const char *name,
                        enum energy_source source, double range)
{
    struct counter *c = &g->counter[g->n];
    double now = read_number(folder, name);

    if (isnan(now) || g->n == COUNTERS)
        return false;
    *c = (struct counter){.source = source, .range = range, .last = now};
    snprintf(c->path, sizeof c->path, "%.500s/%.60s", folder, name);
    g->n++;
    return true;
}

/* A zone of powercap: a package, or the memory below one; "core" and "uncore" are parts of the
 * package, "psys" is more than it. */
static void take_zone(struct energy *g, const char *folder)
{
    char path[PATH + 40], name[40];
    double range = read_number(folder, "max_energy_range_uj");

    snprintf(path, sizeof path, "%s/name", folder);
    if (read_text(path, name, sizeof name) < 0 ||
        (strncmp(name, "package", 7) != 0 && strncmp(name, "dram", 4) != 0))
        return;
    if (add_counter(g, folder, "energy_uj", ENERGY_PACKAGE, isnan(range) ? 0 : range))
        return;
    snprintf(path, sizeof path, "%s/energy_uj", folder);
    if (access(path, F_OK) == 0 && access(path, R_OK) < 0)
        snprintf(g->why, sizeof g->why,
                 "only root may read the processor's counters: sudo chmod a+r "
                 "/sys/class/powercap/intel-rapl:*/energy_uj");
}

static void each(struct energy *g, const char *folder, const char *prefix,
                 void (*take)(struct energy *g, const char *path))
{
    struct dirent **list;
    char path[PATH];
    int n = scandir(folder, &list, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%.400s/%.150s", folder, list[i]->d_name);
        if (strncmp(list[i]->d_name, prefix, strlen(prefix)) == 0)
            take(g, path);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
}

/* A GPU's hwmon folder. Of a GPU in the processor the driver's power may be the package's: it is
 * shown, and added to nothing. */
static void take_sensor(struct energy *g, const char *path)
{
    if (add_counter(g, path, "energy1_input", ENERGY_GPU, 0) || g->power[0])
        return;
    if (!isnan(read_number(path, "power1_average")))
        snprintf(g->power, sizeof g->power, "%.500s/power1_average", path);
    else if (!isnan(read_number(path, "power1_input")))
        snprintf(g->power, sizeof g->power, "%.500s/power1_input", path);
}

static void take_card(struct energy *g, const char *path)
{
    char folder[PATH];

    if (strchr(strrchr(path, '/'), '-')) /* a connector of one: card0-HDMI-A-1 */
        return;
    snprintf(folder, sizeof folder, "%.500s/device/hwmon", path);
    each(g, folder, "hwmon", take_sensor);
}

static void take_battery(struct energy *g, const char *path)
{
    char type[40], file[PATH + 40];

    snprintf(file, sizeof file, "%s/type", path);
    if (!g->battery[0] && read_text(file, type, sizeof type) == 0 &&
        strncmp(type, "Battery", 7) == 0)
        snprintf(g->battery, sizeof g->battery, "%.590s", path);
}

struct energy *energy_new(const char *root)
{
    struct energy *g = mem_alloc(1, sizeof *g);
    char path[PATH];

    if (!g)
        return NULL;
    snprintf(g->root, sizeof g->root, "%s", root);
    snprintf(path, sizeof path, "%s/sys/class/powercap", g->root);
    each(g, path, "intel-rapl:", take_zone); /* AMD's too */
    snprintf(path, sizeof path, "%s/sys/class/drm", g->root);
    each(g, path, "card", take_card);
    snprintf(path, sizeof path, "%s/sys/class/power_supply", g->root);
    each(g, path, "", take_battery);
    for (int i = 0; i < g->n; i++)
        if (g->counter[i].source == ENERGY_PACKAGE) {
            g->why[0] = 0;
            return g;
        }
    if (!g->why[0])
        snprintf(g->why, sizeof g->why,
                 "this machine tells of no counters (a virtual one hides them; else: sudo modprobe "
                 "intel_rapl_msr)");
    return g;
}

void energy_free(struct energy *g)
{
    mem_free(g);
}

static void count(struct counter *c)
{
    double now = read_number(c->path, "");

    if (isnan(now))
        return; /* it went away: its sum stays */
    if (now >= c->last)
        c->sum += now - c->last;
    else if (c->range > 0)
        c->sum += c->range - c->last + now;
    c->last = now;
}

static float battery_watts(const struct energy *g)
{
    char path[PATH + 40], status[40];
    double power;

    snprintf(path, sizeof path, "%s/status", g->battery);
    if (!g->battery[0] || read_text(path, status, sizeof status) < 0 ||
        strncmp(status, "Discharging", 11) != 0)
        return NAN;
    power = read_number(g->battery, "power_now");
    if (isnan(power))
        power = read_number(g->battery, "current_now") * read_number(g->battery, "voltage_now") *
                1e-6;
    return (float)(power * 1e-6);
}

void energy_read(struct energy *g, struct energy_reading *out)
{
    const struct energy_reading *b = &g->before;

    *out = (struct energy_reading){.time_ns = clock_now(), .battery_watts = battery_watts(g)};
    for (int s = 0; s < ENERGY_SOURCES; s++)
        out->joules[s] = out->watts[s] = NAN;
    for (int i = 0; i < g->n; i++) {
        struct counter *c = &g->counter[i];
        double *to = &out->joules[c->source];

        count(c);
        *to = (isnan(*to) ? 0 : *to) + c->sum * 1e-6;
    }
    for (int s = 0; s < ENERGY_SOURCES; s++)
        if (b->time_ns && out->time_ns > b->time_ns)
            out->watts[s] = (float)((out->joules[s] - b->joules[s]) /
                                    clock_seconds(out->time_ns - b->time_ns));
    if (isnan(out->joules[ENERGY_GPU]) && g->power[0])
        out->watts[ENERGY_GPU] = (float)(read_number(g->power, "") * 1e-6);
    g->before = *out;
}

const char *energy_why(const struct energy *g)
{
    return g->why;
}
