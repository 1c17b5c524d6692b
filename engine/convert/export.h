/* Writes a model as GGUF, rounded to another type, for --quantize. Runs on the calling thread and a
 * private pool. The router, norms, biases and rope factors stay F32; the head is at least Q6_K.
 * Rows that a type's block does not divide fall back (Q4_K to Q5_0, Q6_K to Q8_0, then F16). A GGUF
 * source of any family keeps its metadata, names and shapes; a Hugging Face folder is converted,
 * including its tokenizer, if its family's table supports that. */
#ifndef ENGINE_CONVERT_EXPORT_H
#define ENGINE_CONVERT_EXPORT_H

#include "engine/base/error.h"
#include "engine/convert/export_types.h"

/* Entry i; NULL beyond the last. */
const struct export_type *export_type_at(int i);
/* also llama-quantize's short words (q4_k is q4_k_m); case-insensitive; NULL: none */
const struct export_type *export_type_find(const char *word);

/* out is replaced completely or not at all. ERR_MODEL, ERR_IO, ERR_MEMORY, ERR_CANCELLED;
 * ERR_USAGE: a pattern; ERR_INPUT: the importance matrix. */
int model_export(const char *in, const char *out, const struct export_options *o,
                 struct export_report *report, struct error *e);

#endif
