/* Every hyperparameter that was read, as one running hash: what is kept of a model's results is
 * worth nothing beside others, whichever file, flag or default they come from. */
#ifndef ENGINE_MODEL_HPARAMS_DIGEST_H
#define ENGINE_MODEL_HPARAMS_DIGEST_H

#include "engine/base/digest.h"
#include "engine/model/hparams.h"

/* Field by field: what lies between fields is not defined. What only concerns the text (bos, ends
 * of answers) is left out: ids are what results depend on. Any thread. */
void hparams_digest(struct digest *d, const struct hparams *hp);

#endif
