/* Inside engine/convert only: what an exported file says of layers that differ: which are recurrent
 * and how wide, heads and feed-forwards layer by layer, two kinds of attention. Thread: the one
 * that exports. */
#ifndef ENGINE_CONVERT_EXPORT_LAYERS_H
#define ENGINE_CONVERT_EXPORT_LAYERS_H

#include "engine/file/gguf_write.h"
#include "engine/model/family.h"
#include "engine/model/model.h"

/* Heads of keys are a list, which export_put_layers writes, in place of one number. */
bool export_heads_listed(const struct model *m);
/* Feed-forwards are a list: a layer is a mixer or one of them. */
bool export_widths_listed(const struct family *family);
/* Layers that see all have heads of their own beside those with a window: keys' lengths are told
 * here. */
bool export_two_heads(const struct model *m);
/* mtp: lists have an entry for the block behind the layers. */
void export_put_layers(struct gguf_writer *w, const struct model *m, const struct family *family,
                       bool mtp);

#endif
