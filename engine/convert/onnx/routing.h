/* The router of a layer in an exported graph. */
#ifndef ENGINE_CONVERT_ONNX_ROUTING_H
#define ENGINE_CONVERT_ONNX_ROUTING_H

#include "engine/convert/onnx/parts.h"

/* Weights (tokens, experts) for x (tokens, hidden), normed; 0 for experts not chosen by a token. */
const char *network_route(struct network *n, int layer, const char *x);

#endif
