/* A placement plan: which device runs each layer's attention block, each expert and the head.
 * Immutable once made; shared by pointer. Device 0 is always the CPU; device indices are those of
 * the engine's device list (struct engine_info). Owner: whoever made it, freed with plan_free; a
 * plan handed to the engine belongs to the engine. Pure data: any thread. */
#ifndef ENGINE_PLACEMENT_PLAN_H
#define ENGINE_PLACEMENT_PLAN_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define PLAN_NAME 64
#define PLAN_NO_DEVICE 255 /* no device */

/* What a pass computes: a prompt's rows side by side are bound by arithmetic, an answer's tokens
 * one after the other by the memory's speed. Each can have its own plan. */
enum plan_phase { PHASE_TOKENS, PHASE_PROMPT, PLAN_PHASES };

struct plan {
    char name[PLAN_NAME]; /* as the user typed it: "cpu", "hot:600M", a file's name */
    int n_layers, n_experts;
    uint8_t *attention; /* n_layers device indices */
    uint8_t *experts;   /* n_layers * n_experts device indices, layer-major */
    /* the same shape, 1: its weights are streamed to its device, not resident (device.h, stream) */
    uint8_t *streamed;
    uint8_t head;
    /* It says who has which experts, not who must compute them: in a prompt's groups of rows the
     * CPU takes some of a device's when it would wait for it. Of plans that are to be fast, not of
     * those that name a device. */
    uint8_t lends;
};

/* everything on device 0; NULL: no memory */
struct plan *plan_new(const char *name, int n_layers, int n_experts);
struct plan *plan_copy(const struct plan *p);
void plan_free(struct plan *p);
int plan_equal(const struct plan *a, const struct plan *b); /* ignores the name */

/* Number of blocks on another device (or streamed instead of resident) in b than in a; out (may be
 * NULL) gets them by kind. Plans of different shape: -1. */
struct plan_difference {
    int attention, experts, head;
};
int plan_diff(const struct plan *a, const struct plan *b, struct plan_difference *out);
/* whether any block is not on the CPU */
int plan_uses_devices(const struct plan *p);
/* whether any block is on that one */
bool plan_uses(const struct plan *p, int device);

/* Copies places and name into a plan of the same shape. */
void plan_assign(struct plan *to, const struct plan *from);

static inline uint8_t plan_expert(const struct plan *p, int layer, int expert)
{
    assert(layer >= 0 && layer < p->n_layers && expert >= 0 && expert < p->n_experts);
    return p->experts[layer * p->n_experts + expert];
}

#endif
