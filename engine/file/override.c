/* See override.h. */
#include "engine/file/override.h"

#include "engine/base/hash.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool read_bool(const char *text, struct meta_value *out)
{
    *out = (struct meta_value){.type = META_BOOL, .i = strcmp(text, "true") == 0};
    return out->i || strcmp(text, "false") == 0;
}

static bool read_int(const char *text, struct meta_value *out)
{
    char *end;

    errno = 0;
    *out = (struct meta_value){.type = META_INT, .i = strtoll(text, &end, 10)};
    out->f = (double)out->i;
    return *text && !*end && !errno;
}

static bool read_float(const char *text, struct meta_value *out)
{
    char *end;

    *out = (struct meta_value){.type = META_FLOAT, .f = strtod(text, &end)};
    return *text && !*end && isfinite(out->f);
}

static bool read_string(const char *text, struct meta_value *out)
{
    *out = (struct meta_value){.type = META_STRING, .s = text, .len = strlen(text)};
    return true;
}

static const struct {
    const char *word;
    bool (*read)(const char *text, struct meta_value *out);
} types[] = {
    {"int:", read_int}, {"float:", read_float}, {"bool:", read_bool}, {"str:", read_string}};

/* Key and value of one text. */
static bool parse(const char *text, size_t *key_bytes, struct meta_value *out)
{
    const char *value = strchr(text, '=');

    if (!value || value == text)
        return false;
    *key_bytes = (size_t)(value++ - text);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t n = strlen(types[i].word);

        if (strncmp(value, types[i].word, n) == 0)
            return types[i].read(value + n, out);
    }
    return false;
}

int overrides_check(const struct overrides *o, struct error *e)
{
    struct meta_value ignored;
    size_t n;

    for (size_t i = 0; i < o->n; i++)
        if (!parse(o->texts[i], &n, &ignored))
            return error_set(e, ERR_USAGE,
                             "'%.100s' is no override; write KEY=TYPE:VALUE with int, float, bool "
                             "(true, false) or str",
                             o->texts[i]);
    return 0;
}

static bool matches(const char *text, size_t n, const char *key)
{
    if (n > 2 && strncmp(text, "*.", 2) == 0 && (key = strchr(key, '.'))) {
        text++;
        n--;
    }
    return key && strlen(key) == n && memcmp(text, key, n) == 0;
}

struct meta_value overrides_find(const struct overrides *o, const char *key)
{
    struct meta_value v;
    size_t n;

    for (size_t i = o->n; i-- > 0;)
        if (parse(o->texts[i], &n, &v) && matches(o->texts[i], n, key))
            return v;
    return (struct meta_value){0};
}

uint64_t overrides_hash(const struct overrides *o)
{
    uint64_t h = o->n ? HASH_START : 0;

    for (size_t i = 0; i < o->n; i++)
        h = hash_bytes(h, o->texts[i], strlen(o->texts[i]) + 1);
    return h;
}

int overrides_copy(struct overrides *to, const struct overrides *from, struct error *e)
{
    char **texts = mem_alloc(from->n, sizeof *texts);

    *to = (struct overrides){.texts = (const char *const *)texts};
    while (texts && to->n < from->n && (texts[to->n] = mem_string(from->texts[to->n])))
        to->n++;
    if (texts && to->n == from->n)
        return 0;
    overrides_release(to);
    return error_set(e, ERR_MEMORY, "no memory for %zu overrides", from->n);
}

void overrides_release(struct overrides *o)
{
    for (size_t i = 0; i < o->n; i++)
        mem_free((void *)(uintptr_t)o->texts[i]);
    mem_free((void *)(uintptr_t)o->texts);
    *o = (struct overrides){0};
}
