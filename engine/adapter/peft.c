/* A folder as PEFT saves it: adapter_config.json, adapter_model.safetensors and, from
 * KTransformers, fused_expert_lora.safetensors. Tensors are base_model.model.MODULE.lora_A.weight
 * (rank, in) and .lora_B.weight (out, rank). See reading.h. */
#include "engine/adapter/reading.h"

#include "engine/base/file.h"
#include "engine/base/path.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "base_model.model."

static const char *const weights_file = "adapter_model.safetensors",
                         *const experts_file = "fused_expert_lora.safetensors",
                         *const config_file = "adapter_config.json";

static bool is_folder(const char *path)
{
    char folder[PATH_MAX], config[PATH_MAX + 64];

    file_folder(path, folder, sizeof folder);
    snprintf(config, sizeof config, "%s/%s", folder, config_file);
    return access(config, F_OK) == 0;
}

/* The role of a tensor in its module. */
enum piece { PIECE_A, PIECE_B, PIECE_OTHER };

/* module gets its path; "default", the adapter's name, may be in between. */
static enum piece parse(const char *name, char *module, size_t size)
{
    static const char *const ends[][2] = {{".lora_A.weight", ".lora_B.weight"},
                                          {".lora_A.default.weight", ".lora_B.default.weight"}};
    size_t n = strlen(name), skip = strncmp(name, PREFIX, strlen(PREFIX)) ? 0 : strlen(PREFIX);

    for (size_t i = 0; i < 4; i++) {
        size_t m = strlen(ends[i / 2][i % 2]);

        if (n > m + skip && n - m - skip < size && strcmp(name + n - m, ends[i / 2][i % 2]) == 0) {
            snprintf(module, size, "%.*s", (int)(n - m - skip), name + skip);
            return i % 2 ? PIECE_B : PIECE_A;
        }
    }
    return PIECE_OTHER;
}

/* For a name that is no A or B: why the adapter is refused; NULL: it is merely unplaced. */
static const char *refusal(const char *name)
{
    static const struct {
        const char *part, *why;
    } known[] = {{"lora_magnitude_vector", "DoRA's magnitudes are not computed"},
                 {"lora_A.bias", "biases of adapters are not computed"},
                 {"lora_B.bias", "biases of adapters are not computed"},
                 {"modules_to_save", "whole modules saved with it are not read"},
                 {"token_adapter", "trained embeddings of tokens are not read"}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(name, known[i].part))
            return known[i].why;
    return strstr(name, "lora_") ? NULL : "a whole weight, which would replace the model's";
}

static const struct tensor_view *partner(const struct weight_file *f, const struct tensor_view *t)
{
    char name[400], *at;

    if (strlen(t->name) >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%s", t->name);
    at = strstr(name, ".lora_A.") ? strstr(name, ".lora_A.") : strstr(name, ".lora_B.");
    at[6] = at[6] == 'A' ? 'B' : 'A';
    return weight_file_find(f, name);
}

/* Whether the fused experts' module is wrapped twice. */
static bool wrapped(const struct weight_file *f, const char *module)
{
    char name[500];

    snprintf(name, sizeof name, PREFIX "%s.base_layer.lora_A.weight", module);
    return weight_file_find(f, name) != NULL;
}

/* 1: placed, 0: it is none of fused experts. */
static int read_fused(struct reading *r, const struct weight_file *f, const struct peft_config *c,
                      const char *module, const struct pair *p, struct error *e)
{
    bool inner = path_stem(module, ".experts.base_layer");
    char experts[400];

    if (!inner && !path_stem(module, ".experts"))
        return 0;
    snprintf(experts, sizeof experts, "%.*s",
             (int)(strlen(module) - (inner ? strlen(".base_layer") : 0)), module);
    return fused_pair(r, c, experts, inner, inner || wrapped(f, module), p, e);
}

static int read_pair(struct reading *r, const struct weight_file *f, const struct peft_config *c,
                     const struct tensor_view *t, const char *module, struct error *e)
{
    struct pair p = {.a = t, .b = partner(f, t)};
    struct place at;
    int row = 0, rc;

    if (!p.b)
        return error_set(e, ERR_MODEL, "%s: %s has no partner of lora_B", weight_file_path(f),
                         t->name);
    if ((rc = peft_config_rank(c, module, &p.rank, &p.scale, e)) < 0)
        return rc;
    rc = read_fused(r, f, c, module, &p, e);
    while (!rc && place_of(r, WEIGHT_SAFETENSORS, module, &row, &at))
        rc = reading_pair(r, WEIGHT_SAFETENSORS, &at, &p, e);
    if (!rc) {
        reading_unplaced(r, p.a->name);
        reading_unplaced(r, p.b->name);
    }
    return rc < 0 ? rc : 0;
}

static int read_tensors(struct reading *r, const struct weight_file *f, const struct peft_config *c,
                        struct error *e)
{
    char module[400];
    int rc = 0;

    for (size_t i = 0; i < weight_file_count(f) && !rc; i++) {
        const struct tensor_view *t = weight_file_at(f, i);
        enum piece piece = parse(t->name, module, sizeof module);

        if (piece == PIECE_A)
            rc = read_pair(r, f, c, t, module, e);
        else if (piece == PIECE_B && !partner(f, t))
            rc = error_set(e, ERR_MODEL, "%s: %s has no partner of lora_A", weight_file_path(f),
                           t->name);
        else if (piece == PIECE_OTHER && refusal(t->name))
            rc = error_set(e, ERR_MODEL, "%s: %s: %s", weight_file_path(f), t->name,
                           refusal(t->name));
        else if (piece == PIECE_OTHER)
            reading_unplaced(r, t->name);
    }
    return rc;
}

/* 1: the file exists and was opened as *f. */
static int open_file(struct reading *r, const char *folder, const char *name,
                     struct weight_file **f, struct error *e)
{
    char path[PATH_MAX + 64];
    int rc;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (access(path, F_OK))
        return 0;
    if ((rc = weight_file_open(f, path, false, e)) < 0)
        return rc;
    r->files[r->files[0] != NULL] = *f;
    return 1;
}

static int none_there(const char *folder, struct error *e)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/adapter_model.bin", folder);
    if (access(path, F_OK) == 0)
        return error_set(e, ERR_MODEL,
                         "%s: a PyTorch pickle; save the adapter as safetensors: pickles can run "
                         "code",
                         path);
    return error_set(e, ERR_MODEL, "%s: holds no %s", folder, weights_file);
}

static int read_folder(struct reading *r, const char *path, struct error *e)
{
    char folder[PATH_MAX], config[PATH_MAX + 64];
    struct peft_config *c;
    struct weight_file *f;
    int rc, found;

    file_folder(path, folder, sizeof folder);
    snprintf(config, sizeof config, "%s/%s", folder, config_file);
    if ((rc = peft_config_read(&c, config, e)) < 0)
        return rc;
    r->info->format = "PEFT";
    if ((rc = found = open_file(r, folder, weights_file, &f, e)) > 0)
        rc = read_tensors(r, f, c, e);
    if (rc >= 0 && (rc = open_file(r, folder, experts_file, &f, e)) > 0) {
        r->info->format = "KTransformers";
        found = 1;
        rc = ktransformers_read(r, f, c, e);
    }
    peft_config_free(c);
    return rc < 0 ? rc : found ? 0 : none_there(folder, e);
}

const struct adapter_reader adapter_folder = {"PEFT", is_folder, read_folder};
