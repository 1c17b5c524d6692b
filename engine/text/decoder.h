/* The decoder of a tokenizer: the ordered steps that turn tokens into text (tokenizer_data.h), as
 * one incremental machine that outputs bytes as soon as no later token can change them. It serves a
 * whole text, a stream and a single token alike, so that they cannot differ. Allocates nothing. Any
 * thread; a struct decoding belongs to one. The steps are those of Hugging Face's `tokenizers`,
 * which applies them to a whole list. */
#ifndef ENGINE_TEXT_DECODER_H
#define ENGINE_TEXT_DECODER_H

#include "engine/text/tokenizer_data.h"

/* Output callback. */
struct decode_sink {
    void (*put)(void *ctx, const char *text, size_t n);
    void *ctx;
};

/* at_start: no token came before; else the tokens continue a text. */
void decoding_begin(struct decoding *d, const struct tokenizer *t, bool at_start);
/* One token, an id of the tokenizer's. */
void decoding_token(struct decoding *d, const struct tokenizer *t, int id,
                    const struct decode_sink *out);
/* No more tokens: whole: the text ends here; else held bytes are left alone. */
void decoding_end(struct decoding *d, const struct tokenizer *t, bool whole,
                  const struct decode_sink *out);

#endif
