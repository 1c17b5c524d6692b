/* See save.h. The weights are written first: an interruption leaves the old adapter, or the new
 * values with settings that are valid for both. */
#include "engine/train/save.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/model/family.h"
#include "engine/train/aside.h"
#include "engine/train/save_gguf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIX "base_model.model."

static int no_memory(const char *path, struct error *e)
{
    return error_set(e, ERR_MEMORY, "%s: out of memory", path);
}

/* ---- adapter_config.json ---- */

/* The end of a module's path that identifies its kind; with the component before if two kinds share
 * it. */
static const char *target_of(const char *name)
{
    const char *dot = strrchr(name, '.'), *p;

    if (!dot || strncmp(dot, ".c_", 3) != 0)
        return dot ? dot + 1 : name;
    for (p = dot; p > name && p[-1] != '.';)
        p--;
    return p;
}

static json_t *targets_of(const struct modules *m)
{
    json_t *seen = json_object(), *list = json_array();
    const char *key;
    json_t *v;

    for (int i = 0; i < m->n; i++)
        json_object_set_new(seen, target_of(m->list[i].name), json_true());
    json_object_foreach(seen, key, v) json_array_append_new(list, json_string(key));
    json_decref(seen);
    return list;
}

static json_t *number_of(float x)
{
    return x == (float)(int)x ? json_integer((json_int_t)x) : json_real((double)x);
}

/* Modules whose rank or alpha differ from the first one's. */
static void add_patterns(json_t *root, const struct modules *m)
{
    json_t *ranks = json_object(), *alphas = json_object();

    for (int i = 1; i < m->n; i++) {
        const struct module *x = &m->list[i];

        if (x->rank != m->list[0].rank)
            json_object_set_new(ranks, x->name, json_integer(x->rank));
        if (x->alpha != m->list[0].alpha)
            json_object_set_new(alphas, x->name, number_of(x->alpha));
    }
    json_object_set_new(root, "rank_pattern", ranks);
    json_object_set_new(root, "alpha_pattern", alphas);
}

static int save_config(const struct modules *m, const struct base *b, const char *folder,
                       struct error *e)
{
    bool turned = strcmp(b->model->family, "gpt2") == 0;
    json_t *root = json_pack("{s:s, s:s, s:n, s:i, s:o, s:o, s:f, s:s, s:b, s:b, s:b, s:b, s:n}",
                             "peft_type", "LORA", "task_type", "CAUSAL_LM",
                             "base_model_name_or_path", "r", m->list[0].rank, "lora_alpha",
                             number_of(m->list[0].alpha), "target_modules", targets_of(m),
                             "lora_dropout", 0.0, "bias", "none", "fan_in_fan_out", turned,
                             "inference_mode", 1, "use_rslora", 0, "use_dora", 0,
                             "modules_to_save");
    char path[PATH_MAX + 32];

    if (root)
        add_patterns(root, m);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    return json_write_file(root, path, JSON_INDENT(2) | JSON_SORT_KEYS, e);
}

/* ---- adapter_model.safetensors ---- */

static void add_tensor(json_t *root, const char *name, char which, int rows, int cols, uint64_t *at)
{
    uint64_t bytes = (uint64_t)rows * (uint64_t)cols * sizeof(float);
    char full[320];

    snprintf(full, sizeof full, PREFIX "%s.lora_%c.weight", name, which);
    json_object_set_new(root, full,
                        json_pack("{s:s, s:[i, i], s:[I, I]}", "dtype", "F32", "shape", rows, cols,
                                  "data_offsets", (json_int_t)*at, (json_int_t)(*at + bytes)));
    *at += bytes;
}

static int put_head(struct aside *a, const struct modules *m, struct error *e)
{
    json_t *root = json_object();
    uint64_t at = 0, n;
    char *text, blanks[8];

    json_object_set_new(root, "__metadata__", json_pack("{s:s}", "format", "pt"));
    for (int i = 0; i < m->n; i++) {
        const struct module *x = &m->list[i];

        add_tensor(root, x->name, 'A', x->rank, x->cols, &at);
        add_tensor(root, x->name, 'B', x->rows, x->rank, &at);
    }
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!text)
        return no_memory(a->target, e);
    n = (strlen(text) + 7) / 8 * 8;
    memset(blanks, ' ', sizeof blanks);
    aside_write(a, &n, sizeof n);
    aside_write(a, text, strlen(text));
    aside_write(a, blanks, n - strlen(text));
    free(text);
    return 0;
}

/* Rows of b in the folder's order. */
static int put_b(struct aside *a, const struct module *x, struct base *b, struct error *e)
{
    size_t rank = (size_t)x->rank;
    float *rows = mem_alloc((size_t)x->rows * rank, sizeof *rows);
    int first = 0;

    if (!rows)
        return no_memory(a->target, e);
    for (int i = 0; i < x->n_parts; i++) {
        int n = base_linear(b, x->id, x->parts[i])->rows;

        for (int r = 0; r < n; r++) {
            int to = adapter_row_of(b->model, WEIGHT_SAFETENSORS, x->id, x->parts[i], r);

            memcpy(rows + (size_t)(first + to) * rank, x->b + (size_t)(first + r) * rank,
                   rank * sizeof *rows);
        }
        first += n;
    }
    aside_write(a, rows, (size_t)x->rows * rank * sizeof *rows);
    mem_free(rows);
    return 0;
}

static int save_weights(const struct modules *m, struct base *b, const char *folder,
                        struct error *e)
{
    char path[PATH_MAX + 32];
    struct aside a;
    int rc;

    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    if ((rc = aside_open(&a, path, e)) < 0)
        return rc;
    rc = put_head(&a, m, e);
    for (int i = 0; i < m->n && rc == 0; i++) {
        const struct module *x = &m->list[i];

        aside_write(&a, x->a, (size_t)x->rank * (size_t)x->cols * sizeof *x->a);
        rc = put_b(&a, x, b, e);
    }
    if (rc == 0)
        return aside_finish(&a, e);
    aside_drop(&a);
    return rc;
}

int save_adapter(const struct modules *m, struct base *b, const char *folder, struct error *e)
{
    char path[PATH_MAX + 32];
    int rc;

    if (mkdir(folder, 0777) && errno != EEXIST)
        return error_set(e, ERR_IO, "%s: cannot be made: %s", folder, strerror(errno));
    snprintf(path, sizeof path, "%s/adapter.gguf", folder);
    if (m->peft &&
        ((rc = save_weights(m, b, folder, e)) < 0 || (rc = save_config(m, b, folder, e)) < 0))
        return rc;
    return save_gguf(m, b, path, e);
}
