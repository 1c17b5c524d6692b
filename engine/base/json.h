/* JSON parsing: jansson with one-line errors that name the document. Any thread. Depth (2048),
 * duplicate keys and number ranges are checked. */
#ifndef ENGINE_BASE_JSON_H
#define ENGINE_BASE_JSON_H

#include "engine/base/error.h"
#include "engine/base/file.h"

#include <jansson.h>
#include <stddef.h>

/* jansson's json_loadb, but an integer beyond 64 bits becomes a real: tokenizer_config.json has
 * 1000000000000000019884624838656 for "no limit". why: not NULL. */
json_t *json_load_wide(const void *data, size_t bytes, size_t flags, json_error_t *why);
/* The whole of data must be one JSON value. NULL: *e tells where it is wrong (ERR_MODEL), with
 * label as prefix. Free with json_decref. */
json_t *json_read(const void *data, size_t bytes, const char *label, struct error *e);
/* The same for this program's own output: a model may have generated a NUL, so a text may contain
 * one (json_string_length counts it). */
json_t *json_read_own(const void *data, size_t bytes, const char *label, struct error *e);
/* The same for Python's output, whose NaN, Infinity and -Infinity are no JSON: they become null. */
json_t *json_read_python(const void *data, size_t bytes, const char *label, struct error *e);
/* Reads a file with such a value. ERR_IO, ERR_MEMORY; kind->refused if it is no JSON or not of this
 * kind. */
int json_read_file(json_t **root, const char *path, const struct file_kind *kind, struct error *e);
/* Such a file, as file_replace writes it; flags: jansson's. Takes root; NULL: ERR_MEMORY. */
int json_write_file(json_t *root, const char *path, size_t flags, struct error *e);
/* Value at a dotted path ("rope_scaling.short_factor", "eos_token_id.0"); NULL: none. Borrowed. */
const json_t *json_walk(const json_t *root, const char *path);

#endif
