/* --list-devices. An unusable device is listed with the reason; a usable one is tested and
 * measured, since data sheets say little about a driver. */
#include "app/headless/list_devices.h"

#include "app/common/devices.h"
#include "app/common/paths.h"
#include "engine/base/membw.h"
#include "engine/base/size.h"
#include "engine/device/cpu/kernels/patterns.h"

#include <stdio.h>
#include <string.h>

static void print_line(void *ctx, const char *line)
{
    fprintf(stderr, "moetop: %s\n", line);
}

static void row(const char *key, const char *value)
{
    if (value[0])
        printf("  %-14s %s\n", key, value);
}

static void rate(const char *key, double value, const char *unit, const char *what)
{
    char text[160];

    if (value <= 0)
        return;
    snprintf(text, sizeof text, "%.1f %s %s", value * 1e-9, unit, what);
    row(key, text);
}

static void list_cpu(const struct device_info *info, int threads)
{
    char text[80];

    printf("cpu: %s\n", info->name);
    row("kernels", cpu_kernels_name());
    snprintf(text, sizeof text, "%s, where none was measured", pattern_of[pattern_here()].word);
    row("read pattern", text);
    rate("memory reads", membw_read(NULL, 0, threads, 60), "GB/s", "all threads");
    row("can run", "everything");
}

static void list_one(const struct device_ops *ops, const struct device_info *info,
                     const char *cache)
{
    char text[300], memory[32], alloc[32];
    struct device_report report;
    struct error e = {0};

    printf("%s: %s%s\n", info->selector[0] ? info->selector : ops->name, info->name,
           info->is_cpu_type ? " (really the CPU: used only when named)" : "");
    row("driver", info->driver);
    size_format(info->memory, memory, sizeof memory);
    size_format(info->max_alloc, alloc, sizeof alloc);
    snprintf(text, sizeof text, "%s, at most %s in one piece, %s", memory, alloc,
             info->unified ? "shared with the host" : "its own");
    row("memory", text);
    if (info->why_not[0]) {
        row("cannot be used", info->why_not);
        return;
    }
    if (!ops->report)
        return;
    fflush(stdout);
    if (ops->report(info->selector, cache, print_line, NULL, &report, &e) < 0) {
        row("cannot be used", e.text);
        return;
    }
    row("can run", report.supported);
    row("self-test", report.selftest);
    row("work-groups", report.shapes);
    row("library", report.library);
    if (report.replay[0])
        row("launches", report.replay);
    rate("weight reads", report.read_rate, "GB/s", "by the decode kernel");
    rate("copies", report.copy_rate, "GB/s", "from the host");
    rate("prefill q8_0", report.q8_rate, "Gop/s", "64 rows");
    rate("prefill f32", report.f32_rate, "Gop/s", "64 rows, own kernels");
    rate("", report.library_rate, "Gop/s", "64 rows, CLBlast");
}

int list_devices_run(struct options *o, struct error *e)
{
    struct device_info found[DEVICE_MAX];
    char why[512];

    for (const struct device_ops *const *b = device_backends; *b; b++) {
        int n;

        memset(found, 0, sizeof found);
        why[0] = '\0';
        n = (*b)->probe(found, DEVICE_MAX, why, sizeof why);
        if (n == 0)
            printf("%s: none: %s\n", (*b)->name, why);
        else if (why[0])
            printf("%s: %s\n", (*b)->name, why);
        for (int i = 0; i < n && i < DEVICE_MAX; i++)
            if (*b == &cpu_device_ops)
                list_cpu(&found[i], o->threads);
            else
                list_one(*b, &found[i], paths_cache(o->cache_dir));
    }
    return 0;
}
