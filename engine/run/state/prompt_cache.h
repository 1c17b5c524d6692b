/* The folder of a prompt cache: pieces of sessions' state (segment.h) that outlive the process. An
 * index of heads, read at open, lists the pieces; a piece is used only after its checksum was
 * verified. Files are written to a temporary name and renamed (engine/base/cache.h), readable by
 * their owner only, by a background thread, one at a time, so that a slow disk delays nobody:
 * killing the process leaves whole pieces. When the folder exceeds its limit, the least recently
 * used pieces are evicted, including those of other models and programs; using a piece also marks
 * its ancestors as used, so none loses its parent.
 *
 * Owner: the engine, on whose thread everything is called. Another process may use the same folder:
 * pieces it adds are seen at the next open, pieces it removes are recomputed. */
#ifndef ENGINE_RUN_PROMPT_CACHE_H
#define ENGINE_RUN_PROMPT_CACHE_H

#include "engine/run/state/segment.h"
#include "engine/run/report/telemetry.h"

struct prompt_cache;

/* folder is created if missing (0700); key: hash of this model and everything that changes its
 * state. say (may be NULL) gets one line per cause, on the engine's thread. ERR_IO: the folder is
 * unusable, with reason and remedy. */
int prompt_cache_open(struct prompt_cache **out, const char *folder, uint64_t most, const char *key,
                      void (*say)(void *ctx, const char *line), void *say_ctx, struct error *e);
/* Waits for the write in progress. Accepts NULL. */
void prompt_cache_close(struct prompt_cache *c);
/* Whether this piece is in the index. */
bool prompt_cache_has(struct prompt_cache *c, const char *name);
/* Finds the child of where->parent, with the given variant, strengths and copy flag, whose tokens
 * have the longest common prefix with the n ids: its name; returns the length; 0: none. A piece
 * with a copy must match completely. */
int prompt_cache_find(struct prompt_cache *c, const struct segment_place *where, const int *ids,
                      int n, char name[DIGEST_HEX]);
/* Reads and verifies the whole file; *data is the memory *out points into (mem_free). A damaged one
 * is removed and reported. ERR_INPUT, ERR_IO: unusable; ERR_MEMORY. */
int prompt_cache_read(struct prompt_cache *c, const char *name, const struct segment_shape *shape,
                      uint8_t **data, struct segment *out, struct error *e);
/* Marks a piece as used now; call it for ancestors after their descendants. */
void prompt_cache_use(struct prompt_cache *c, const char *name);
/* A write is in progress: no other can start. wait: up to so many milliseconds for it to end. */
bool prompt_cache_busy(struct prompt_cache *c, int wait);
/* False for a minute after a failed write (a full disk). */
bool prompt_cache_writable(struct prompt_cache *c);
/* Takes ownership of data (segment_begin's, filled), seals and writes it; not while busy. */
void prompt_cache_write(struct prompt_cache *c, uint8_t *data, size_t bytes,
                        const struct segment_place *place);
/* Removes the pieces that this process wrote; waits for the write in progress. */
void prompt_cache_withdraw(struct prompt_cache *c);
struct disk_figures prompt_cache_look(struct prompt_cache *c);

#endif
