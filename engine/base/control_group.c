/* See control_group.h. Where the trees are mounted comes from mountinfo: in a container the mount
 * shows only the part below its own group, while /proc/self/cgroup may name the path on the host.
 */
#include "engine/base/control_group.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_ROOM 1024 /* half of memory_group_place.folder */
/* version 1 writes the largest number of pages for "none" */
#define NO_LIMIT ((uint64_t)1 << 62)

/* Names of the same files in both versions. Those of the processor's controller have the first
 * three only. */
struct tree {
    const char *type, *option, *usual, *limit, *usage, *cache[2], *shared, *pressure;
};

static const struct tree trees[] = {
    {"cgroup2",
     NULL,
     "/sys/fs/cgroup",
     "memory.max",
     "memory.current",
     {"inactive_file ", "active_file "},
     NULL,
     "memory.pressure"},
    {"cgroup",
     "memory",
     "/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file ", "total_active_file "},
     "memory.use_hierarchy",
     NULL},
};

static const struct tree processor_trees[] = {
    {.type = "cgroup2", .usual = "/sys/fs/cgroup"},
    {.type = "cgroup", .option = "cpu", .usual = "/sys/fs/cgroup/cpu"},
};

static bool read_text(const char *root, const char *folder, const char *name, char *text,
                      size_t size)
{
    char path[3 * PATH_ROOM];
    ssize_t got;
    size_t n = 0;
    int fd;

    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    text[0] = 0;
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return false;
    while (n < size - 1 && (got = read(fd, text + n, size - 1 - n)) > 0)
        n += (size_t)got;
    close(fd);
    text[n] = 0;
    return n > 0;
}

static uint64_t read_number(const char *root, const char *folder, const char *name)
{
    char text[64], *end;
    unsigned long long v;

    if (!read_text(root, folder, name, text, sizeof text))
        return MEMORY_GROUP_UNKNOWN;
    v = strtoull(text, &end, 10);
    return end == text ? MEMORY_GROUP_UNKNOWN : v;
}

/* Whether a word is in a comma-separated list. */
static bool has_word(const char *list, size_t len, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; p + n <= list + len; p++)
        if (!strncmp(p, word, n) && (p == list || p[-1] == ',') &&
            (p + n == list + len || p[n] == ','))
            return true;
    return false;
}

/* This process's group in a hierarchy: from the line "0::PATH", or "N:CONTROLLERS:PATH" with the
 * given controller. */
static bool find_group(const char *text, const struct tree *t, char *group, size_t size)
{
    for (const char *p = text; *p; p += *p == '\n') {
        size_t len = strcspn(p, "\n");
        const char *names = memchr(p, ':', len),
                   *path = names ? memchr(names + 1, ':', len - (size_t)(names + 1 - p)) : NULL;

        if (path && (t->option ? has_word(names + 1, (size_t)(path - names - 1), t->option)
                               : path == names + 1)) {
            snprintf(group, size, "%.*s", (int)(p + len - path - 1), path + 1);
            return true;
        }
        p += len;
    }
    return false;
}

/* Where the hierarchy is mounted, and which group the mount point is. */
static void find_mount(const char *text, const struct tree *t, char *point, char *top, size_t size)
{
    snprintf(point, size, "%s", t->usual);
    snprintf(top, size, "/");
    for (const char *p = text; *p; p += *p == '\n') {
        char line[2 * PATH_ROOM], at[PATH_ROOM], of[PATH_ROOM], type[32], options[256], *rest;
        size_t len = strcspn(p, "\n");

        snprintf(line, sizeof line, "%.*s", (int)len, p);
        p += len;
        if ((rest = strstr(line, " - ")) &&
            sscanf(line, "%*s %*s %*s %1023s %1023s", of, at) == 2 &&
            sscanf(rest, " - %31s %*s %255s", type, options) == 2 && !strcmp(type, t->type) &&
            (!t->option || has_word(options, strlen(options), t->option))) {
            snprintf(point, size, "%s", at);
            snprintf(top, size, "%s", of);
            return;
        }
    }
}

