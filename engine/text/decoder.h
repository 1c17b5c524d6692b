/* The decoder of a tokenizer: the ordered steps by which tokens become text (tokenizer_data.h), as
 * one machine that takes token after token and hands on bytes as soon as no later token can change
 * them. It serves a whole text, a stream and a single token alike, so that they cannot differ.
 * Allocates nothing. Any thread; a struct decoding belongs to one. What each step means is said by
 * Hugging Face's `tokenizers`, which runs them over a whole list. */
#ifndef ENGINE_TEXT_DECODER_H
#define ENGINE_TEXT_DECODER_H

#include "engine/text/tokenizer_data.h"

/* Where the bytes go. */
struct decode_sink {
    void (*put)(void *ctx, const char *text, size_t n);
    void *ctx;
};

/* at_start: no token came before; else the tokens continue a text. */
void decoding_begin(struct decoding *d, const struct tokenizer *t, bool at_start);
/* One token, an id of the tokenizer's. */
void decoding_token(struct decoding *d, const struct tokenizer *t, int id,
                    const struct decode_sink *out);
/* No more tokens: whole says that the text ends here, else what was held back stays as it is. */
void decoding_end(struct decoding *d, const struct tokenizer *t, bool whole,
                  const struct decode_sink *out);

#endif
