/* Embeddings as the options want them: pooling, normalisation, and the tokens of a text. The model
 * may say how it was trained to be pooled, and that an end token belongs behind the text. Any
 * thread; constant after the model is loaded. */
#ifndef APP_SETUP_EMBEDDING_H
#define APP_SETUP_EMBEDDING_H

#include "app/options/options.h"
#include "engine/run/engine.h"

struct embedding_settings {
    enum embed_pooling pooling; /* EMBED_NONE: as the model was trained */
    int normalize; /* as --embd-normalize: -1 none, 0 largest is 32760, 1 taxicab, 2 Euclidean, p */
    int end;       /* token behind every text; -1: none */
};

/* Of the options alone. */
struct embedding_settings embedding_asked(const struct options *o);
/* The same completed by the model's metadata; mean where neither says. */
struct embedding_settings embedding_settings(struct embedding_settings asked,
                                             const struct engine_info *info);
/* In place, (n). */
void embedding_normalize(float *v, int n, int kind);
/* The text's ids between start and end token, mem_* memory. stop may be NULL. ERR_CANCELLED,
 * ERR_INPUT, ERR_MEMORY. */
int embedding_ids(const struct embedding_settings *s, const struct engine_info *info,
                  const char *text, size_t n, const struct stop *stop, int **ids, int *n_ids,
                  struct error *e);

#endif
