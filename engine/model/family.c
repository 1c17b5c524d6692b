/* The spelling of a family's keys and tensor names. Any thread. */
#include "engine/model/family.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

struct meta_value family_config(const struct weight_file *f, const char *name)
{
    struct meta_value v = weight_file_meta(f, name);
    char nested[160];

    if (v.type != META_NONE)
        return v;
    snprintf(nested, sizeof nested, "text_config.%s", name);
    return weight_file_meta(f, nested);
}

const char *family_architecture(const struct family *family, const struct weight_file *f)
{
    struct meta_value v = weight_file_meta(f, "general.architecture");

    for (int i = 1; i < FAMILY_NAMES && family->gguf[i] && v.type == META_STRING; i++)
        if (strlen(family->gguf[i]) == v.len && memcmp(family->gguf[i], v.s, v.len) == 0)
            return family->gguf[i];
    return family->gguf[0];
}

struct meta_value family_meta(const struct family *family, const struct weight_file *f,
                              const char *const *gguf, const char *const *json, char *name,
                              size_t size)
{
    int is_gguf = weight_file_format(f) == WEIGHT_GGUF;
    const char *const *names = is_gguf ? gguf : json;

    for (int i = 0; i < FAMILY_NAMES && names && names[i]; i++) {
        struct meta_value v;

        if (is_gguf)
            snprintf(name, size, "%s.%s", family_architecture(family, f), names[i]);
        else
            snprintf(name, size, "%s", names[i]);
        v = is_gguf ? weight_file_meta(f, name) : family_config(f, name);
        if (v.type != META_NONE)
            return v;
    }
    return (struct meta_value){0};
}

