/* The speed of light of a model: what a decoded token must read, and how much of the memory's speed
 * a rate reaches. Plain data and pure functions: any thread. Every token reads all attention, the
 * experts chosen (as many as the router takes), router, norms and head once, one row of the
 * embeddings, and what the layers keep of its context; nothing can be faster than those bytes at
 * the memory's read speed. */
#ifndef ENGINE_RUN_ROOFLINE_H
#define ENGINE_RUN_ROOFLINE_H

#include "engine/device/device.h"

struct roofline {
    uint64_t attention, experts, router_norms, head; /* bytes a token reads of each */
    const struct hparams *hp; /* the model's, for what the layers keep (state_read_bytes) */
    enum kv_type kv_k, kv_v;
    /* everything a text may touch, all experts */
    uint64_t all_weights;
    /* a token's multiplications and additions (weights only) */
    double operations;
};

void roofline_init(struct roofline *r, const struct model *m, enum kv_type kv_k, enum kv_type kv_v);
/* Of all layers' state: bytes that one session's tokens read (state_read_bytes). */
uint64_t roofline_state_bytes(const struct roofline *r, int seen, int rows);
/* Bytes a token reads that stands after n_context others. */
uint64_t roofline_token_bytes(const struct roofline *r, int n_context);
/* Bytes that `rows` tokens read which are computed together and stand after pos others, without the
 * head: each expert that any of them chose once, keys and values once. experts: (n_layers, rows,
 * used). */
uint64_t roofline_rows_bytes(const struct roofline *r, const struct model *m, const int *experts,
                             int rows, int pos);
/* Tokens a second at this read speed (bytes a second); 0 when it is unknown. */
double roofline_tokens_per_second(const struct roofline *r, int n_context, double bandwidth);
/* "62 % of memory speed"; "memory swung 46-77 GB/s" where `earlier`, the reading before, lies far
 * from this one (membw_swung); "in cache" where the weights come out of it (membw_cached), so that
 * memory does not bound; "faster than memory" where the share would be clearly more than all of it;
 * "" when nothing is known. Returns out. */
char *roofline_text(const struct roofline *r, int n_context, double tokens_per_second,
                    double earlier, double bandwidth, bool in_cache, char *out, size_t size);

#endif
