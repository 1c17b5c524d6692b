/* See embedding.h. */
#include "app/setup/embedding.h"

#include "engine/base/mem.h"
#include "engine/file/weights.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* As sentence-transformers writes it. */
static enum embed_pooling folder_pooling(const struct weight_file *f)
{
    static const struct {
        const char *key;
        enum embed_pooling pooling;
    } modes[] = {{"pooling_mode_mean_tokens", EMBED_MEAN},
                 {"pooling_mode_lasttoken", EMBED_LAST},
                 {"pooling_mode_cls_token", EMBED_CLS}};
    char key[80];

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct meta_value v;

        snprintf(key, sizeof key, "1_Pooling/config.json:%s", modes[i].key);
        v = weight_file_meta(f, key);
        if (v.type == META_BOOL && v.i)
            return modes[i].pooling;
    }
    return EMBED_NONE;
}

/* GGUF's {architecture}.pooling_type: 1 mean, 2 cls, 3 last. */
static enum embed_pooling trained_pooling(const struct model *m)
{
    struct meta_value name = weight_file_meta(m->file, "general.architecture"), v = {0};
    char key[128];

    if (name.type != META_STRING)
        return folder_pooling(m->file);
    snprintf(key, sizeof key, "%.*s.pooling_type", (int)name.len, name.s);
    v = weight_file_meta(m->file, key);
    return v.type != META_INT ? EMBED_NONE
           : v.i == 1         ? EMBED_MEAN
           : v.i == 2         ? EMBED_CLS
           : v.i == 3         ? EMBED_LAST
                              : EMBED_NONE;
}

static int end_token(const struct engine_info *info)
{
    const struct model *m = info->model;
    int last = info->tokenizer ? tokenizer_last(info->tokenizer) : -1;
    struct meta_value v = weight_file_meta(m->file, "tokenizer.ggml.add_eos_token");

    if (last >= 0 && last < m->hp.n_vocab)
        return last;
    if (v.type == META_NONE)
        v = weight_file_meta(m->file, "tokenizer_config.json:add_eos_token");
    return v.type == META_BOOL && v.i && m->hp.n_stops ? m->hp.stops[0] : -1;
}

struct embedding_settings embedding_asked(const struct options *o)
{
    static const struct {
        const char *word;
        enum embed_pooling pooling;
    } words[] = {{"mean", EMBED_MEAN}, {"last", EMBED_LAST}, {"cls", EMBED_CLS}};
    struct embedding_settings s = {EMBED_NONE, o->embd_normalize, -1};
    char chosen[16];

    option_value(o, &option_table[OPTION_ID_pooling], chosen, sizeof chosen);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(chosen, words[i].word) == 0)
            s.pooling = words[i].pooling;
    return s;
}

struct embedding_settings embedding_settings(struct embedding_settings s,
                                             const struct engine_info *info)
{
    s.end = end_token(info);
    if (s.pooling == EMBED_NONE)
        s.pooling = trained_pooling(info->model);
    if (s.pooling == EMBED_NONE)
        s.pooling = EMBED_MEAN;
    return s;
}

void embedding_normalize(float *v, int n, int kind)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++) {
        double x = fabs((double)v[i]);

        sum = kind == 0 ? fmax(sum, x) : sum + (kind == 1 ? x : kind == 2 ? x * x : pow(x, kind));
    }
    sum = kind == 0 ? sum / 32760.0 : kind == 2 ? sqrt(sum) : kind > 2 ? pow(sum, 1.0 / kind) : sum;
    for (int i = 0; i < n && kind >= 0 && sum > 0.0; i++)
        v[i] = (float)((double)v[i] / sum);
}

int embedding_ids(const struct embedding_settings *s, const struct engine_info *info,
                  const char *text, size_t n, const struct stop *stop, int **ids, int *n_ids,
                  struct error *e)
{
    int *own = NULL, count = 0, bos, rc;
    bool begin;

    *ids = NULL;
    *n_ids = 0;
    if (!info->tokenizer)
        return error_set(e, ERR_MODEL, "the model has no tokenizer");
    rc = tokenizer_encode_masked(info->tokenizer, text, n, false, NULL, stop, &own, &count, NULL,
                                 e);
    if (rc < 0)
        return rc;
    if (!(*ids = mem_alloc((size_t)count + 2, sizeof **ids))) {
        mem_free(own);
        return error_set(e, ERR_MEMORY, "out of memory for a text");
    }
    bos = tokenizer_bos(info->tokenizer, &begin);
    if (begin && bos < info->model->hp.n_vocab)
        (*ids)[(*n_ids)++] = bos;
    memcpy(*ids + *n_ids, own, (size_t)count * sizeof *own);
    *n_ids += count;
    if (s->end >= 0)
        (*ids)[(*n_ids)++] = s->end;
    mem_free(own);
    return *n_ids ? 0 : error_set(e, ERR_INPUT, "the text is empty");
}
