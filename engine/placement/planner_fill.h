/* Shared by the planners' files: filling a plan within a budget. Private to engine/placement. */
#ifndef ENGINE_PLACEMENT_PLANNER_FILL_H
#define ENGINE_PLACEMENT_PLANNER_FILL_H

#include "engine/placement/planner.h"

struct filler {
    const struct planner_input *in;
    struct plan *p;
    uint64_t left; /* bytes still free on the target */
    bool given;    /* left is from the user's size, not the device's memory */
    /* blocks: on the target or on a device before it; not supported by it; that did not fit */
    int placed, unable, full;
};

void filler_init(struct filler *f, const struct planner_spec *s, const struct planner_input *in,
                 struct plan *p);
bool filler_attention(struct filler *f, int layer);
bool filler_expert(struct filler *f, int layer, int expert);
bool filler_head(struct filler *f);
/* Writes the note about what stayed on the CPU. wanted_all: also report blocks that did not fit
 * (the strategy names blocks, not a size). */
void filler_note(const struct filler *f, const struct planner_spec *s, bool wanted_all,
                 char note[PLANNER_NOTE]);

/* Cells (layer * n_experts + expert) by decreasing use per byte; equal ones from the last layer to
 * the first. Caller frees with mem_*, NULL: out of memory. */
int *planner_cells_by_use(const struct planner_input *in, const double *usage);
const double *planner_usage(const struct planner_input *in); /* NULL if nothing is known */

int planner_fill_cpu(const struct planner_spec *s, const struct planner_input *in, struct plan *p,
                     char note[PLANNER_NOTE]);
int planner_fill_gpu(const struct planner_spec *s, const struct planner_input *in, struct plan *p,
                     char note[PLANNER_NOTE]);
int planner_fill_layers(const struct planner_spec *s, const struct planner_input *in,
                        struct plan *p, char note[PLANNER_NOTE]);
int planner_fill_experts(const struct planner_spec *s, const struct planner_input *in,
                         struct plan *p, char note[PLANNER_NOTE]);
int planner_fill_hot(const struct planner_spec *s, const struct planner_input *in, struct plan *p,
                     char note[PLANNER_NOTE]);
int planner_fill_memory(const struct planner_spec *s, const struct planner_input *in,
                        struct plan *p, char note[PLANNER_NOTE]);
int planner_fill_stream(const struct planner_spec *s, const struct planner_input *in,
                        struct plan *p, char note[PLANNER_NOTE]);
int planner_fill_attention_gpu(const struct planner_spec *s, const struct planner_input *in,
                               struct plan *p, char note[PLANNER_NOTE]);
int planner_fill_experts_gpu(const struct planner_spec *s, const struct planner_input *in,
                             struct plan *p, char note[PLANNER_NOTE]);
int planner_fill_balanced(const struct planner_spec *s, const struct planner_input *in,
                          struct plan *p, char note[PLANNER_NOTE]);
int planner_fill_dynamic(const struct planner_spec *s, const struct planner_input *in,
                         struct plan *p, char note[PLANNER_NOTE]);
int planner_fill_auto(const struct planner_spec *s, const struct planner_input *in, struct plan *p,
                      char note[PLANNER_NOTE]);

#endif
