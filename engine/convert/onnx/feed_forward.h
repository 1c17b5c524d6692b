/* The feed-forward of a layer in an exported graph: dense, or routed experts with or without a
 * shared one. */
#ifndef ENGINE_CONVERT_ONNX_FEED_FORWARD_H
#define ENGINE_CONVERT_ONNX_FEED_FORWARD_H

#include "engine/convert/onnx/parts.h"

/* The output to be added, for x (tokens, hidden), normed. */
const char *network_feed_forward(struct network *n, int layer, const char *x);

#endif
