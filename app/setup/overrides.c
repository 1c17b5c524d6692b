/* See overrides.h. */
#include "app/setup/overrides.h"

#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

#define NAMES 3 /* names of one value, in files of both kinds */

/* Names of a flag's value in GGUF files, in config.json and in that of newer releases of
 * transformers. */
static const struct {
    enum option_id id;
    const char *names[NAMES + 1];
} flags[] = {
    {OPTION_ID_rope_scaling,
     {"*.rope.scaling.type=str:", "rope_scaling.rope_type=str:", "rope_scaling.type=str:",
      "rope_parameters.rope_type=str:"}},
    {OPTION_ID_rope_scale,
     {"*.rope.scaling.factor=float:", "rope_scaling.factor=float:",
      "rope_parameters.factor=float:"}},
    {OPTION_ID_rope_freq_scale, /* its inverse */
     {"*.rope.scaling.factor=float:", "rope_scaling.factor=float:",
      "rope_parameters.factor=float:"}},
    {OPTION_ID_yarn_beta_slow,
     {"*.rope.scaling.yarn_beta_slow=float:", "rope_scaling.beta_slow=float:",
      "rope_parameters.beta_slow=float:"}},
    {OPTION_ID_yarn_beta_fast,
     {"*.rope.scaling.yarn_beta_fast=float:", "rope_scaling.beta_fast=float:",
      "rope_parameters.beta_fast=float:"}},
    {OPTION_ID_rope_freq_base,
     {"*.rope.freq_base=float:", "rope_theta=float:", "rope_parameters.rope_theta=float:",
      "rope_scaling.rope_theta=float:"}},
    {OPTION_ID_yarn_orig_ctx,
     {"*.rope.scaling.original_context_length=int:",
      "rope_scaling.original_max_position_embeddings=int:",
      "rope_parameters.original_max_position_embeddings=int:",
      "original_max_position_embeddings=int:"}},
};
#define FLAGS (sizeof flags / sizeof *flags)

static bool add(struct override_list *l, const char *text)
{
    l->texts[l->all.n] = mem_string(text);
    return l->texts[l->all.n] && ++l->all.n;
}

static bool asked(const struct options *o, enum option_id id)
{
    switch (id) {
    case OPTION_ID_rope_scaling: return o->rope_scaling != 0;
    case OPTION_ID_rope_scale: return o->rope_scale > 0;
    case OPTION_ID_rope_freq_scale: return o->rope_freq_scale > 0;
    case OPTION_ID_rope_freq_base: return o->rope_freq_base > 0;
    case OPTION_ID_yarn_beta_slow: return o->yarn_beta_slow > 0;
    case OPTION_ID_yarn_beta_fast: return o->yarn_beta_fast > 0;
    default: return o->yarn_orig_ctx > 0;
    }
}

/* Start of the next override in a list: after a comma followed by a key and a type. NULL: this is
 * the last one, and commas are part of its text. */
static const char *next_of(const char *text)
{
    static const char *const types[] = {"int:", "float:", "bool:", "str:"};

    for (const char *comma = text; (comma = strchr(comma, ',')); comma++) {
        size_t key = strcspn(comma + 1, ",=");

        for (size_t i = 0; key && comma[1 + key] == '=' && i < sizeof types / sizeof *types; i++)
            if (strncmp(comma + 2 + key, types[i], strlen(types[i])) == 0)
                return comma + 1;
    }
    return NULL;
}

static size_t count_list(const char *text)
{
    size_t n = 0;

    for (; text; text = next_of(text))
        n++;
    return n;
}

static bool add_list(struct override_list *l, const char *text)
{
    for (const char *next; text; text = next) {
        next = next_of(text);
        l->texts[l->all.n] = mem_string_n(text, next ? (size_t)(next - text) - 1 : strlen(text));
        if (!l->texts[l->all.n] || !++l->all.n)
            return false;
    }
    return true;
}

/* The flags first: an override by key takes precedence. */
static bool fill(struct override_list *l, const struct options *o)
{
    char value[64], text[200];

    for (size_t i = 0; i < FLAGS; i++) {
        if (!asked(o, flags[i].id))
            continue;
        option_value(o, &option_table[flags[i].id], value, sizeof value);
        if (flags[i].id == OPTION_ID_rope_freq_scale)
            snprintf(value, sizeof value, "%.9g", 1.0 / o->rope_freq_scale);
        for (size_t k = 0; k <= NAMES && flags[i].names[k]; k++) {
            snprintf(text, sizeof text, "%s%s", flags[i].names[k], value);
            if (!add(l, text))
                return false;
        }
    }
    for (size_t i = 0; i < o->override_kv.n; i++)
        if (!add_list(l, o->override_kv.items[i]))
            return false;
    return true;
}

int override_list_init(struct override_list *l, const struct options *o, struct error *e)
{
    size_t n = FLAGS * (NAMES + 1);
    int rc = 0;

    *l = (struct override_list){0};
    for (size_t i = 0; i < o->override_kv.n; i++)
        n += count_list(o->override_kv.items[i]);
    l->texts = mem_alloc(n, sizeof *l->texts);
    if (!l->texts || !fill(l, o))
        rc = error_set(e, ERR_MEMORY, "out of memory for --override-kv");
    l->all.texts = (const char *const *)l->texts;
    if (rc == 0 && (rc = overrides_check(&l->all, e)) < 0)
        error_prefix(e, "--override-kv");
    if (rc < 0)
        override_list_release(l);
    return rc;
}

void override_list_release(struct override_list *l)
{
    for (size_t i = 0; l->texts && i < l->all.n; i++)
        mem_free(l->texts[i]);
    mem_free(l->texts);
    *l = (struct override_list){0};
}