static bool starts(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* What follows a layer's prefix in a name of folders; NULL: it is not a layer's. */
static const char *behind_layer(const char *pattern)
{
    static const char *const prefixes[] = {"model.layers.%l.", "layers.%l."};

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (starts(pattern, prefixes[i]))
            return pattern + strlen(prefixes[i]);
    return NULL;
}

static void expand(const struct family *family, const char *pattern, int layer, int expert,
                   bool bias, char *out, size_t size)
{
    const char *moved = family->is_mtp ? family->mtp : NULL,
               *rest = moved ? behind_layer(pattern) : NULL;
    char whole[200];
    size_t n = 0;
    int parts = family->parts ? family->parts : 1;

    if (rest) {
        snprintf(whole, sizeof whole, "%s%s", moved, rest);
        pattern = whole;
    } else if (!moved || !starts(pattern, moved)) {
        layer += family->first_layer;
    }
    for (const char *p = pattern; *p && n + 12 < size; p++) {
        if (p[0] == '%' && p[1] && strchr("lepsf", p[1])) {
            if (*++p != 'f' || layer % parts == 0)
                n += (size_t)snprintf(out + n, size - n, "%d",
                                      *p == 'l'   ? layer
                                      : *p == 'e' ? expert
                                      : *p == 's' ? layer % parts
                                                  : layer / parts);
        } else {
            out[n++] = *p;
        }
    }
    out[n] = 0;
    if (bias && n > 7 && strcmp(out + n - 7, ".weight") == 0)
        snprintf(out + n - 7, size - n + 7, ".bias");
    else if (bias)
        snprintf(out + n, size - n, "_bias");
}

static const char *const *spellings(const struct family *family, const struct weight_file *f,
                                    enum tensor_role role, bool bias)
{
    static const char *const none[FAMILY_NAMES];

    for (const struct family_tensor *t = family->tensors; t && t->role != TENSOR_ROLES; t++)
        if (t->role == role && (!bias || (t->flags & TENSOR_BIAS)))
            return weight_file_format(f) == WEIGHT_GGUF ? t->gguf : t->json;
    return none;
}

static const struct tensor_view *find_nested(const struct family *family,
                                             const struct weight_file *f, const char *name)
{
    char nested[300];

    const struct tensor_view *t = NULL;

    if (!family->nested)
        return NULL;
    if (strncmp(name, "model.", 6) == 0) {
        snprintf(nested, sizeof nested, "%s%s", family->nested, name + 6);
        t = weight_file_find(f, nested);
    }
    /* as transformers 4 nested them, the head too */
    snprintf(nested, sizeof nested, "language_model.%s", name);
    return t ? t : weight_file_find(f, nested);
}

const struct tensor_view *family_tensor(const struct family *family, const struct weight_file *f,
                                        enum tensor_role role, int layer, int expert, bool bias)
{
    const char *const *names = spellings(family, f, role, bias);
    char name[256];

    for (int i = 0; i < FAMILY_NAMES && names[i]; i++) {
        const struct tensor_view *t;

        expand(family, names[i], layer, expert, bias, name, sizeof name);
        if ((t = weight_file_find(f, name)) || (t = find_nested(family, f, name)))
            return t;
    }
    return NULL;
}

bool family_mtp(const struct family *family, const struct weight_file *f, int n_layers,
                struct family *out)
{
    *out = *family;
    out->is_mtp = true;
    out->first_layer = n_layers;
    return family->extra_layers && (family_tensor(out, f, TENSOR_MTP_JOIN, 0, 0, false) ||
                                    family_tensor(out, f, TENSOR_MTP_JOIN_EMBEDDING, 0, 0, false) ||
                                    family_tensor(out, f, TENSOR_MTP_JOIN_STATE, 0, 0, false));
}

bool family_tensor_is(const struct family *family, const struct weight_file *f,
                      enum tensor_role role, int flag)
{
    for (const struct family_tensor *t = family->tensors; t && t->role != TENSOR_ROLES; t++)
        if (t->role == role && weight_file_format(f) != WEIGHT_GGUF)
            return (t->flags & flag) != 0;
    return false;
}

/* For all experts: the hidden size is the rows of down and the columns of gate and up if
 * untransposed; if both fit they are untransposed. */
static bool hidden_turned(const struct family *family, const struct weight_file *f,
                          enum tensor_role role, const struct tensor_view *t)
{
    const struct tensor_view *norm = family_tensor(family, f, TENSOR_OUTPUT_NORM, 0, 0, false);

    return norm && t->n_dims == 3 && t->dims[role == TENSOR_DOWNS ? 1 : 2] != norm->dims[0];
}

bool family_tensor_turned(const struct family *family, const struct weight_file *f,
                          enum tensor_role role, const struct tensor_view *t)
{
    if (!t || t->packed || !family_tensor_is(family, f, role, TENSOR_TRANSPOSED))
        return false;
    return !family_tensor_is(family, f, role, TENSOR_EITHER) || hidden_turned(family, f, role, t);
}

void family_tensor_name(const struct family *family, const struct weight_file *f,
                        enum tensor_role role, int layer, int expert, char *out, size_t size)
{
    const char *const *names = spellings(family, f, role, false);
    int i = 0;

    while (family->is_mtp && family->mtp_spelt_last && i + 1 < FAMILY_NAMES && names[i + 1] &&
           weight_file_format(f) != WEIGHT_GGUF)
        i++;
    expand(family, names[i] ? names[i] : "?", layer, expert, false, out, size);
}

void family_gguf_name(const struct family *family, enum tensor_role role, int layer, bool recurrent,
                      bool bias, char *out, size_t size)
{
    *out = 0;
    for (const struct family_tensor *t = family->tensors; t && t->role != TENSOR_ROLES; t++)
        if (t->role == role && t->gguf[0])
            expand(family, t->gguf[recurrent && (t->flags & TENSOR_BY_MIXER)], layer, 0, bias, out,
                   size);
}

bool family_gguf_key(const struct family *family, size_t field, char *out, size_t size,
                     bool *is_float)
{
    for (const struct family_key *k = family->keys; k->gguf[0] || k->json[0]; k++)
        if (k->field == field && k->gguf[0]) {
            snprintf(out, size, "%s.%s", family->gguf[0], k->gguf[0]);
            *is_float = k->kind == KEY_FLOAT;
            return true;
        }
    return false;
}

static const char *purpose(const char *tensor)
{
    static const struct {
        const char *names, *what;
    } known[] = {{"*mtp*", FAMILY_MTP},
                 {"*inv_freq*", "rotary tables"},
                 {"rope_freqs*", "rotary tables"},
                 {"*attn.*bias", "attention masks"},
                 {"*visi*", "a vision tower"},
                 {"*visual*", "a vision tower"},
                 {"*audio*", "an audio tower"}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fnmatch(known[i].names, tensor, 0) == 0)
            return known[i].what;
    return "other parts";
}

const char *family_ignores(const struct family *family, const char *tensor)
{
    for (const char *const *p = family->ignored; p && *p; p++)
        if (fnmatch(*p, tensor, 0) == 0)
            return purpose(tensor);
    return NULL;
}
