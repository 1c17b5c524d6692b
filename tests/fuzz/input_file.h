/* Shared by the fuzz targets of what is read by its path: an input as a temporary file, which is
 * removed when the program ends. */
#ifndef TESTS_FUZZ_INPUT_FILE_H
#define TESTS_FUZZ_INPUT_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char input_path[64];

static inline void must(bool ok)
{
    if (!ok)
        abort();
}

static inline void input_remove(void)
{
    unlink(input_path);
}

/* The input's bytes at input_path. */
static inline void input_write(const uint8_t *data, size_t size)
{
    FILE *f;

    if (!input_path[0]) {
        int fd;

        snprintf(input_path, sizeof input_path, "/tmp/moetop-fuzz-XXXXXX");
        must((fd = mkstemp(input_path)) >= 0 && !close(fd) && !atexit(input_remove));
    }
    f = fopen(input_path, "wb");
    must(f && fwrite(data, 1, size, f) == size);
    fclose(f);
}

#endif
