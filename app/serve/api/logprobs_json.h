/* Probabilities of tokens as the APIs write them. dispatcher thread. */
#ifndef APP_SERVE_API_LOGPROBS_JSON_H
#define APP_SERVE_API_LOGPROBS_JSON_H

#include "engine/base/strbuf.h"
#include "engine/run/report/messages.h"
#include "engine/text/tokenizer.h"

#include <jansson.h>

/* The bytes of a token in the middle of a text, or (first) at its beginning, where some tokenizers
 * drop a blank. mem_*, NUL-terminated; NULL: no memory. */
char *token_bytes(const struct tokenizer *t, int id, bool first, size_t *n);
/* The same as a text that JSON can hold: bytes that are no UTF-8 become "bytes:\xe2\x80". */
json_t *token_json(const struct tokenizer *t, int id, bool first);
/* The same, written. */
void token_put(struct strbuf *out, const struct tokenizer *t, int id, bool first);
/* Chat's entry: {token, logprob, bytes, top_logprobs}. token: as in the middle of a text, so that
 * it is always spelled the same; bytes: what it adds to this one. */
json_t *logprobs_chat(const struct tokenizer *t, const struct logprobs_event *p, bool first);
/* Completions' entry: {token, logprob, top: {TEXT: LOGPROB}}, where `top` holds the token itself
 * too. p->logprob is a NaN where nothing is known (the first token of a prompt): both are null. */
json_t *logprobs_text(const struct tokenizer *t, const struct logprobs_event *p, bool first);

#endif
