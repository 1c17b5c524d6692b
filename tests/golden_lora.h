/* Golden numbers of adapters, in the layout of tests/golden/lora/phimoe: report.json names the
 * base's checkpoint below the folder two above, golden.safetensors has logits_KEY and greedy_KEY,
 * and each KEY is one or several adapters of the folder at some strength. */
#ifndef TESTS_GOLDEN_LORA_H
#define TESTS_GOLDEN_LORA_H

#include "engine/adapter/adapter.h"

#include <stdbool.h>
#include <stddef.h>

#define GOLDEN_LORA_WAYS 24

/* One way to the logits of a KEY: the same numbers from every format that is there. */
struct golden_lora_way {
    char logits[40], text[120]; /* "logits_full"; "full.gguf" */
    struct adapter_request adapters[2];
    int n;
};

bool golden_lora_is(const char *folder);
/* How many there are; 0: not even the logits that belong to them. */
int golden_lora_ways(const char *folder, char *base, size_t size,
                     struct golden_lora_way ways[GOLDEN_LORA_WAYS]);
/* Writes a GGUF adapter of any values on the attention and the experts of a GGUF model, strong
 * enough that its greedy text changes. 0 or -1. */
int golden_lora_write(const char *model, const char *path, unsigned seed);
void golden_lora_release(struct golden_lora_way *ways, int n);

#endif
