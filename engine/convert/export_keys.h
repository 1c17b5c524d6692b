/* Inside engine/convert only: "ARCHITECTURE.NAME" entries of an exported file. Thread: the one that
 * exports. */
#ifndef ENGINE_CONVERT_EXPORT_KEYS_H
#define ENGINE_CONVERT_EXPORT_KEYS_H

#include "engine/file/gguf_write.h"
#include "engine/model/family.h"

#include <stdio.h>

#define EXPORT_KEY 128

static inline const char *export_key(const struct family *family, const char *name,
                                     char key[EXPORT_KEY])
{
    snprintf(key, EXPORT_KEY, "%s.%s", family->gguf[0], name);
    return key;
}

static inline void export_put_u32(struct gguf_writer *w, const struct family *family,
                                  const char *name, uint32_t v)
{
    char key[EXPORT_KEY];

    gguf_put_u32(w, export_key(family, name, key), v);
}

static inline void export_put_f32(struct gguf_writer *w, const struct family *family,
                                  const char *name, float v)
{
    char key[EXPORT_KEY];

    gguf_put_f32(w, export_key(family, name, key), v);
}

static inline void export_put_bool(struct gguf_writer *w, const struct family *family,
                                   const char *name, bool v)
{
    char key[EXPORT_KEY];

    gguf_put_bool(w, export_key(family, name, key), v);
}

#endif
