/* Receipts (receipt.h) of the answers of a saved chat. An answer of the transcript has a list of
 * them: one, and another for each time it was continued. They store only what the chat does not: no
 * messages, and of the prompt the number of ids it shares with the session's ids after the previous
 * answer (`prompt_kept`) and the ids after those; ids are one text, numbers separated by a blank.
 * In addition `begun`, the length in bytes of the answer before it was continued, and `stop`, if it
 * was cancelled. An answer that cannot be reproduced has `none`: the reason. Input is untrusted. UI
 * thread or main thread. */
#ifndef APP_SETUP_RECEIPT_CHAT_H
#define APP_SETUP_RECEIPT_CHAT_H

#include "app/common/transcript.h"
#include "engine/base/json.h"

/* The ids in a session: a prompt and its answer. Zeroed: empty. */
struct receipt_ids {
    int *ids;
    size_t n, room;
};
void receipt_ids_release(struct receipt_ids *l);

/* The ids after the last answer of a path; an invalid receipt changes nothing. ERR_INPUT,
 * ERR_MEMORY. */
int receipt_chat_before(const struct transcript_entry *path, size_t n, struct receipt_ids *out,
                        struct error *e);
/* From receipt_make's form to that of a chat, relative to `before`. ERR_MEMORY. */
int receipt_chat_pack(json_t *receipt, const struct receipt_ids *before, struct error *e);
/* All receipts of a chat, those of other branches too, each complete again, appended to list; each
 * has `where` ("message 4") and `said`, the bytes of its answer in the chat. ERR_INPUT says what is
 * wrong, ERR_MEMORY. */
int receipt_chat_all(const struct transcript *t, json_t *list, struct error *e);

#endif
