/* A hash of all hyperparameters: cached results of a model are valid only for the same ones,
 * whichever file, flag or default they come from. */
#ifndef ENGINE_MODEL_HPARAMS_DIGEST_H
#define ENGINE_MODEL_HPARAMS_DIGEST_H

#include "engine/base/digest.h"
#include "engine/model/hparams.h"

/* Field by field: padding between fields is undefined. Excludes what only concerns the text (bos,
 * end-of-answer tokens): results depend on ids. Any thread. */
void hparams_digest(struct digest *d, const struct hparams *hp);

#endif
