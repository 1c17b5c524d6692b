/* Identities among a layer's experts (router_shape.identities): they have no matrices, no device
 * and no group of rows; a chosen one's output is its input. */
#ifndef ENGINE_RUN_IDENTITY_H
#define ENGINE_RUN_IDENTITY_H

#include "engine/run/pass/pass.h"

/* After routing, before the experts' jobs: outputs of the rows' places that an identity has, which
 * are those without an expert but with a weight. Engine's thread. */
void identity_outputs(const struct forward *f, int layer);

#endif
