/* See hparams_keys.h. */
#include "engine/model/hparams_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Some converters write one value per layer; all must be the same, except zeros: layers without it.
 * Absent if all are zero. */
static struct meta_value only_value(struct meta_value v)
{
    struct meta_value only;

    if (v.type != META_ARRAY || v.len == 0)
        return v;
    only = meta_at(&v, 0);
    for (size_t i = 1; i < v.len && i < 65536; i++) {
        struct meta_value one = meta_at(&v, i);

        if (only.f == 0)
            only = one;
        else if (one.f != 0 && one.f != only.f)
            return v;
    }
    return only.f == 0 ? (struct meta_value){0} : only;
}

static int read_keys(struct hparams *hp, const struct family *family, const struct weight_file *f,
                     struct error *e)
{
    char name[128];

    for (const struct family_key *k = family->keys; k->gguf[0] || k->json[0]; k++) {
        struct meta_value v = only_value(
            family_meta(family, f, k->gguf, k->json, name, sizeof name));
        double x = v.type == META_NONE ? k->missing : v.f;

        if (v.type != META_NONE && v.type != META_INT && v.type != META_FLOAT)
            return error_set(e, ERR_MODEL, "%s: metadata %s is not a number", weight_file_path(f),
                             name);
        if (v.type != META_NONE &&
            !(x >= k->min && x <= k->max && (k->kind == KEY_FLOAT || x == floor(x))))
            return error_set(e, ERR_MODEL, "%s: metadata %s is %g; %g to %g make sense",
                             weight_file_path(f), name, x, k->min, k->max);
        if (k->kind == KEY_INT)
            *(int *)((char *)hp + k->field) = (int)x;
        else
            *(float *)((char *)hp + k->field) = (float)x;
    }
    return 0;
}

int hparams_partial_rotary(int head_dim, const struct family *family, const struct weight_file *f)
{
    double part = hparams_rotary_part(family, f);

    if (weight_file_format(f) == WEIGHT_GGUF)
        return 0;
    return (int)(head_dim * (part > 0.0 ? part : (double)family->part_unsaid));
}

double hparams_rotary_part(const struct family *family, const struct weight_file *f)
{
    static const char *const json[1 + FAMILY_NAMES] = {
        "rope_parameters.full_attention.partial_rotary_factor",
        "rope_scaling.partial_rotary_factor", "rope_parameters.partial_rotary_factor",
        "partial_rotary_factor"};
    bool by_layer = family->part_unsaid > 0.0f; /* others read the first one themselves */
    char name[128];
    struct meta_value v = family_meta(family, f, NULL, json + !by_layer, name, sizeof name);
    bool number;

    if (by_layer && v.type == META_NONE) /* a list, as Step 3.5 was published */
        v = family_config(f, "partial_rotary_factors.0");
    number = v.type == META_INT || v.type == META_FLOAT;

    return number && v.f > 0.0 && v.f <= 1.0 ? v.f : 0.0;
}

/* Variants in a file's metadata that are not computed. */
static int check_supported(const struct family *family, const struct weight_file *f,
                           struct error *e)
{
    for (const char *const *p = family->unsupported; p && *p; p++) {
        struct meta_value v = family_config(f, *p);

        if (v.type != META_NONE && !(v.type == META_BOOL && !v.i))
            return error_set(e, ERR_MODEL, "%s: %s is set in its metadata, which is not computed",
                             weight_file_path(f), *p);
    }
    return 0;
}

/* A table of keys has GGUF's default; config.json's may be the family's own. */
static void read_unsaid(struct hparams *hp, const struct family *family,
                        const struct weight_file *f)
{
    char name[128];

    for (const struct family_key *k = family->keys; k->gguf[0] || k->json[0]; k++)
        if (k->field == offsetof(struct hparams, rope_theta) && family->theta_unsaid > 0.0f &&
            weight_file_format(f) != WEIGHT_GGUF &&
            family_meta(family, f, k->gguf, k->json, name, sizeof name).type == META_NONE)
            hp->rope_theta = family->theta_unsaid;
}

int hparams_read_keys(struct hparams *hp, const struct family *family, const struct weight_file *f,
                      struct error *e)
{
    int rc = read_keys(hp, family, f, e);

    read_unsaid(hp, family, f);
    if (family->parts && weight_file_format(f) != WEIGHT_GGUF)
        hp->n_layers *= family->parts;
    return rc ? rc : check_supported(family, f, e);
}
