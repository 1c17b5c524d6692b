/* Inside engine/convert only: whether a written file says of its layers what the folder said. GGUF
 * has no word for some settings (a pattern of windows, a part of YaRN): what a reader would compute
 * otherwise is not written. Thread: the one that exports. */
#ifndef ENGINE_CONVERT_EXPORT_SAME_H
#define ENGINE_CONVERT_EXPORT_SAME_H

#include "engine/base/error.h"
#include "engine/model/family.h"
#include "engine/model/model.h"

/* read: of the folder; written: the new file, opened. ERR_MODEL names the first layer and what of
 * it files of that family cannot say. */
int export_same(const struct model *read, const struct model *written, const struct family *family,
                struct error *e);

#endif
