/* Common code of the readers of both sources: fills the tables of a tokenizer. Included by
 * tokenizer_load.c and the readers only. One thread. All input is untrusted: the readers check ids
 * and counts, this code texts and merges. */
#ifndef ENGINE_TEXT_TOKENIZER_BUILD_H
#define ENGINE_TEXT_TOKENIZER_BUILD_H

#include "engine/file/weights.h"
#include "engine/text/tokenizer_data.h"

#include <jansson.h>

#define TOKENIZER_JSON "tokenizer.json"

/* The readers: tokenizer_json.c (the text of a tokenizer.json, or its parsed form),
 * tokenizer_vocab.c (vocab.json and merges.txt of a folder without one) and tokenizer_gguf.c. */
int tokenizer_load_root(struct tokenizer *t, json_t *root, struct error *e);
int tokenizer_load_vocab(struct tokenizer *t, const struct weight_file *f, struct error *e);
int tokenizer_load_json(struct tokenizer *t, const void *data, size_t size, struct error *e);
int tokenizer_load_gguf(struct tokenizer *t, const struct weight_file *f, struct error *e);

int build_no_memory(struct error *e);
/* Allocates for ids below n and for all text, pool bytes. texts: how many will be set, which may be
 * more than there are ids: the index must never fill up. */
int build_tables(struct tokenizer *t, int n, size_t texts, size_t pool, struct error *e);
/* Sets the text of an id. */
int build_piece(struct tokenizer *t, int id, const char *text, size_t len, struct error *e);
/* Allocates n merges. */
int build_merges(struct tokenizer *t, size_t n, struct error *e);
/* A later entry of the same pair replaces the earlier one, as in the reference's map. False: a text
 * is not a token. */
bool build_merge(struct tokenizer *t, const char *a, size_t na, const char *b, size_t nb, int rank);
/* Appends a step of the normalizer. */
int build_step(struct tokenizer *t, enum normalize_op op, const char *from, const char *to,
               struct error *e);
/* One that replaces the matches of an expression; one that may match empty text is refused. */
int build_step_pattern(struct tokenizer *t, const struct split *s, const char *to, struct error *e);
/* Allocates a score for each piece: text is then split by scores (unigram.h). */
int build_scores(struct tokenizer *t, struct error *e);
/* Appends a step of the decoder. */
int build_decode(struct tokenizer *t, struct decode_step step, const char *from, const char *to,
                 struct error *e);
/* The decoder of SentencePiece's kind: marks become blanks, byte tokens bytes, and the first blank
 * is removed if it was added by the tokenizer (strip). */
int build_decode_words(struct tokenizer *t, bool strip, struct error *e);
/* The byte of a byte token "<0x0A>", else -1. */
int build_byte_of(const char *text, size_t len);
/* A token that frames conversations although the file does not mark it special ("</s>" in
 * Phi's). */
bool build_is_control(const char *text, size_t len);
/* Computes derived data: call once, at the end. */
int build_finish(struct tokenizer *t, struct error *e);

#endif
