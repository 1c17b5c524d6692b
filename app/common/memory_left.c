/* See memory_left.h. */
#include "app/common/memory_left.h"

#include "app/common/memory_group.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t of_machine(const char *root)
{
    static const char key[] = "MemAvailable:";
    char path[1024], text[4096], *at;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return UINT64_MAX;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
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
