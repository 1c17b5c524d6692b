/* See recommended.h. */
#include "app/setup/recommended.h"

#include "app/common/paths.h"
#include "app/options/config.h"
#include "engine/file/weights.h"

#include <limits.h>
#include <stdio.h>

#define JSON "generation_config.json:"

/* Hugging Face's words (generation_config.json) and llama.cpp's (gguf-py's Keys.General). */
static const struct {
    enum option_id id;
    const char *json, *gguf;
} values[] = {
    {OPTION_ID_temp, JSON "temperature", "general.sampling.temp"},
    {OPTION_ID_top_k, JSON "top_k", "general.sampling.top_k"},
    {OPTION_ID_top_p, JSON "top_p", "general.sampling.top_p"},
    {OPTION_ID_min_p, JSON "min_p", "general.sampling.min_p"},
    {OPTION_ID_repeat_penalty, JSON "repetition_penalty", "general.sampling.penalty_repeat"},
    {OPTION_ID_typical_p, JSON "typical_p", NULL},
    {OPTION_ID_xtc_probability, NULL, "general.sampling.xtc_probability"},
    {OPTION_ID_xtc_threshold, NULL, "general.sampling.xtc_threshold"},
    {OPTION_ID_repeat_last_n, NULL, "general.sampling.penalty_last_n"},
};

static bool number(const struct meta_value *v, char *out, size_t size)
{
    if (v->type == META_INT)
        snprintf(out, size, "%lld", (long long)v->i);
    else if (v->type == META_FLOAT)
        snprintf(out, size, "%.6g", v->f);
    return v->type == META_INT || v->type == META_FLOAT;
}

struct listener {
    void (*say)(void *ctx, const char *line);
    void *ctx;
};

static int read_one(struct options *o, const struct option *option, const struct meta_value *v,
                    const char *key, const struct listener *l, struct error *e)
{
    struct error why = {0};
    char text[64];
    int rc;

    if (!number(v, text, sizeof text))
        return 0;
    rc = options_set(o, option, text, ORIGIN_RECOMMENDED, key, &why);
    if (rc == ERR_MEMORY) {
        *e = why;
        return rc;
    }
    if (rc < 0 && l->say) {
        char line[sizeof why.text + 80];

        snprintf(line, sizeof line, "what the model recommends is not used: %s: %s", key, why.text);
        l->say(l->ctx, line);
    }
    return 0;
}

int recommended_read(struct options *o, const char *model_path,
                     void (*say)(void *ctx, const char *line), void *ctx, struct error *e)
{
    const struct listener l = {say, ctx};
    struct weight_file *f;
    struct error ignored;
    struct meta_value sample;
    bool gguf;
    int rc = 0;

    if (weight_file_open(&f, model_path, true, &ignored) < 0)
        return 0;
    gguf = weight_file_format(f) == WEIGHT_GGUF;
    for (size_t i = 0; i < sizeof values / sizeof *values && rc == 0; i++) {
        const char *key = gguf ? values[i].gguf : values[i].json;
        struct meta_value v = {0};

        if (key)
            v = weight_file_meta(f, key);
        rc = read_one(o, &option_table[values[i].id], &v, key, &l, e);
    }
    /* "do_sample": false means greedy, whatever its temperature */
    sample = weight_file_meta(f, JSON "do_sample");
    if (rc == 0 && !gguf && sample.type == META_BOOL && !sample.i)
        rc = options_set(o, &option_table[OPTION_ID_temp], "0", ORIGIN_RECOMMENDED,
                         JSON "do_sample", e);
    weight_file_close(f);
    return rc;
}

int recommended_switch(struct options *o, const char *path,
                       void (*say)(void *ctx, const char *line), void *ctx, struct error *e)
{
    const struct option *model = &option_table[OPTION_ID_model];
    char found[PATH_MAX];
    int rc = 0;

    for (int i = 0; i < OPTION_COUNT && rc == 0; i++)
        if (o->origin[i].from == ORIGIN_RECOMMENDED || o->origin[i].from == ORIGIN_MODEL)
            rc = options_unset(o, &option_table[i], e);
    if (rc == 0 && (rc = options_unset(o, model, e)) == 0 && path)
        rc = options_set(o, model, path, ORIGIN_CHAT, NULL, e);
    if (rc < 0 || (rc = paths_model(path, found, sizeof found, e)) < 0 ||
        (rc = recommended_read(o, found, say, ctx, e)) < 0)
        return rc;
    return config_read_model(o, found, e);
}
