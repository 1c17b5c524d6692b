/* Copies of a session's recurrent state, and of the visible part of its ring buffers, at earlier
 * positions, for rewinding a session. Rows can be truncated; recurrent state cannot, nor can a ring
 * beyond the rows it keeps: the session continues from the nearest earlier copy, and its next turn
 * or evaluation recomputes the tokens in between. Copies are made before messages and the
 * generation prompt, where prompts diverge, and every CHECKPOINT_EVERY tokens (in a prompt, every
 * pass of more than that); they are bounded in bytes and in the number that a whole context needs,
 * and those whose removal leaves the smallest gap are evicted first, earlier positions sooner.
 * Thread: the engine's. Owner: the session; memory is allocated when it opens
 * (checkpoints_footprint), none when computing. Not needed for a model that keeps all rows of every
 * layer. */
#ifndef ENGINE_RUN_CHECKPOINTS_H
#define ENGINE_RUN_CHECKPOINTS_H

#include "engine/base/error.h"
#include "engine/model/hparams.h"
#include "engine/device/state.h"
#include "engine/run/state/kv.h"

#include <stdbool.h>
#include <stddef.h>

#define CHECKPOINT_EVERY 256
#define CHECKPOINTS_MOST 32
#define CHECKPOINTS_LEAST STATE_COPIES_LEAST
/* Limit per session, unless that is fewer than the least number; copies of rings take at most half
 * of the memory that rings save. */
#define CHECKPOINTS_BYTES ((size_t)256 << 20)

struct checkpoints;

/* Bytes of a session's copies; 0: every layer keeps all rows. */
size_t checkpoints_footprint(const struct hparams *hp, const struct state_config *state);
/* kv outlives them. */
int checkpoints_new(struct checkpoints **out, const struct hparams *hp,
                    const struct state_config *state, struct kv *kv, int session, struct error *e);
void checkpoints_free(struct checkpoints *c);
/* The session's state is at pos: makes a copy if a message starts there (mark) or enough tokens lie
 * between it and the previous copy. */
void checkpoints_take(struct checkpoints *c, int pos, bool mark);
/* The tokens from pos on change: later copies are void. */
void checkpoints_cut(struct checkpoints *c, int pos);
/* Discards all copies and returns their memory to the system until the next ones; bytes. */
size_t checkpoints_give_back(struct checkpoints *c);
/* Where a session that is to continue at pos can continue: at pos, if its state is there, else at
 * the nearest earlier copy, which is restored (to the CPU; kv_step copies it further), else at
 * 0. */
int checkpoints_resume(struct checkpoints *c, int pos);
/* The copy made there, kv.all_copies bytes; NULL: none. */
const void *checkpoints_copy(const struct checkpoints *c, int pos);
/* positions of the copies, ascending; returns how many there are (max of them written) */
int checkpoints_list(const struct checkpoints *c, int *pos, int max);

#endif
