/* KTransformers' adapters of experts (sft/lora.py: fused_expert_lora.safetensors beside PEFT's
 * files for the rest): layers.N.experts.{gate,up,down}_lora_a (experts, rank, in) and _b (experts,
 * out, rank). See reading.h. */
#include "engine/adapter/reading.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *word;
    enum tensor_role role;
} kinds[] = {{"gate", TENSOR_GATES}, {"up", TENSOR_UPS}, {"down", TENSOR_DOWNS}};

/* false: not a name of this layout. a: it is the first of a pair. */
static bool parse(const char *name, struct place *at, bool *a)
{
    char word[8], which;
    int end = 0;

    if (sscanf(name, "layers.%d.experts.%7[a-z]_lora_%c%n", &at->layer, word, &which, &end) != 3 ||
        name[end] || (which != 'a' && which != 'b'))
        return false;
    *a = which == 'a';
    at->expert = -1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(word, kinds[i].word) == 0) {
            at->role = kinds[i].role;
            return true;
        }
    return false;
}

static int read_pair(struct reading *r, const struct weight_file *f, const struct peft_config *c,
                     const struct tensor_view *t, const struct place *at, struct error *e)
{
    struct pair p = {.a = t};
    char name[300];
    int rc;

    snprintf(name, sizeof name, "%.*sb", (int)(strlen(t->name) - 1), t->name);
    if (!(p.b = weight_file_find(f, name)))
        return error_set(e, ERR_MODEL, "%s: %s has no partner %s", weight_file_path(f), t->name,
                         name);
    snprintf(name, sizeof name, "%.*s", (int)(strlen(t->name) - strlen("_lora_a")), t->name);
    if ((rc = peft_config_rank(c, name, &p.rank, &p.scale, e)) < 0 ||
        (rc = reading_pair(r, WEIGHT_SAFETENSORS, at, &p, e)) < 0)
        return rc;
    if (!rc) {
        reading_unplaced(r, p.a->name);
        reading_unplaced(r, p.b->name);
    }
    return 0;
}

static bool has_first(const struct weight_file *f, const char *second)
{
    char name[300];

    snprintf(name, sizeof name, "%.*sa", (int)(strlen(second) - 1), second);
    return weight_file_find(f, name) != NULL;
}

int ktransformers_read(struct reading *r, const struct weight_file *f, const struct peft_config *c,
                       struct error *e)
{
    int rc = 0;

    for (size_t i = 0; i < weight_file_count(f) && !rc; i++) {
        const struct tensor_view *t = weight_file_at(f, i);
        struct place at;
        bool a;

        if (!parse(t->name, &at, &a))
            reading_unplaced(r, t->name);
        else if (a)
            rc = read_pair(r, f, c, t, &at, e);
        else if (!has_first(f, t->name))
            rc = error_set(e, ERR_MODEL, "%s: %s has no partner ..._lora_a", weight_file_path(f),
                           t->name);
    }
    return rc;
}
