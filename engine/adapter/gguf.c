/* GGUF adapters as llama.cpp writes and reads them (convert_lora_to_gguf.py, llama-adapter.cpp):
 * pairs NAME.lora_a and NAME.lora_b, s = alpha / rank, alpha 0 or absent: 1. See reading.h. */
#include "engine/adapter/reading.h"

#include "engine/base/path.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_gguf(const char *path)
{
    char head[4] = "";
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(head, 1, sizeof head, f) : 0;

    if (f)
        fclose(f);
    return n == sizeof head && memcmp(head, "GGUF", sizeof head) == 0;
}

static bool says(const struct meta_value *v, const char *word)
{
    return v->type == META_STRING && v->len == strlen(word) && memcmp(v->s, word, v->len) == 0;
}

static int check_key(const struct weight_file *f, const char *key, const char *word,
                     struct error *e)
{
    struct meta_value v = weight_file_meta(f, key);

    if (says(&v, word))
        return 0;
    if (v.type != META_STRING)
        return error_set(e, ERR_MODEL, "%s: no adapter: its metadata lacks %s (%s is expected)",
                         weight_file_path(f), key, word);
    return error_set(e, ERR_MODEL, "%s: %s is %.*s; only %s is read", weight_file_path(f), key,
                     (int)(v.len < 60 ? v.len : 60), v.s, word);
}

/* The model's architecture by any of its spellings, or those of the family whose files it is
 * exported as. */
static int check_architecture(const struct reading *r, const struct weight_file *f, struct error *e)
{
    struct meta_value v = weight_file_meta(f, "general.architecture");
    const struct family *of[2] = {r->family, r->family->exported_as};

    for (int k = 0; k < 2; k++)
        for (int i = 0; of[k] && i < FAMILY_NAMES && of[k]->gguf[i]; i++)
            if (says(&v, of[k]->gguf[i]))
                return 0;
    if (v.type != META_STRING)
        return error_set(e, ERR_MODEL, "%s: its metadata does not name an architecture",
                         weight_file_path(f));
    return error_set(e, ERR_MODEL, "%s: an adapter of %.*s models; this one is %s",
                     weight_file_path(f), (int)(v.len < 60 ? v.len : 60), v.s, r->family->name);
}

static int check(const struct reading *r, const struct weight_file *f, struct error *e)
{
    struct meta_value tokens = weight_file_meta(f, "adapter.alora.invocation_tokens");
    int rc;

    if ((rc = check_key(f, "general.type", "adapter", e)) ||
        (rc = check_key(f, "adapter.type", "lora", e)) || (rc = check_architecture(r, f, e)))
        return rc;
    if (tokens.type != META_NONE)
        return error_set(e, ERR_MODEL,
                         "%s: an activated adapter (aLoRA), which acts behind a sequence of tokens "
                         "alone: not computed",
                         weight_file_path(f));
    return 0;
}

/* The partner of a tensor: the other one of the two. */
static const struct tensor_view *partner(const struct weight_file *f, const struct tensor_view *t)
{
    char name[300];
    size_t n = strlen(t->name);

    if (n >= sizeof name)
        return NULL;
    memcpy(name, t->name, n + 1);
    name[n - 1] = name[n - 1] == 'a' ? 'b' : 'a';
    return weight_file_find(f, name);
}

static int read_pair(struct reading *r, const struct weight_file *f, const struct tensor_view *t,
                     float alpha, struct error *e)
{
    struct pair p = {.a = t, .b = partner(f, t)};
    char name[300];
    struct place at;
    int row = 0, rc = 0;

    if (!p.b)
        return error_set(e, ERR_MODEL, "%s: %s has no partner ...lora_b", weight_file_path(f),
                         t->name);
    if (t->n_dims < 2 || p.b->n_dims < 2 || p.b->dims[p.b->n_dims - 1] > 65536)
        return error_set(e, ERR_MODEL, "%s: %s or its partner is no matrix", weight_file_path(f),
                         t->name);
    p.rank = (int)p.b->dims[p.b->n_dims - 1];
    p.scale = alpha != 0.0f && p.rank ? (float)((double)alpha / p.rank) : 1.0f;
    snprintf(name, sizeof name, "%.*s", (int)(strlen(t->name) - strlen(".lora_a")), t->name);
    while (!rc && place_of(r, WEIGHT_GGUF, name, &row, &at))
        rc = reading_pair(r, WEIGHT_GGUF, &at, &p, e);
    if (!rc) {
        reading_unplaced(r, p.a->name);
        reading_unplaced(r, p.b->name);
    }
    return rc < 0 ? rc : 0;
}

static int read_gguf(struct reading *r, const char *path, struct error *e)
{
    struct weight_file *f;
    struct meta_value alpha;
    int rc = weight_file_open(&f, path, false, e);

    if (rc < 0)
        return rc;
    r->files[0] = f;
    r->info->format = "GGUF";
    if ((rc = check(r, f, e)) < 0)
        return rc;
    alpha = weight_file_meta(f, "adapter.lora.alpha");
    if (alpha.type != META_NONE && !isfinite(alpha.f))
        return error_set(e, ERR_MODEL, "%s: adapter.lora.alpha is no finite number", path);
    for (size_t i = 0; i < weight_file_count(f) && !rc; i++) {
        const struct tensor_view *t = weight_file_at(f, i);

        if (path_stem(t->name, ".lora_a"))
            rc = read_pair(r, f, t, (float)alpha.f, e);
        else if (!path_stem(t->name, ".lora_b"))
            reading_unplaced(r, t->name);
        else if (!partner(f, t))
            rc = error_set(e, ERR_MODEL, "%s: %s has no partner ...lora_a", path, t->name);
    }
    return rc;
}

const struct adapter_reader adapter_gguf = {"GGUF", is_gguf, read_gguf};