static uint64_t cache_bytes(const char *root, const char *folder, const struct tree *t)
{
    char text[8192];
    uint64_t sum = 0;

    read_text(root, folder, "memory.stat", text, sizeof text);
    for (int i = 0; i < 2; i++)
        for (const char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
            if (!strncmp(p, t->cache[i], strlen(t->cache[i])))
                sum += strtoull(p + strlen(t->cache[i]), NULL, 10);
    return sum;
}

static void take_level(const char *root, const char *folder, const struct tree *t,
                       struct memory_group *out)
{
    uint64_t limit = read_number(root, folder, t->limit),
             used = read_number(root, folder, t->usage), cache, left;

    if (limit >= NO_LIMIT)
        return;
    if (limit < out->limit)
        out->limit = limit;
    if (used == MEMORY_GROUP_UNKNOWN)
        return;
    cache = cache_bytes(root, folder, t);
    used -= cache < used ? cache : used;
    left = limit > used ? limit - used : 0;
    if (left < out->left)
        out->left = left;
}

uint64_t memory_group_stalled(const char *text)
{
    const char *some = strstr(text, "some "), *total = some ? strstr(some, "total=") : NULL,
               *end = some ? strchr(some, '\n') : NULL;

    return total && (!end || total < end) ? strtoull(total + strlen("total="), NULL, 10)
                                          : MEMORY_GROUP_UNKNOWN;
}

static void read_pressure(const char *root, const char *folder, const struct tree *t,
                          struct memory_group *out)
{
    char text[512];

    if (t->pressure && read_text(root, folder, t->pressure, text, sizeof text))
        out->stalled_us = memory_group_stalled(text);
}

/* The folder of this process's own group; its first `top_length` bytes are the mount point. */
static bool find_folder(const char *root, const char *groups, const char *mounts,
                        const struct tree *t, char folder[2 * PATH_ROOM], size_t *top_length)
{
    char group[PATH_ROOM], point[PATH_ROOM], top[PATH_ROOM], *below;
    size_t n;

    if (!find_group(groups, t, group, sizeof group))
        return false;
    find_mount(mounts, t, point, top, sizeof point);
    n = strcmp(top, "/") ? strlen(top) : 0;
    /* A path outside the mount is one of the host: only the mount point is visible. */
    below = !strncmp(group, top, n) && (group[n] == '/' || !group[n]) && !strstr(group, "/..")
                ? group + n
                : group + strlen(group);
    snprintf(folder, 2 * PATH_ROOM, "%s%s", point, strcmp(below, "/") ? below : "");
    *top_length = strlen(point);
    return true;
}

/* The folder above; false: that is outside the mount. */
static bool go_up(char *folder, size_t top_length)
{
    char *slash = strrchr(folder, '/');

    if (strlen(folder) <= top_length || !slash)
        return false;
    *slash = 0;
    return true;
}

static void read_tree(const char *root, const char *group, size_t top, const struct tree *t,
                      struct memory_group *out)
{
    char folder[2 * PATH_ROOM];

    snprintf(folder, sizeof folder, "%s", group);
    read_pressure(root, folder, t, out);
    for (bool own = true;; own = false) {
        if (!own && t->shared && read_number(root, folder, t->shared) == 0)
            return; /* this group does not include its children's use */
        take_level(root, folder, t, out);
        if (!go_up(folder, top))
            return;
    }
}

/* CPUs of one group; 0: no limit. */
static double quota_of(const char *root, const char *folder, const struct tree *t)
{
    double quota = 0, period = 0;
    char text[64];

    if (!t->option)
        return read_text(root, folder, "cpu.max", text, sizeof text) &&
                       sscanf(text, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0
                   ? quota / period
                   : 0;
    if (!read_text(root, folder, "cpu.cfs_quota_us", text, sizeof text) ||
        (quota = strtod(text, NULL)) <= 0 ||
        !read_text(root, folder, "cpu.cfs_period_us", text, sizeof text))
        return 0;
    period = strtod(text, NULL);
    return period > 0 ? quota / period : 0;
}

void memory_group_find(const char *root, struct memory_group_place *out)
{
    char groups[4096], mounts[32768];

    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        out->tree[i].there = false;
    if (!read_text(root, "/proc/self", "cgroup", groups, sizeof groups))
        return;
    read_text(root, "/proc/self", "mountinfo", mounts, sizeof mounts);
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        out->tree[i].there = find_folder(root, groups, mounts, &trees[i], out->tree[i].folder,
                                         &out->tree[i].top);
}

void memory_group_read_at(const char *root, const struct memory_group_place *at,
                          struct memory_group *out)
{
    *out = (struct memory_group){MEMORY_GROUP_UNKNOWN, MEMORY_GROUP_UNKNOWN, MEMORY_GROUP_UNKNOWN};
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        if (at->tree[i].there)
            read_tree(root, at->tree[i].folder, at->tree[i].top, &trees[i], out);
}

void memory_group_read(const char *root, struct memory_group *out)
{
    struct memory_group_place at;

    memory_group_find(root, &at);
    memory_group_read_at(root, &at, out);
}

double cpu_group_quota(const char *root)
{
    char groups[4096], mounts[32768], folder[2 * PATH_ROOM];
    double least = 0;
    size_t top;

    if (!read_text(root, "/proc/self", "cgroup", groups, sizeof groups))
        return 0;
    read_text(root, "/proc/self", "mountinfo", mounts, sizeof mounts);
    for (size_t i = 0; i < sizeof processor_trees / sizeof *processor_trees; i++)
        if (find_folder(root, groups, mounts, &processor_trees[i], folder, &top))
            do {
                double quota = quota_of(root, folder, &processor_trees[i]);

                if (quota > 0 && quota < 1e6 && (least == 0 || quota < least))
                    least = quota;
            } while (go_up(folder, top));
    return least;
}
