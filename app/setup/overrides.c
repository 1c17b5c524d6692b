/* See overrides.h. */
#include "app/setup/overrides.h"

#include "engine/base/mem.h"

#include <stdio.h>

#define NAMES 3 /* of one thing, in files of both kinds */

/* What a flag is called in GGUF files, in config.json and in that of newer releases of
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
    {OPTION_ID_rope_freq_base,
     {"*.rope.freq_base=float:", "rope_theta=float:", "rope_parameters.rope_theta=float:"}},
    {OPTION_ID_yarn_orig_ctx,
     {"*.rope.scaling.original_context_length=int:",
      "rope_scaling.original_max_position_embeddings=int:",
      "rope_parameters.original_max_position_embeddings=int:"}},
};
#define FLAGS (sizeof flags / sizeof *flags)

static bool add(struct override_list *l, const char *text)
{
    l->texts[l->all.n] = mem_string(text);
    return l->texts[l->all.n] && ++l->all.n;
}

static bool asked(const struct options *o, enum option_id id)
{
    return id == OPTION_ID_rope_scaling     ? o->rope_scaling != 0
           : id == OPTION_ID_rope_scale     ? o->rope_scale > 0
           : id == OPTION_ID_rope_freq_base ? o->rope_freq_base > 0
                                            : o->yarn_orig_ctx > 0;
}

/* The flags first: who overrides a key by name means it. */
static bool fill(struct override_list *l, const struct options *o)
{
    char value[64], text[200];

    for (size_t i = 0; i < FLAGS; i++) {
        if (!asked(o, flags[i].id))
            continue;
        option_value(o, &option_table[flags[i].id], value, sizeof value);
        for (size_t k = 0; k <= NAMES && flags[i].names[k]; k++) {
            snprintf(text, sizeof text, "%s%s", flags[i].names[k], value);
            if (!add(l, text))
                return false;
        }
    }
    for (size_t i = 0; i < o->override_kv.n; i++)
        if (!add(l, o->override_kv.items[i]))
            return false;
    return true;
}

int override_list_init(struct override_list *l, const struct options *o, struct error *e)
{
    int rc = 0;

    *l = (struct override_list){0};
    l->texts = mem_alloc(FLAGS * (NAMES + 1) + o->override_kv.n, sizeof *l->texts);
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
