/* Receipts: everything that determines an answer, so that it can be reproduced byte for byte
 * (--replay). As JSON: `moetop_receipt` 1, `moetop`, `model`, `model_sha256` (of all its bytes),
 * `settings` (the options that affect the text, with the actual seed), `request` (a line of a
 * batch: messages or prompt, and its own settings), `prompt_tokens` and `tokens` (ids),
 * `tokens_sha256` and `text_sha256`, and what computed it: `plan`, `threads`, `kernels`,
 * `sessions`. Main thread. */
#ifndef APP_SETUP_RECEIPT_H
#define APP_SETUP_RECEIPT_H

#include "app/options/options.h"
#include "engine/base/json.h"
#include "engine/base/digest.h"
#include "engine/base/strbuf.h"
#include "engine/run/engine.h"

/* An answer's text, collected from its turn's events. */
struct receipt_text {
    int *ids, n, room;
    struct strbuf text; /* all parts, as they came */
    bool failed;        /* memory ran out */
};

void receipt_text_note(struct receipt_text *t, const struct event *ev);
void receipt_text_clear(struct receipt_text *t); /* keeps its memory */
void receipt_text_release(struct receipt_text *t);

/* Input for a receipt; not kept. */
struct receipt_of {
    const struct engine_info *info;
    const char *plan;
    const char *model_sha256;    /* of receipt_model; NULL: unknown (yet) */
    json_t *settings;            /* of receipt_settings_now */
    const struct dialogue *said; /* NULL: stored elsewhere (receipt_chat.h) */
    const json_t *line;          /* of a batch, with keys besides the messages; NULL: none */
    const int *prompt;           /* ids, n_prompt of them */
    int n_prompt, sessions;
    const struct receipt_text *answer;
};

/* *out belongs to the caller. ERR_MEMORY. */
int receipt_make(const struct receipt_of *r, json_t **out, struct error *e);
/* The options that affect the text, as they are now, with the actual seed; the caller's. NULL: no
 * memory. */
json_t *receipt_settings_now(const struct options *o, const struct engine_info *info,
                             uint64_t seed);
/* The hash of all bytes of the engine's model, computed once if unknown, with a note on standard
 * error. Errors of weights_digest. */
int receipt_model(const struct options *o, const struct engine_info *info, char hex[DIGEST_HEX],
                  struct error *e);
/* A list of {"role", "content", "reasoning_content"}. */
json_t *receipt_messages(const struct message *messages, size_t n);
json_t *receipt_ids(const int *ids, int n); /* ids as a JSON list */
/* Sets the options of a receipt in o, overriding any other source. ERR_INPUT says what is wrong
 * with it; name: its file. */
int receipt_settings(struct options *o, const json_t *receipt, const char *name, struct error *e);
/* Whether one engine can reproduce the answers of both receipts, each with its own sampling. */
bool receipt_same_engine(const json_t *a, const json_t *b);
/* Lower-case SHA-256 of ids (as 32-bit numbers, the lowest byte first), of bytes. */
void receipt_hash_ids(const int *ids, int n, char hex[DIGEST_HEX]);
void receipt_hash_text(const char *text, size_t n, char hex[DIGEST_HEX]);

#endif
