/* Lenses: a position of a text computed once more, with all that its token is made of: the residual
 * stream between the layers, what each operator adds to it, the router's scores, and which
 * positions each head of attention looks at. The same bits as the answer's own pass, under any
 * placement. Thread: the engine's, outside a turn. The owner is the caller.
 *
 * Logit lens (nostalgebraist, "interpreting GPT: the logit lens", 2020): final norm and head of the
 * stream before or after any layer.
 *
 * Direct logit attribution (Elhage et al., "A Mathematical Framework for Transformer Circuits",
 * 2021; Wang et al., arXiv:2211.00593, 3.1): the last stream is the sum of what the embedding and
 * all operators added, x = sum p. With the final norm's factor frozen at its value for x, a token's
 * logit is a sum over them as well: RMS: f = 1 / sqrt(mean(x^2) + eps), Layer: f = 1 /
 * sqrt(var(x) + eps) and every part less its mean; part p gives sum_k w[k] * g[k] * f * p[k], w the
 * token's row of the head (over the logits' divisor), g the norm's weight; the norm's and the
 * head's bias give a constant. Norms behind operators are frozen likewise at the factor of what
 * they normed; a layer's scale multiplies all parts before it. A cap of logits is left out: the sum
 * is the logit before it. Not defined where the norm is that of the stream with the operator's
 * output (norms_sum). What the sum lacks of the logit is rounding: activations in 8 bits before the
 * head, the order of sums. */
#ifndef ENGINE_RUN_LENS_H
#define ENGINE_RUN_LENS_H

#include "engine/base/error.h"
#include "engine/run/engine.h"

#include <stdbool.h>
#include <stddef.h>

struct lens {
    int layers, hidden, experts,
        slots;           /* slots: used experts of a layer, the shared one included */
    int heads;           /* the most of a layer's softmax attention; 0: none */
    int positions;       /* room of pattern */
    int position, token; /* of the newest engine_lens */
    /* (layers + 1, hidden): before every layer, and after the last */
    float *stream;
    /* what was added, as x's sum has it: (hidden), (layers, hidden), (layers, slots, hidden). What
     * a token brings for single layers (layer_shape.inputs) counts as its embedding. */
    float *embedding, *mixer, *expert;
    /* (hidden): of norms behind operators, their biases */
    float *constant;
    bool attributes; /* parts are defined (see above) */
    int *chosen;     /* (layers, slots), -1: none; the shared expert last, as in route_job */
    float *weights;  /* (layers, slots) */
    float *scores;   /* (layers, experts): the router's, before softmax, sigmoid and bias */
    /* (layers, heads, positions): attention weights, 0 where a head does not look; layers without
     * softmax attention: zeros. Of heads with a sink the rest goes there */
    float *pattern;
    float *logits; /* (n_vocab): of the position, what the next token is drawn from */
};

/* positions: the longest text. ERR_MEMORY. */
int lens_new(struct lens **out, struct engine *g, int positions, struct error *e);
void lens_free(struct lens *l); /* accepts NULL */
/* Computes id at position pos of the chat's session, which holds the pos tokens before it; it holds
 * pos + 1 then. ERR_USAGE: pos beyond the room or the session; errors of engine_eval. */
int engine_lens(struct engine *g, struct lens *l, int id, int pos, struct error *e);
/* Logits of the stream before layer `layer` (layers: after the last): (n_vocab), by the final norm
 * and the head. */
int engine_lens_logits(struct engine *g, const struct lens *l, int layer, float *logits,
                       struct error *e);
/* A token's logit as a sum: by (1 + layers + layers * slots + 1) values: the embedding's, each
 * mixer's, each expert's, the constant. ERR_USAGE: l->attributes is false; ERR_MODEL: the head's
 * type cannot be read. */
int engine_lens_parts(struct engine *g, const struct lens *l, int id, float *by, struct error *e);
/* The expert that the layer's router would have chosen next (numerics.h, rule 10, with one more);
 * -1: there is none. */
int lens_runner_up(const struct engine *g, const struct lens *l, int layer);
/* The logits that come of the position if in this layer the runner-up has the place and the weight
 * of the chosen expert of least weight; later layers choose by what they get. The session holds
 * pos + 1 tokens then, the last one's state of these: call engine_lens again before it goes on.
 * ERR_USAGE: there is no runner-up, or routing is replayed. */
int engine_lens_swap(struct engine *g, const struct lens *l, int layer, float *logits,
                     struct error *e);
/* A row of the head as F32, (hidden) values, projected into the stream's width; its bias in *bias.
 */
int engine_head_row(struct engine *g, int id, float *out, float *bias, struct error *e);

#endif
