/* The router of a layer in an exported graph. */
#ifndef ENGINE_CONVERT_ONNX_ROUTING_H
#define ENGINE_CONVERT_ONNX_ROUTING_H

#include "engine/convert/onnx/parts.h"

/* x (tokens, hidden), normed, to weights (tokens, experts), 0 of experts that a token does not
 * meet. */
const char *network_route(struct network *n, int layer, const char *x);

#endif
