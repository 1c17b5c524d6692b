/* Receipts (receipt.h) of the answers of a saved chat. An answer of the transcript has a list of
 * them: one, and one more each time it was continued. There they say only what the chat does not
 * say already: no messages, and of the prompt how many ids it shares with what stood there when the
 * answer before it had ended (`prompt_kept`) and the ids behind them; ids are one text, numbers
 * with a blank between. Beside them stand `begun`, the bytes of the answer that were there before,
 * and `stop`, where it was cancelled. An answer that cannot be derived has `none`: why. What is
 * read is hostile like any file. UI thread or main thread. */
#ifndef APP_SETUP_RECEIPT_CHAT_H
#define APP_SETUP_RECEIPT_CHAT_H

#include "app/common/transcript.h"
#include "engine/base/json.h"

/* What stands in a session: a prompt and its answer. Zeroed: nothing. */
struct receipt_ids {
    int *ids;
    size_t n, room;
};
void receipt_ids_release(struct receipt_ids *l);

/* What stood there after the last answer of a path; a receipt that is none changes nothing.
 * ERR_INPUT, ERR_MEMORY. */
int receipt_chat_before(const struct transcript_entry *path, size_t n, struct receipt_ids *out,
                        struct error *e);
/* From receipt_make's form to that of a chat, after `before`. ERR_MEMORY. */
int receipt_chat_pack(json_t *receipt, const struct receipt_ids *before, struct error *e);
/* All receipts of a chat, also of what stands aside, each whole again, appended to list; each has
 * `where` ("message 4") and `said`, the bytes of the chat that are its answer. ERR_INPUT names what
 * is wrong, ERR_MEMORY. */
int receipt_chat_all(const struct transcript *t, json_t *list, struct error *e);

#endif
