/* Routed experts that stay on disk: a bounded cache of slots, each as large as the largest of them.
 * Everything else of the model is in memory. To multiply with such an expert, take it, wait until
 * it is loaded, and release it: only in between are its matrices' data valid. Same bits as in
 * memory, since the same code packs them (repack.h). Eviction: the expert expected to be used last,
 * by how often this conversation used it recently and, among equal ones, by the number of layers
 * until its next use. Thread: the engine's (stats too); background threads read and pack
 * (expert_reader.h). Owner: the model. NULL for a model whose experts are all in memory: then
 * everything counts as loaded. Only new allocates memory. Errors: ERR_IO, ERR_VALUE. */
#ifndef ENGINE_MODEL_EXPERT_CACHE_H
#define ENGINE_MODEL_EXPERT_CACHE_H

#include "engine/model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct expert_cache;

enum expert_place {
    EXPERT_HERE,    /* taken and loaded */
    EXPERT_COMING,  /* taken; call wait */
    EXPERT_NO_SLOT, /* not taken: release some first */
};

struct expert_cache_stats {
    int slots, here;              /* capacity in experts; experts loaded */
    int experts;                  /* of the model, on disk */
    uint64_t bytes;               /* of memory, including buffers */
    uint64_t hits, misses;        /* experts taken: loaded, or not yet */
    uint64_t missed_bytes;        /* of those not loaded, in bytes of the file */
    uint64_t guesses, guess_hits; /* prefetched; of those used then */
    uint64_t read_bytes, read_ns; /* from disk; time with reads in progress */
    uint64_t wait_ns;             /* time that computing waited for the disk */
};

/* Starts a pass: uses are counted once per pass. */
void expert_cache_pass(struct expert_cache *c);
/* Whether it is loaded; true for experts that are always in memory. */
bool expert_cache_has(const struct expert_cache *c, int layer, int expert);
/* Counts it as used (once per pass), pins it, and starts reading it if it is missing. */
enum expert_place expert_cache_take(struct expert_cache *c, int layer, int expert);
/* Waits until a taken expert is loaded. It stays taken, also after an error. */
int expert_cache_wait(struct expert_cache *c, int layer, int expert, struct error *e);
/* Whether a taken expert is loaded by now. */
bool expert_cache_came(struct expert_cache *c, int layer, int expert);
void expert_cache_give(struct expert_cache *c, int layer, int expert);
/* Takes and waits, outside of a pass; not counted as used. */
int expert_cache_hold(struct expert_cache *c, int layer, int expert, struct error *e);
/* Prefetch hint: these experts of a layer will probably be used next, likeliest first: starts
 * reading them if no needed slot is evicted for it. Never waits, never fails. */
void expert_cache_guess(struct expert_cache *c, int layer, const int *experts, int n);
/* All experts that the layer uses are known: wrong prefetches that have not started are dropped. */
void expert_cache_known(struct expert_cache *c);
/* How many experts may be read at the same time. */
int expert_cache_depth(const struct expert_cache *c);

/* shrink: frees about so many bytes of memory, of experts expected to be used last, but never all
 * that a token needs; grow: reallocates them, up to what was freed. Between passes. Returns
 * bytes. */
uint64_t expert_cache_shrink(struct expert_cache *c, uint64_t bytes);
uint64_t expert_cache_grow(struct expert_cache *c, uint64_t bytes);

struct expert_cache_stats expert_cache_stats(const struct expert_cache *c); /* NULL: all zero */
/* 1 for every expert in memory: (n_layers, n_experts). */
void expert_cache_map(const struct expert_cache *c, uint8_t *out);

struct binding;
/* Inside engine/model only. Takes over the binding's jobs that stay on disk. ERR_FIT: the memory
 * does not hold two experts. */
int expert_cache_new(struct expert_cache **out, struct model *m, struct binding *b,
                     struct error *e);
void expert_cache_free(
    struct expert_cache *c); /* before the weight file is closed; NULL: nothing */
/* Memory that new would allocate. least: the minimum to hold all experts of a token. */
uint64_t expert_cache_footprint(const struct model *m, const struct binding *b, uint64_t *least);

#endif
