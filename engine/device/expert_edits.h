/* Edits of a model's routing, for studying what experts do: an expert that is off is not there for
 * its router (num_route_without), a factor multiplies the weight that the router's rule gave it,
 * a swap lets another expert compute what it was chosen for, with that weight. An object is
 * immutable once it is shared; references are counted atomically, so that turns carry it from one
 * thread to another. Layers and experts are numbered from 0, as everywhere. */
#ifndef ENGINE_DEVICE_EXPERT_EDITS_H
#define ENGINE_DEVICE_EXPERT_EDITS_H

#include "engine/base/error.h"
#include "engine/model/hparams.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPERT_EDITS_LINES 4096 /* most lines of a file or a request */

struct expert_edits {
    int refs, layers, experts; /* refs: atomic; experts: most of a layer */
    int n;                     /* experts that are off, weighted or swapped */
    uint64_t hash;             /* of what they do, not 0; its values are written to disk */
    char *text;                /* lines that make them again, "; " between them */
    bool *touched;             /* (layers) */
    /* (layers, experts) each; becomes: a permutation of every layer's experts */
    uint8_t *off;
    float *factor;
    uint16_t *becomes;
};

/* The lines, in their order: "off L17/E9,E3", "only L17/E9,E3" (all others of the layer are off),
 * "weight L17/E9 0.5", "swap L17 E3 E9", "on L17/E9" (undoes what was done to it), "on L17",
 * "on". L3-7 and L* name several layers. from: edits to go on from, or NULL. *out NULL: nothing is
 * edited. ERR_USAGE names the line and what the model has; ERR_MEMORY. */
int expert_edits_read(struct expert_edits **out, const struct expert_edits *from,
                      const struct hparams *hp, const char *const *lines, int n, struct error *e);
struct expert_edits *expert_edits_share(struct expert_edits *x); /* NULL gives NULL */
void expert_edits_free(struct expert_edits *x);                  /* drops a reference */
bool expert_edits_equal(const struct expert_edits *a, const struct expert_edits *b);

static inline size_t expert_edits_at(const struct expert_edits *x, int layer, int expert)
{
    return (size_t)layer * (size_t)x->experts + (size_t)expert;
}

/* NULL: the layer is as the model was made. */
static inline const struct expert_edits *expert_edits_of(const struct expert_edits *x, int layer)
{
    return x && x->touched[layer] ? x : NULL;
}

/* Whether the cell is off, weighted or swapped. */
bool expert_edits_marks(const struct expert_edits *x, int layer, int expert);

#endif
