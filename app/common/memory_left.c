/* See memory_left.h. */
#include "app/common/memory_left.h"

#include "engine/base/control_group.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_text(const char *root, const char *name, char *text, size_t size)
{
    char path[1024];
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s%s", root, name);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return false;
    n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return true;
}

static uint64_t of_machine(const char *root)
{
    static const char key[] = "MemAvailable:";
    char text[4096], *at;

    if (!read_text(root, "/proc/meminfo", text, sizeof text))
        return UINT64_MAX;
    at = strstr(text, key);
    return at ? strtoull(at + sizeof key - 1, NULL, 10) * 1024 : UINT64_MAX;
}

uint64_t memory_left(const char *root)
{
    uint64_t left = of_machine(root);
    struct memory_group group;

    memory_group_read(root, &group);
    return group.left < left ? group.left : left;
}

uint64_t memory_stalled(const char *root)
{
    struct memory_group group;
    char text[512];

    memory_group_read(root, &group);
    if (group.stalled_us != MEMORY_GROUP_UNKNOWN || group.limit != MEMORY_GROUP_UNKNOWN)
        return group.stalled_us; /* if the group has a limit, the machine's value is irrelevant */
    return read_text(root, "/proc/pressure/memory", text, sizeof text) ? memory_group_stalled(text)
                                                                       : UINT64_MAX;
}
