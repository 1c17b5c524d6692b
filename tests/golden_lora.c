/* See golden_lora.h. */
#include "tests/golden_lora.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/file/gguf_write.h"
#include "engine/file/weights.h"
#include "tests/golden.h"

#include <fnmatch.h>
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

#define RANK 4

/* Values in -amount .. amount. */
static int put_values(struct gguf_writer *w, int64_t n, float amount, unsigned *seed)
{
    struct error ignored;
    int rc = 0;

    for (int64_t i = 0; i < n && rc == 0; i++) {
        float x;

        *seed = *seed * 1664525u + 1013904223u;
        x = amount * ((float)(*seed >> 8) / (float)(1 << 23) - 1.0f);
        rc = gguf_write_data(w, &x, sizeof x, &ignored);
    }
    return rc;
}

static bool is_adapted(const struct tensor_view *t)
{
    return fnmatch("blk.*.attn_[qkv].weight", t->name, 0) == 0 ||
           fnmatch("blk.*.ffn_*_exps.weight", t->name, 0) == 0;
}

/* Shapes of A and B of a tensor of (rows, cols) or (experts, rows, cols). */
static void shapes(const struct tensor_view *t, int64_t a[3], int64_t b[3])
{
    int d = t->n_dims - 2;

    if (d)
        a[0] = b[0] = t->dims[0];
    a[d] = b[d + 1] = RANK;
    a[d + 1] = t->dims[d + 1];
    b[d] = t->dims[d];
}

static int write_pairs(struct gguf_writer *w, const struct weight_file *f, bool names,
                       unsigned *seed)
{
    int rc = 0;

    for (size_t i = 0; i < weight_file_count(f) && rc == 0; i++) {
        const struct tensor_view *t = weight_file_at(f, i);
        int64_t dims[2][3], n[2] = {1, 1};

        if (!is_adapted(t))
            continue;
        shapes(t, dims[0], dims[1]);
        for (int k = 0; k < 2 && rc == 0; k++) {
            char name[200];

            snprintf(name, sizeof name, "%s.lora_%c", t->name, "ab"[k]);
            for (int d = 0; d < t->n_dims; d++)
                n[k] *= dims[k][d];
            if (names)
                gguf_write_tensor(w, name, DTYPE_F32, t->n_dims, dims[k]);
            else
                rc = put_values(w, n[k], 0.15f, seed);
        }
    }
    return rc;
}

int golden_lora_write(const char *model, const char *path, unsigned seed)
{
    struct weight_file *f = NULL;
    struct gguf_writer *w = NULL;
    struct meta_value v;
    struct error e;
    int rc = weight_file_open(&f, model, false, &e);

    if (rc < 0 || (rc = gguf_write_open(&w, path, &e)) < 0) {
        weight_file_close(f);
        return -1;
    }
    v = weight_file_meta(f, "general.architecture");
    gguf_put_string(w, "general.type", "adapter", strlen("adapter"));
    gguf_put_string(w, "general.architecture", v.s, v.len);
    gguf_put_string(w, "adapter.type", "lora", strlen("lora"));
    gguf_put_f32(w, "adapter.lora.alpha", 2.0f * RANK);
    write_pairs(w, f, true, &seed);
    if ((rc = gguf_write_begin(w, &e)) == 0)
        rc = write_pairs(w, f, false, &seed);
    weight_file_close(f);
    return rc == 0 && gguf_write_finish(w, &e) == 0 ? 0 : -1;
}

void golden_lora_release(struct golden_lora_way *ways, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < ways[i].n; k++)
            mem_free((char *)ways[i].adapters[k].path);
}
