/* The folder of a prompt cache: pieces of sessions' state (segment.h) that outlive the program.
 * What is there is known by an index of heads, read when it is opened; a piece is believed when
 * every byte of it was proved. Files are written aside and renamed (engine/base/cache.h), readable
 * for their owner alone, by a thread of its own, one at a time, so that a slow disk holds nobody
 * up: a kill leaves whole pieces. Those used longest ago go first when the folder outgrows its
 * bound, other models' and other programs' too; a piece is used whenever one behind it is, so none
 * loses what it stands on.
 *
 * Owner: the engine, on whose thread everything is called. Another process may use the same folder:
 * what it adds is seen by the next opening, what it removes is missed and computed again. */
#ifndef ENGINE_RUN_PROMPT_CACHE_H
#define ENGINE_RUN_PROMPT_CACHE_H

#include "engine/run/state/segment.h"
#include "engine/run/report/telemetry.h"

struct prompt_cache;

/* folder is made where it is missing (0700); key: of this model and everything that changes its
 * state. say (may be NULL) tells one line, once a cause, on the engine's thread. ERR_IO: the folder
 * cannot be used, why and what to do. */
int prompt_cache_open(struct prompt_cache **out, const char *folder, uint64_t most, const char *key,
                      void (*say)(void *ctx, const char *line), void *say_ctx, struct error *e);
/* When what is being written is there. Accepts NULL. */
void prompt_cache_close(struct prompt_cache *c);
/* Whether this piece is known. */
bool prompt_cache_has(struct prompt_cache *c, const char *name);
/* Of the pieces behind where->parent, of its variant and strengths and with a copy or without, the
 * one whose tokens agree longest with the n ids: its name, and how many tokens do; 0: none. A piece
 * with a copy agrees as a whole or not at all. */
int prompt_cache_find(struct prompt_cache *c, const struct segment_place *where, const int *ids,
                      int n, char name[DIGEST_HEX]);
/* The whole file, proved; *data is what *out points into (mem_free). A damaged one is removed and
 * told. ERR_INPUT, ERR_IO: it is of no use; ERR_MEMORY. */
int prompt_cache_read(struct prompt_cache *c, const char *name, const struct segment_shape *shape,
                      uint8_t **data, struct segment *out, struct error *e);
/* A piece was used now; ancestors are to be used after those behind them. */
void prompt_cache_use(struct prompt_cache *c, const char *name);
/* Another piece is on its way: none can be written. wait: up to so many milliseconds until that is
 * over. */
bool prompt_cache_busy(struct prompt_cache *c, int wait);
/* For a minute after one could not be written nothing is tried (a full disk). */
bool prompt_cache_writable(struct prompt_cache *c);
/* Takes data (segment_begin's, filled), seals and writes it; not while busy. */
void prompt_cache_write(struct prompt_cache *c, uint8_t *data, size_t bytes,
                        const struct segment_place *place);
struct disk_figures prompt_cache_look(struct prompt_cache *c);

#endif
