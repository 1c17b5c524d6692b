/* Inside engine/convert only: metadata of an exported file about layers that differ: which are
 * recurrent and how wide, heads and feed-forwards by layer, two kinds of attention. Thread: the one
 * that exports. */
#ifndef ENGINE_CONVERT_EXPORT_LAYERS_H
#define ENGINE_CONVERT_EXPORT_LAYERS_H

#include "engine/file/gguf_write.h"
#include "engine/model/family.h"
#include "engine/model/model.h"

/* Whether the number of key heads is a list, written by export_put_layers, not one number. */
bool export_heads_listed(const struct model *m, const struct family *family);
/* Whether feed-forward widths are a list: a layer is a mixer or a feed-forward. */
bool export_widths_listed(const struct model *m, const struct family *family);
/* Whether full-attention layers have other heads than those with a window; writes the key
 * lengths. */
bool export_two_heads(const struct model *m);
/* mtp: the MTP block, which lists have an entry for after the layers; NULL: there is none. */
void export_put_layers(struct gguf_writer *w, const struct model *m, const struct family *family,
                       const struct model *mtp);

#endif
