/* Copies of a session's recurrent state, and of what its rings show the next token, at earlier
 * places, for a session that goes back. What grows by rows is cut; a recurrence cannot be, nor a
 * ring further back than it keeps rows: it goes on from the nearest copy before, and what lies
 * between is computed again, by the first turn or evaluation behind. Copies are taken before
 * messages and the generation prompt, where prompts diverge, and every CHECKPOINT_EVERY tokens (of
 * a prompt, every pass of more than that); they are bounded in bytes and by what a whole context
 * asks for so, and those go first that leave the smallest gap, the further back the sooner. Thread:
 * the engine's. Owner: the session; memory is taken when it opens (checkpoints_footprint), none
 * when computing. A model that keeps all rows of every layer needs none of this. */
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
/* Of one session, at most, unless that is fewer than the least; and copies of rings take at most
 * half of what keeping rings saves. */
#define CHECKPOINTS_BYTES ((size_t)256 << 20)

struct checkpoints;

/* Bytes a session's copies take; 0: every layer keeps all rows. */
size_t checkpoints_footprint(const struct hparams *hp, const struct state_config *state);
/* kv outlives them. */
int checkpoints_new(struct checkpoints **out, const struct hparams *hp,
                    const struct state_config *state, struct kv *kv, int session, struct error *e);
void checkpoints_free(struct checkpoints *c);
/* The session's state stands after pos tokens: copied where a message begins (mark) or enough
 * tokens lie between it and the copy before. */
void checkpoints_take(struct checkpoints *c, int pos, bool mark);
/* The tokens from pos on are other ones, or will be: copies beyond are void. */
void checkpoints_cut(struct checkpoints *c, int pos);
/* All copies are void and their memory the system's again, until the next ones are taken; bytes. */
size_t checkpoints_give_back(struct checkpoints *c);
/* Where the session goes on that is to go on at pos: there, if its state stands there, else at the
 * nearest copy before, which is brought back (onto the CPU; kv_step takes it further), else at 0.
 */
int checkpoints_resume(struct checkpoints *c, int pos);
/* The copy that was taken there, kv.all_copies bytes; NULL: there is none. */
const void *checkpoints_copy(const struct checkpoints *c, int pos);
/* places of copies, upwards; how many there are (max of them written) */
int checkpoints_list(const struct checkpoints *c, int *pos, int max);

#endif
