/* The feed-forward of a layer in an exported graph: dense, or routed experts with or without one
 * that is always met. */
#ifndef ENGINE_CONVERT_ONNX_FEED_FORWARD_H
#define ENGINE_CONVERT_ONNX_FEED_FORWARD_H

#include "engine/convert/onnx/parts.h"

/* x (tokens, hidden), normed, to what is added. */
const char *network_feed_forward(struct network *n, int layer, const char *x);

#endif
