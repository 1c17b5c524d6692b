/* The doctor's checks of memory: its speed beside what the modules should give, huge pages, nodes,
 * how much there is, and swap. */
#include "app/doctor/internal.h"

#include "app/common/memory_left.h"
#include "app/common/system_sample.h"
#include "engine/base/control_group.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define DMI_MOST (1 << 20)
#define MIB ((uint64_t)1 << 20)
/* below this share of what the modules should give, something is wrong */
#define SLOW 0.5
/* the bundled model with its program needs about 80 MiB */
#define LEAST_LEFT (128 * MIB)

/* The table is binary and root's. 0, or errno. */
static int read_modules(const struct doctor *d, struct dmi_memory *out)
{
    char full[2 * PATH_MAX];
    uint8_t *table;
    size_t n = 0;
    ssize_t got;
    int fd, why;

    snprintf(full, sizeof full, "%s/sys/firmware/dmi/tables/DMI", d->place.root);
    if ((fd = open(full, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
        return errno;
    why = ENOMEM;
    if ((table = mem_alloc(DMI_MOST, 1))) {
        while (n < DMI_MOST && (got = read(fd, table + n, DMI_MOST - n)) > 0)
            n += (size_t)got;
        dmi_memory_read(table, n, out);
        mem_free(table);
        why = 0;
    }
    close(fd);
    return why;
}

/* What the modules should give together, bytes/s; 0: unknown. */
static double should_give(const struct dmi_memory *m)
{
    int channels = m->channels ? m->channels : m->modules;

    return m->speed && m->width ? 1e6 * m->speed * m->width / 8 * channels : 0;
}

void doctor_check_memory_speed(struct doctor *d)
{
    double rate = d->measures.memory_rate, most;
    char text[24], most_text[24], type[48];
    struct doctor_finding *f;
    struct dmi_memory m = {0};
    int why;

    if (rate <= 0) {
        f = doctor_find(d, DOCTOR_NOTE, "memory speed", "not measured: too little memory is free");
        doctor_remedy(f, "", "end other programs, or raise the control group's limit");
        return;
    }
    doctor_rate(rate, text);
    why = read_modules(d, &m);
    if (why || !m.modules) {
        f = doctor_find(d, DOCTOR_NOTE, "memory speed", "reads %s; %s", text,
                        why == EACCES || why == EPERM
                            ? "this user may not read what the modules should give"
                        : why ? "the firmware lists no modules here"
                              : "the firmware's list has no module");
        if (why == EACCES || why == EPERM)
            doctor_remedy(f, "sudo moetop --doctor",
                          "run it as root to read the modules: sudo "
                          "moetop --doctor");
        return;
    }
    snprintf(type, sizeof type, "%d module%s of %s", m.modules, m.modules == 1 ? "" : "s",
             m.type[0] ? m.type : "a type unknown here");
    if (!(most = should_give(&m))) {
        doctor_find(d, DOCTOR_NOTE, "memory speed", "reads %s; %s, whose speed is not stated", text,
                    type);
        return;
    }
    doctor_rate(most, most_text);
    f = doctor_find(d, rate < SLOW * most ? DOCTOR_WARN : DOCTOR_OK, "memory speed",
                    "reads %s of %s%s (%s at %d MT/s, %d channel%s%s)", text,
                    m.channels ? "" : "at most ", most_text, type, m.speed,
                    m.channels ? m.channels : m.modules,
                    (m.channels ? m.channels : m.modules) == 1 ? "" : "s",
                    m.channels ? "" : " if each has its own");
    if (rate < SLOW * most)
        doctor_remedy(f, "",
                      "more threads (-t), no other load, one module in each channel, XMP or "
                      "EXPO in the firmware");
    else if (m.channels == 1 || m.modules == 1)
        doctor_remedy(f, "", "a second module in the other channel doubles the speed");
}

void doctor_check_huge_pages(struct doctor *d)
{
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    char text[DOCTOR_TEXT];
    struct doctor_finding *f;

    if (doctor_text(d, path, text) != DOCTOR_READ) {
        doctor_find(d, DOCTOR_NOTE, "huge pages", "this kernel has none (%s)", path);
    } else if (strstr(text, "[never]")) {
        f = doctor_find(d, DOCTOR_WARN, "huge pages", "switched off: reading weights costs more");
        doctor_remedy(f, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
                      "echo madvise | sudo tee %s", path);
    } else if (strstr(text, "[madvise]") || strstr(text, "[always]")) {
        doctor_find(d, DOCTOR_OK, "huge pages", "%s",
                    strstr(text, "[always]") ? "always" : "where programs ask, as moetop does");
    } else {
        doctor_find(d, DOCTOR_NOTE, "huge pages", "%s is not understood: %.40s", path, text);
    }
}

/* ---- nodes ---- */

static bool node_bytes(const struct doctor *d, int node, uint64_t *total, uint64_t *unused)
{
    char path[80], text[DOCTOR_TEXT];
    unsigned long long a, b;
    const char *p, *q;

    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
    if (doctor_text(d, path, text) != DOCTOR_READ || !(p = strstr(text, "MemTotal:")) ||
        !(q = strstr(text, "MemFree:")) || sscanf(p, "MemTotal: %llu", &a) != 1 ||
        sscanf(q, "MemFree: %llu", &b) != 1)
        return false;
    *total = a * 1024;
    *unused = b * 1024;
    return true;
}

void doctor_check_nodes(struct doctor *d)
{
    enum { NODES = 1024 };
    int known = 0, empty = 0, nodes = 0;
    uint64_t most_free = 0, least_free = UINT64_MAX;
    struct doctor_finding *f;
    char text[DOCTOR_TEXT], a[24], b[24];

    if (doctor_text(d, "/sys/devices/system/node/online", text) == DOCTOR_READ)
        nodes = doctor_list_count(text, NODES);
    if (nodes < 2)
        return;
    for (int i = 0; i < NODES && known < nodes; i++) {
        uint64_t total, unused;

        if (!node_bytes(d, i, &total, &unused))
            continue;
        known++;
        empty += total == 0;
        if (total == 0)
            continue;
        most_free = unused > most_free ? unused : most_free;
        least_free = unused < least_free ? unused : least_free;
    }
    if (empty) {
        f = doctor_find(d, DOCTOR_WARN, "NUMA",
                        "%d of %d nodes have no memory: their cores read "
                        "other nodes'",
                        empty, nodes);
        doctor_remedy(f, "", "put modules into every node's sockets");
        return;
    }
    if (!known) {
        doctor_find(d, DOCTOR_NOTE, "NUMA", "%d nodes; their memory cannot be read", nodes);
        return;
    }
    f = doctor_find(d, least_free < most_free / 4 ? DOCTOR_NOTE : DOCTOR_OK, "NUMA",
                    "%d nodes, %s to %s free each; weights are spread over all", nodes,
                    size_format(least_free, a, sizeof a), size_format(most_free, b, sizeof b));
    if (least_free < most_free / 4)
        doctor_remedy(f, "echo 1 | sudo tee /proc/sys/vm/drop_caches",
                      "one node is full, often of file cache: echo 1 | sudo tee "
                      "/proc/sys/vm/drop_caches");
    if (doctor_number(d, "/proc/sys/kernel/numa_balancing") > 0) {
        f = doctor_find(d, DOCTOR_NOTE, "NUMA",
                        "the kernel moves pages between nodes, which costs "
                        "time");
        doctor_remedy(f, "sudo sysctl kernel.numa_balancing=0",
                      "sudo sysctl kernel.numa_balancing=0");
    }
}

/* ---- how much ---- */

void doctor_check_memory(struct doctor *d)
{
    uint64_t left = memory_left(d->place.root);
    struct memory_group group;
    struct doctor_finding *f;
    char text[24], limit[24];
    bool limited;

    memory_group_read(d->place.root, &group);
    limited = group.limit != MEMORY_GROUP_UNKNOWN;
    if (left == UINT64_MAX) {
        f = doctor_find(d, DOCTOR_NOTE, "memory", "what is free cannot be read");
        doctor_remedy(f, "", "is /proc mounted?");
        return;
    }
    size_format(left, text, sizeof text);
    size_format(limited ? group.limit : 0, limit, sizeof limit);
    f = doctor_find(d, left < LEAST_LEFT ? DOCTOR_BAD : DOCTOR_OK, "memory", "%s can be had%s%s",
                    text, limited ? ", the control group's limit is " : "", limited ? limit : "");
    if (left < LEAST_LEFT)
        doctor_remedy(f, "",
                      limited ? "raise the limit where the container is started (--memory), "
                                "or MemoryMax= of the unit"
                              : "end other programs: moetop needs about 80 MiB for its "
                                "smallest model");
}

void doctor_check_swap(struct doctor *d)
{
    struct system *s = system_new(d->place.root);
    struct doctor_finding *f;
    struct system_sample now;
    char used[24], total[24];
    bool nearly, scarce;

    if (!s)
        return;
    system_read(s, &now);
    system_free(s);
    if (now.swap_total == SYSTEM_UNKNOWN || now.swap_used == SYSTEM_UNKNOWN)
        return;
    if (now.swap_total == 0) {
        doctor_find(d, DOCTOR_OK, "swap", "none: what does not fit is refused or killed");
        return;
    }
    size_format(now.swap_used, used, sizeof used);
    size_format(now.swap_total, total, sizeof total);
    nearly = now.swap_used > now.swap_total / 10 * 8;
    scarce = now.memory_available != SYSTEM_UNKNOWN && now.memory_total != SYSTEM_UNKNOWN &&
             now.memory_available < now.memory_total / 10;
    f = doctor_find(d,
                    nearly && scarce ? DOCTOR_BAD
                    : nearly         ? DOCTOR_WARN
                                     : DOCTOR_OK,
                    "swap", "%s of %s used", used, total);
    if (nearly)
        doctor_remedy(f, "",
                      scarce ? "memory and swap are nearly full: end other programs, or add "
                               "swap"
                             : "end the programs that were swapped out, or: sudo swapoff -a "
                               "&& sudo swapon -a");
}
