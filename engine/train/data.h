/* Training data: JSON Lines, each a conversation ("messages"), a text and its continuation
 * ("prompt", "completion"), or ids ("input_ids", "loss_mask"). Owner: the trainer. Read once by the
 * thread that trains, immutable afterwards. */
#ifndef ENGINE_TRAIN_DATA_H
#define ENGINE_TRAIN_DATA_H

#include "engine/base/error.h"
#include "engine/base/stop.h"
#include "engine/model/model.h"

#include <stdint.h>

struct train_line {
    int n;
    int *ids;
    uint8_t *mask; /* n; not 0: that id is a target, predicted from those before it */
    int learned;   /* number of targets */
    int number;    /* in its file, from 1 */
};

struct train_data {
    char *path;
    struct train_line *lines;
    int n, longest;
    uint64_t hash; /* of ids and masks */
};

/* context: most ids of a line. Conversations and texts need the model's tokenizer, conversations
 * its chat template. Targets of a conversation: every assistant's message with the token that ends
 * it; of a completion: all of it and the end of the text. ERR_INPUT names the file, the line and
 * the problem: no JSON, missing keys, ids past the vocabulary, no targets, too long. ERR_IO,
 * ERR_MODEL (no tokenizer), ERR_MEMORY, ERR_CANCELLED. */
int train_data_read(struct train_data *out, const char *path, const struct model *m, int context,
                    const struct stop *stop, struct error *e);
void train_data_release(struct train_data *d);
/* Tokens of the `batch` longest lines: an upper bound for a batch. */
int train_data_most(const struct train_data *d, int batch);

#endif
