/* Tokenizer: byte-pair encoding of both kinds, from tokenizer.json or GGUF: SentencePiece's, from
 * characters with byte fallback, and GPT-2's, from bytes, within the pieces of a pre-tokenizer
 * (pre_tokenizer.h). Owner: the engine. Immutable after load: any thread. Added tokens follow their
 * strip rules (lstrip, rstrip, single_word, normalized). */
#ifndef ENGINE_TEXT_TOKENIZER_H
#define ENGINE_TEXT_TOKENIZER_H

#include "engine/base/error.h"
#include "engine/base/stop.h"
#include "engine/file/weights.h"
#include "engine/text/decoding.h"

#include <stdbool.h>
#include <stddef.h>

struct tokenizer;

int tokenizer_load(struct tokenizer **out, const struct weight_file *f, struct error *e);
void tokenizer_free(struct tokenizer *t);
/* GGUF's names of this kind of tokenizer (tokenizer.ggml.model and, pre_len bytes, .pre).
 * ERR_MODEL: GGUF has no name for its splitting or normalisation. */
int tokenizer_gguf_names(const struct tokenizer *t, const char **model, const char **pre,
                         size_t *pre_len, struct error *e);
int tokenizer_size(const struct tokenizer *t);
/* NULL: none; else one line: the file does not define how text is split. */
const char *tokenizer_notice(const struct tokenizer *t);
/* Bytes of a token: as stored ("▁the" -> "▁the") in SentencePiece's kind, decoded ("Ġthe" -> "
 * the") in the byte-level one; special: an added control token. Points into the tokenizer. */
const char *tokenizer_piece(const struct tokenizer *t, int id, size_t *len, bool *special);
/* The bytes of a token in the middle of a text: at most `size` of them, no NUL; returns how many.
 * 0: no text (a control token, no such id). */
size_t tokenizer_token_text(const struct tokenizer *t, int id, char *out, size_t size);
int tokenizer_find(const struct tokenizer *t, const char *piece, size_t len); /* -1: none */

/* Text (any bytes, NULs too) to ids; parse_special: recognise added special tokens in it. No BOS is
 * added. *ids is mem_* memory, owned by the caller. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool parse_special,
                     int **ids, int *n, struct error *e);

/* The same with a mask: plain (NULL, or len bytes) is non-zero for user text, in which no control
 * token is recognised even if parse_special is set; everything else (merges and stripped blanks
 * across the border) happens as in the whole text. offsets (may be NULL) gets, for each id, the
 * start in text of its piece between added tokens. mem_* memory. stop: may be NULL. */
int tokenizer_encode_masked(const struct tokenizer *t, const char *text, size_t len,
                            bool parse_special, const unsigned char *plain, const struct stop *stop,
                            int **ids, int *n, size_t **offsets, struct error *e);
/* -1: none; add: the model expects it before raw text */
int tokenizer_bos(const struct tokenizer *t, bool *add);
/* The special token that tokenizer.json puts behind a text; -1: none. */
int tokenizer_last(const struct tokenizer *t);

/* Ids to text, byte for byte (a byte token gives its byte, even if that is invalid UTF-8): whole
 * string (mem_*, NUL-terminated, len may be NULL). skip_special omits control tokens. */
int tokenizer_decode(const struct tokenizer *t, const int *ids, int n, bool skip_special,
                     char **text, size_t *len, struct error *e);

/* Streaming: concatenates to tokenizer_decode's text where that is UTF-8. The first space of a text
 * is added by the tokenizer: set at_start to false after init if the tokens continue a text. Bytes
 * are output only as whole code points; a lone invalid byte becomes U+FFFD. */
struct detokenizer {
    const struct tokenizer *tokenizer;
    bool skip_special, at_start;
    struct decoding decoding;
    unsigned char pending[8];
    int n_pending;
};
void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special);
/* Writes at most size-1 bytes + NUL, returns the length; pieces longer than size are truncated at a
 * code point. No allocation. size must be at least 16. */
size_t detokenizer_push(struct detokenizer *d, int id, char *out, size_t size);
/* the rest, invalid bytes as U+FFFD */
size_t detokenizer_finish(struct detokenizer *d, char *out, size_t size);

#endif
