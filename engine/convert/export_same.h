/* Inside engine/convert only: verifies that a written file describes the same layers as the folder.
 * GGUF has no key for some settings (a pattern of windows, a part of YaRN): a file that a reader
 * would compute differently is refused. Thread: the one that exports. */
#ifndef ENGINE_CONVERT_EXPORT_SAME_H
#define ENGINE_CONVERT_EXPORT_SAME_H

#include "engine/base/error.h"
#include "engine/model/family.h"
#include "engine/model/model.h"

/* read: of the folder; written: the new file, opened. ERR_MODEL names the first layer and the
 * setting that files of that family cannot express. */
int export_same(const struct model *read, const struct model *written, const struct family *family,
                struct error *e);

#endif
