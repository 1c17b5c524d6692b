/* See doctor.h: the table of checks. What they share is in finding.c. */
#include "app/doctor/internal.h"

#include "app/common/system_sample.h"
#include "engine/base/size.h"
#include "engine/base/utf8.h"

#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct doctor *d);
} checks[] = {
    {"processor", doctor_check_processor},
    {"clock", doctor_check_clock},
    {"limits", doctor_check_limits},
    {"load", doctor_check_load},
    {"energy", doctor_check_energy},
    {"memory speed", doctor_check_memory_speed},
    {"huge pages", doctor_check_huge_pages},
    {"memory nodes", doctor_check_nodes},
    {"memory", doctor_check_memory},
    {"swap", doctor_check_swap},
    {"cache", doctor_check_cache},
    {"tuning", doctor_check_tuning},
    {"disk", doctor_check_disk},
    {"GPU", doctor_check_gpus},
    {"OpenCL", doctor_check_drivers},
    {"devices", doctor_check_devices},
    {"terminal", doctor_check_terminal},
    {"models", doctor_check_models},
};

static void name_machine(struct doctor *d)
{
    struct system *s = system_new(d->place.root);
    static const char unknown[] = "a processor that /proc/cpuinfo does not name";
    struct system_sample now;
    char text[sizeof d->machine], size[24] = "unknown", clean[100];

    if (!s)
        return;
    system_read(s, &now);
    if (now.memory_total != SYSTEM_UNKNOWN)
        size_format(now.memory_total, size, sizeof size);
    utf8_escape(clean, sizeof clean, system_cpu_name(s), strlen(system_cpu_name(s)), 0);
    snprintf(text, sizeof text, "%.90s, %d CPU%s, memory: %s", clean[0] ? clean : unknown,
             now.n_cores, now.n_cores == 1 ? "" : "s", size);
    memcpy(d->machine, text, sizeof text);
    system_free(s);
}

void doctor_examine(struct doctor *d)
{
    d->n = d->n_commands = 0;
    name_machine(d);
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        checks[i].run(d);
    doctor_choose_commands(d);
}
