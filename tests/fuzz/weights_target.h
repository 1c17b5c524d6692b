/* Shared by the fuzz targets of weight files: an input as a file in memory, everything that can be
 * asked of it asked. */
#ifndef TESTS_FUZZ_WEIGHTS_TARGET_H
#define TESTS_FUZZ_WEIGHTS_TARGET_H

#include "engine/file/weights.h"
#include "engine/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static inline void ask(const struct weight_file *f)
{
    static const char *const keys[] = {"general.architecture",
                                       "tokenizer.ggml.tokens",
                                       "phimoe.block_count",
                                       "architectures",
                                       "rope_scaling.short_factor",
                                       "generation_config.json:eos_token_id",
                                       "a.b.c.0",
                                       "tokenizer.ggml.scores"};
    volatile uint64_t sum = 0;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct meta_value v = weight_file_meta(f, keys[i]);

        for (size_t j = 0; v.type == META_STRING && j < v.len; j++)
            sum += (unsigned char)v.s[j];
        for (size_t j = 0; v.type == META_ARRAY && j < v.len && j < 1000; j++) {
            struct meta_value x = meta_at(&v, j);

            for (size_t k = 0; x.type == META_STRING && k < x.len; k++)
                sum += (unsigned char)x.s[k];
        }
    }
    for (size_t i = 0; i < weight_file_count(f); i++) {
        const struct tensor_view *t = weight_file_at(f, i);

        if (weight_file_find(f, t->name) != t)
            abort();
        for (size_t j = 0; j < t->bytes; j += 61)
            sum += ((const unsigned char *)t->data)[j];
        if (t->bytes)
            sum += ((const unsigned char *)t->data)[t->bytes - 1];
    }
    sum += weight_file_hash(f);
    (void)sum;
}

/* Opening fails with a text, or everything can be read; and the model loader says the one or the
 * other too. */
static inline void open_input(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("input", MFD_CLOEXEC);
    struct weight_file *f;
    struct model *m;
    struct model_options o = {.convert = -1, .width = 8, .n_threads = 1};
    struct error e = {0};

    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int tokenizer_only = 0; tokenizer_only < 2; tokenizer_only++) {
        if (weight_file_open(&f, path, tokenizer_only, &e) == 0) {
            ask(f);
            weight_file_close(f);
        } else if (!e.text[0] || strchr(e.text, '\n')) {
            abort();
        }
    }
    if (model_load(&m, path, &o, &e) == 0)
        model_free(m);
    else if (!e.text[0])
        abort();
    close(fd);
}

#endif
