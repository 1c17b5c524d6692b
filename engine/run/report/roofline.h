/* Roofline of a model: the bytes a decoded token must read, and what share of the memory bandwidth
 * a rate reaches. Plain data and pure functions: any thread. Every token reads all attention, the
 * chosen experts (as many as the router takes), router, norms and head once, one row of the
 * embeddings, and the layers' state of its context; nothing can be faster than reading those bytes
 * at full memory bandwidth. */
#ifndef ENGINE_RUN_ROOFLINE_H
#define ENGINE_RUN_ROOFLINE_H

#include "engine/device/device.h"

struct roofline {
    uint64_t attention, experts, router_norms, head; /* bytes of each that a token reads */
    const struct hparams *hp; /* the model's, for the layers' state (state_read_bytes) */
    enum kv_type kv_k, kv_v;
    /* all weights that any text may read, with all experts */
    uint64_t all_weights;
    /* multiplications and additions per token (weights only) */
    double operations;
};

void roofline_init(struct roofline *r, const struct model *m, enum kv_type kv_k, enum kv_type kv_v);
/* Bytes of all layers' state that one session's tokens read (state_read_bytes). */
uint64_t roofline_state_bytes(const struct roofline *r, int seen, int rows);
/* Bytes that the token after n_context others reads. */
uint64_t roofline_token_bytes(const struct roofline *r, int n_context);
/* Bytes that `rows` tokens computed together after pos others read, without the head: each expert
 * that any of them chose once, keys and values once. experts: (n_layers, rows, used). */
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
