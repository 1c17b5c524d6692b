/* The list of families, from registry.def, and the family of a file. Any thread. */
#include "engine/model/families/families.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct family *const families[] = {
#define FAMILY(name) &family_##name,
#include "engine/model/families/registry.def"
#undef FAMILY
    NULL};

static int spelled(const struct meta_value *v, const char *const *names)
{
    if (v->type != META_STRING)
        return 0;
    for (int i = 0; i < FAMILY_NAMES && names[i]; i++)
        if (strlen(names[i]) == v->len && strncasecmp(names[i], v->s, v->len) == 0)
            return 1;
    return 0;
}

int family_of(const struct family **out, const struct weight_file *f, struct error *e)
{
    int gguf = weight_file_format(f) == WEIGHT_GGUF;
    struct meta_value v[2] = {
        weight_file_meta(f, gguf ? "general.architecture" : "architectures.0"), {0}};
    char known[800] = "";

    if (!gguf) {
        v[1] = weight_file_meta(f, "model_type");
        if (v[0].type == META_NONE && v[1].type == META_NONE) {
            size_t bytes;

            if (!weight_file_aux(f, "config.json", &bytes))
                return error_set(
                    e, ERR_MODEL,
                    "%s: no config.json beside the weights; name the folder that has both",
                    weight_file_path(f));
        }
    }
    for (const struct family *const *at = families; *at; at++) {
        const struct family *family = *at;

        if (spelled(&v[0], gguf ? family->gguf : family->json) || spelled(&v[1], family->json)) {
            *out = family;
            return 0;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *known ? ", " : "",
                 family->name);
    }
    if (v[0].type != META_STRING)
        v[0] = v[1];
    if (v[0].type != META_STRING)
        return error_set(e, ERR_MODEL, "%s: its metadata does not name an architecture (known: %s)",
                         weight_file_path(f), known);
    return error_set(e, ERR_MODEL, "%s: the architecture %.*s is not known (known: %s)",
                     weight_file_path(f), (int)(v[0].len < 60 ? v[0].len : 60), v[0].s, known);
}
