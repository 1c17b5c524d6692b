/* Routed experts that stay on the disk: a bounded cache of slots, each as large as the largest of
 * them. Everything else of the model is in memory. Whoever multiplies with such an expert takes it,
 * waits until it is there, and gives it back: only in between have its matrices data. Same bits as
 * in memory, since the same code packs them (repack.h).
 * What goes when a slot is needed: the expert that is expected to be used last, by how often this
 * conversation used it lately and, among alike ones, by how many layers lie ahead of it.
 * Thread: the engine's (stats too); reading and packing is done by threads beside
 * (expert_reader.h). Owner: the model. NULL for a model whose experts are all in memory: then
 * everything is there. Memory is taken by new alone. Errors: ERR_IO, ERR_VALUE. */
#ifndef ENGINE_MODEL_EXPERT_CACHE_H
#define ENGINE_MODEL_EXPERT_CACHE_H

#include "engine/model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct expert_cache;

enum expert_place {
    EXPERT_HERE,    /* taken; it can be multiplied with */
    EXPERT_COMING,  /* taken; wait for it */
    EXPERT_NO_SLOT, /* not taken: give some back first */
};

struct expert_cache_stats {
    int slots, here;              /* experts that have room, that are there */
    int experts;                  /* of the model, that stay on the disk */
    uint64_t bytes;               /* of memory, buffers included */
    uint64_t hits, misses;        /* experts asked for: there, or not yet */
    uint64_t missed_bytes;        /* of those that were not, as they lie in the file */
    uint64_t guesses, guess_hits; /* read ahead; of those asked for then */
    uint64_t read_bytes, read_ns; /* from the disk; while something was being read */
    uint64_t wait_ns;             /* computing stood still for the disk */
};

/* A pass begins: what is used from now on counts as once more. */
void expert_cache_pass(struct expert_cache *c);
/* Whether it can be multiplied with without waiting; true for those that never leave memory. */
bool expert_cache_has(const struct expert_cache *c, int layer, int expert);
/* Counts it as used (once a pass), keeps it, and begins to read it where it is missing. */
enum expert_place expert_cache_take(struct expert_cache *c, int layer, int expert);
/* Until what was taken is there. It stays taken, also after an error. */
int expert_cache_wait(struct expert_cache *c, int layer, int expert, struct error *e);
/* Whether what was taken is there by now. */
bool expert_cache_came(struct expert_cache *c, int layer, int expert);
void expert_cache_give(struct expert_cache *c, int layer, int expert);
/* Takes and waits, outside of a pass; nothing is counted. */
int expert_cache_hold(struct expert_cache *c, int layer, int expert, struct error *e);
/* These of a layer will probably be asked for next, likeliest first: begins to read them where that
 * takes no slot that is needed. Never waits, never fails. */
void expert_cache_guess(struct expert_cache *c, int layer, const int *experts, int n);
/* All that the layer asks for is known: guesses that were wrong and not begun are dropped. */
void expert_cache_known(struct expert_cache *c);
/* How many experts may be on their way at a time. */
int expert_cache_depth(const struct expert_cache *c);

/* Gives about so many bytes of memory back, of experts that are expected last, never of all that a
 * token needs; or has them again, as far as they were given back. Between passes. How many bytes.
 */
uint64_t expert_cache_shrink(struct expert_cache *c, uint64_t bytes);
uint64_t expert_cache_grow(struct expert_cache *c, uint64_t bytes);

struct expert_cache_stats expert_cache_stats(const struct expert_cache *c); /* NULL: all zero */
/* 1 for every expert that is in memory: (n_layers, n_experts). */
void expert_cache_map(const struct expert_cache *c, uint8_t *out);

struct binding;
/* Inside engine/model only. Takes the jobs that stay on the disk out of the binding. ERR_FIT: so
 * little memory holds not even two experts. */
int expert_cache_new(struct expert_cache **out, struct model *m, struct binding *b,
                     struct error *e);
void expert_cache_free(
    struct expert_cache *c); /* before the weight file is closed; NULL: nothing */
/* What new would take. least: with less a token cannot have its experts side by side. */
uint64_t expert_cache_footprint(const struct model *m, const struct binding *b, uint64_t *least);

#endif
