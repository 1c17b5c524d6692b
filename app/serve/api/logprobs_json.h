/* Probabilities of tokens as the APIs write them. dispatcher thread. */
#ifndef APP_SERVE_API_LOGPROBS_JSON_H
#define APP_SERVE_API_LOGPROBS_JSON_H

#include "engine/base/strbuf.h"
#include "engine/run/report/messages.h"
#include "engine/text/tokenizer.h"

#include <jansson.h>

/* The bytes of a token in the middle of a text, or (first) at its start, where some tokenizers drop
 * a leading blank. mem_*, NUL-terminated; NULL: no memory. */
char *token_bytes(const struct tokenizer *t, int id, bool first, size_t *n);
/* The same as a text for JSON: invalid UTF-8 becomes "bytes:\xe2\x80". */
json_t *token_json(const struct tokenizer *t, int id, bool first);
/* The same, written. */
void token_put(struct strbuf *out, const struct tokenizer *t, int id, bool first);
/* Chat's entry: {token, logprob, bytes, top_logprobs}. token: as in the middle of a text, so that
 * its spelling is always the same; bytes: what it adds to this text. */
json_t *logprobs_chat(const struct tokenizer *t, const struct logprobs_event *p, bool first);
/* Completions' entry: {token, logprob, top: {TEXT: LOGPROB}}, where `top` contains the token itself
 * too. p->logprob is NaN if unknown (the first token of a prompt): both are null. */
json_t *logprobs_text(const struct tokenizer *t, const struct logprobs_event *p, bool first);

#endif
