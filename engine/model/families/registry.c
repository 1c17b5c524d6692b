/* The list of families, from registry.def, and the family of a file. Any thread. */
#include "engine/model/families/families.h"

#include <limits.h>
#include <string.h>
#include <strings.h>

static const struct family *const families[] = {
#define FAMILY(name) &family_##name,
#include "engine/model/families/registry.def"
#undef FAMILY
    NULL};

static int spelled(const struct meta_value *v, const char *const *names, int most)
{
    if (v->type != META_STRING)
        return 0;
    for (int i = 0; i < most && names[i]; i++)
        if (strlen(names[i]) == v->len && strncasecmp(names[i], v->s, v->len) == 0)
            return 1;
    return 0;
}

#define SPELLED_MOST 60

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Letters to change, add or drop between two names (Levenshtein 1966); case does not matter. */
static int distance(const char *a, size_t a_bytes, const char *b)
{
    int row[SPELLED_MOST + 1], n = (int)strlen(b);

    for (int k = 0; k <= n; k++)
        row[k] = k;
    for (size_t i = 0; i < a_bytes; i++) {
        int corner = row[0]++;

        for (int k = 0; k < n; k++) {
            int above = row[k + 1], same = strncasecmp(&a[i], &b[k], 1) == 0;

            row[k + 1] = least(corner + !same, least(above, row[k]) + 1);
            corner = above;
        }
    }
    return row[n];
}

/* The family with the name nearest to an unknown one. */
static const char *nearest(const struct meta_value *v, bool gguf)
{
    const char *best = families[0]->name;
    int so_far = INT_MAX;

    for (const struct family *const *at = families; *at; at++) {
        const char *const *names = gguf && (*at)->gguf[0] ? (*at)->gguf : (*at)->json;

        for (int i = 0; i < FAMILY_NAMES && names[i]; i++) {
            int d = strlen(names[i]) <= SPELLED_MOST
                        ? distance(v->s, v->len < SPELLED_MOST ? v->len : SPELLED_MOST, names[i])
                        : INT_MAX;

            if (d < so_far) {
                so_far = d;
                best = (*at)->name;
            }
        }
    }
    return best;
}

static int refuse(const struct weight_file *f, const struct meta_value *v, bool gguf,
                  struct error *e)
{
    int shown = (int)(v->len < SPELLED_MOST ? v->len : SPELLED_MOST);

    return error_set(e, ERR_MODEL,
                     "%s: the architecture %.*s is not known; the nearest name that is: %s "
                     "(man 7 moetop-models has all)",
                     weight_file_path(f), shown, v->s, nearest(v, gguf));
}

/* The family of the text of a model that sees, where that is said apart and has a name of its own
 * (Mistral Small 4 is a Mistral3ForConditionalGeneration whose text is mistral4); else `whole`. */
static const struct family *of_text(const struct weight_file *f, const struct family *whole)
{
    struct meta_value v = weight_file_meta(f, "text_config.model_type");

    for (const struct family *const *at = families; *at; at++)
        if ((*at)->nested && spelled(&v, (*at)->json, FAMILY_NAMES))
            return *at;
    return whole;
}

int family_of(const struct family **out, const struct weight_file *f, struct error *e)
{
    int gguf = weight_file_format(f) == WEIGHT_GGUF;
    struct meta_value v[2] = {
        weight_file_meta(f, gguf ? "general.architecture" : "architectures.0"), {0}};

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

        if (spelled(&v[0], gguf ? family->gguf : family->json, FAMILY_NAMES) ||
            spelled(&v[1], family->json, FAMILY_NAMES)) {
            *out = gguf ? family : of_text(f, family);
            return 0;
        }
    }
    if (v[0].type != META_STRING)
        v[0] = v[1];
    if (v[0].type != META_STRING)
        return error_set(e, ERR_MODEL,
                         "%s: its metadata does not name an architecture (man 7 moetop-models has "
                         "those that are known)",
                         weight_file_path(f));
    return refuse(f, &v[0], gguf, e);
}
