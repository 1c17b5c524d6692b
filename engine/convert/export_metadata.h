/* Inside engine/convert only: the metadata of an exported file. */
#ifndef ENGINE_CONVERT_EXPORT_METADATA_H
#define ENGINE_CONVERT_EXPORT_METADATA_H

#include "engine/file/gguf_write.h"
#include "engine/model/family.h"
#include "engine/model/model.h"

/* Writes everything but the tensors. mtp: a folder's MTP block is written too, after the layers.
 * *tokenizer: whether there was one. */
int export_metadata(struct gguf_writer *w, const struct model *m, const struct family *family,
                    const struct model *mtp, int file_type, bool *tokenizer, struct error *e);

/* Whether a folder's rope scaling is a tensor in GGUF files (Llama 3's), not metadata. */
bool export_rope_is_tensor(const struct model *m);

#endif
