/* See wrong_device.h. */
#include "app/common/wrong_device.h"

#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char first[400];

void wrong_device_note(const char *line)
{
    pthread_mutex_lock(&lock);
    if (!first[0])
        snprintf(first, sizeof first, "%s", line);
    pthread_mutex_unlock(&lock);
}

bool wrong_device_found(char *line, size_t size)
{
    bool any;

    pthread_mutex_lock(&lock);
    any = first[0] != 0;
    snprintf(line, size,
             "%s. The run was completed without it; do not use it (-dev none) before its driver, "
             "memory or clocks are in order",
             first);
    pthread_mutex_unlock(&lock);
    return any;
}
