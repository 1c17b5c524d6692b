/* See load.h. */
#include "engine/base/load.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT 32768 /* the lines of some hundred CPUs; what follows them is not read */

uint64_t load_tick(void)
{
    long hz = sysconf(_SC_CLK_TCK);

    return 1000000000 / (uint64_t)(hz > 0 ? hz : 100);
}

void load_parse(struct load *l, const char *text, uint64_t tick)
{
    /* user, nice, system, idle, iowait, irq, softirq, steal; guests are within user and nice */
    unsigned long long v[8] = {0};
    int n = sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3],
                   &v[4], &v[5], &v[6], &v[7]);

    l->busy = l->all = 0;
    l->cpus = 0;
    if (n < 4)
        return;
    l->busy = (v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) * tick;
    l->all = l->busy + (v[3] + v[4]) * tick;
    for (const char *p = text; (p = strstr(p, "\ncpu")); p++)
        l->cpus++;
}

void load_look(struct load *l, const char *path)
{
    char text[TEXT];
    struct timespec t;
    size_t n = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    while (fd >= 0 && n < sizeof text - 1 && (got = read(fd, text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    if (fd >= 0)
        close(fd);
    text[n] = 0;
    load_parse(l, text, load_tick());
    l->own = clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0
                 ? (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec
                 : 0;
}

int load_others(const struct load *from, const struct load *to, uint64_t tick)
{
    double all = (double)to->all - (double)from->all,
           others = (double)to->busy - (double)from->busy - ((double)to->own - (double)from->own) -
                    (double)to->cpus * (double)tick;

    if (!from->all || !(all > 0) || !(others > 0))
        return 0;
    return others < all ? (int)(100 * others / all) : 100;
}
