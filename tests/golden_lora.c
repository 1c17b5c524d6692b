/* See golden_lora.h. */
#include "tests/golden_lora.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "tests/golden.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What gives the numbers of a key. half, both: strengths. */
static const struct {
    const char *key, *adapter[2];
    float strength[2];
} known[] = {
    {"full", {"full"}, {1.0f}},
    {"full", {"full.gguf"}, {1.0f}},
    {"full", {"full-kt"}, {1.0f}},
    {"full_half", {"full"}, {0.5f}},
    {"attn", {"attn"}, {1.0f}},
    {"attn", {"attn-folded.gguf"}, {1.0f}},
    {"both", {"full", "attn"}, {1.0f, 0.5f}},
    {"attn_converter", {"attn.gguf"}, {1.0f}},
    {"full_f16", {"full-f16.gguf"}, {1.0f}},
    {"fused", {"fused"}, {1.0f}},
    {"fused", {"fused-0.17"}, {1.0f}},
};
#define KNOWN (sizeof known / sizeof *known)

static json_t *report(const char *folder)
{
    static const struct file_kind kind = {"report", 1 << 20, ERR_MODEL};
    char path[PATH_MAX];
    struct error ignored;
    json_t *root = NULL;

    snprintf(path, sizeof path, "%s/report.json", folder);
    if (access(path, F_OK) == 0)
        json_read_file(&root, path, &kind, &ignored);
    return root;
}

bool golden_lora_is(const char *folder)
{
    json_t *root = report(folder);
    bool is = json_is_string(json_object_get(root, "checkpoint"));

    json_decref(root);
    return is;
}

static bool has_logits(const char *folder, const char *name)
{
    char path[PATH_MAX], why[PATH_MAX + 64];
    struct golden golden;
    bool has;

    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    has = golden_open_logits(&golden, path, name, why, sizeof why) == 0;
    if (has)
        golden_close(&golden);
    return has;
}

/* false: an adapter of it is not there. */
static bool make(const char *folder, size_t i, struct golden_lora_way *way)
{
    *way = (struct golden_lora_way){.n = 0};
    snprintf(way->logits, sizeof way->logits, "logits_%s", known[i].key);
    if (!has_logits(folder, way->logits))
        return false;
    for (int k = 0; k < 2 && known[i].adapter[k]; k++) {
        char path[PATH_MAX];
        size_t n = strlen(way->text);

        snprintf(path, sizeof path, "%s/%s", folder, known[i].adapter[k]);
        if (access(path, F_OK) != 0)
            return false;
        snprintf(way->text + n, sizeof way->text - n, "%s%s at %g", k ? " and " : "",
                 known[i].adapter[k], (double)known[i].strength[k]);
        way->adapters[way->n++] = (struct adapter_request){mem_string(path),
                                                           known[i].strength[k]};
    }
    return true;
}

int golden_lora_ways(const char *folder, char *base, size_t size,
                     struct golden_lora_way ways[GOLDEN_LORA_WAYS])
{
    json_t *root = report(folder);
    const char *checkpoint = json_string_value(json_object_get(root, "checkpoint"));
    int n = 0;

    snprintf(base, size, "%s/../../%s", folder, checkpoint ? checkpoint : "");
    for (size_t i = 0; i < KNOWN && checkpoint; i++) {
        if (make(folder, i, &ways[n]))
            n++;
        else
            golden_lora_release(&ways[n], 1);
    }
    json_decref(root);
    return n;
}

void golden_lora_release(struct golden_lora_way *ways, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < ways[i].n; k++)
            mem_free((char *)ways[i].adapters[k].path);
}
