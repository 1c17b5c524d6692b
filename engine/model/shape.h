/* Shape of a layer: a mixer (which combines tokens), a feed-forward, and the positions of norms. A
 * family fills one shape per layer (families/); all other code depends on the shape, never on a
 * family's name. A kind that no kernel computes is refused when the model is opened
 * (model_computable), never computed as something else. Plain data, immutable after load. */
#ifndef ENGINE_MODEL_SHAPE_H
#define ENGINE_MODEL_SHAPE_H

#include <math.h>
#include <stdbool.h>

enum mixer_kind {
    MIXER_ATTENTION, /* softmax over keys, heads sharing them in groups */
    MIXER_NONE,
    MIXER_MLA,               /* attention over a latent row (DeepSeek-V2, arXiv:2405.04434) */
    MIXER_SHORT_CONVOLUTION, /* gated, LFM2 */
    MIXER_DELTA_NET,         /* gated delta rule, arXiv:2412.06464 */
    MIXER_KIMI_DELTA,        /* the same with a decay per channel, arXiv:2510.26692 */
    MIXER_LIGHTNING,         /* linear attention with a fixed decay per head, arXiv:2401.04658 */
    MIXER_MAMBA2,            /* arXiv:2405.21060 */
    MIXER_MAMBA1,            /* arXiv:2312.00752, its inputs normed (Jamba, arXiv:2403.19887) */
    /* attention over a window of shared keys and values, and rows that stand for blocks of tokens
     * before (DeepSeek-V4's report, 2.3) */
    MIXER_COMPRESSED,
    /* attention whose queries and keys are mixed over tokens by two convolutions, and half of whose
     * values come from the token before (compressed convolutional attention, arXiv:2510.04476) */
    MIXER_CONVOLVED,
    MIXER_KINDS
};

/* How q and k are normed before they are rotated. */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WHOLE };

/* Rotary: pairs (i, i + dims/2), or (2i, 2i + 1); or none; or the first dims/2 of the pairs
 * (i, i + key_dim/2), whose frequencies are those of a whole head (Gemma 4). */
enum rope_pairing { ROPE_HALVES, ROPE_PAIRS, ROPE_NONE, ROPE_PROPORTIONAL, ROPE_PAIRINGS };

/* Where the gates of gated attention come from: parts of q's projection, or a matrix of their own
 * (layer_weights.z), with a gate for each value of each head, or one a head. GATE_ROUTED: no gates
 * but weights of a router (layer_weights.head_router): query head h belongs to expert h mod
 * mixer_shape.experts, the weights of a token's experts are a softmax over the chosen ones, and
 * other heads give 0 (mixture of attention heads, arXiv:2210.05144; JetMoE, arXiv:2404.07413). */
enum gate_form { GATE_WITHIN, GATE_APART, GATE_HEADS, GATE_ROUTED };

/* Embeddings of n-grams (Qwen4; as in Engram, arXiv:2601.07372): before its mixer a
 * layer's streams gain what a table has for the last tokens, by hashes of 2 to `size` of them (rule
 * 21 of numerics.h). Their part of the layer's state: the newest tokens and the inputs of a
 * convolution over `taps` rows, each `size` tokens apart. */
#define NGRAM_SIZE_MOST 8
#define NGRAM_HASHES_MOST 64
#define NGRAM_TAPS_MOST 16

struct ngram_shape {
    int size;     /* the longest; 0: there are none */
    int each;     /* hashes, and so rows of the table, of each length */
    int width;    /* values of all a token's rows together */
    int taps;     /* of the convolution */
    int channels; /* of it: the values of all streams */
    int end;      /* the token that no n-gram reaches across */
};

/* Rows of the table that a token has. */
static inline int ngram_hashes(const struct ngram_shape *s)
{
    return s->size ? (s->size - 1) * s->each : 0;
}

/* Rows before a token's own that its convolution sees. */
static inline int ngram_before(const struct ngram_shape *s)
{
    return s->size ? (s->taps - 1) * s->size : 0;
}

/* Values of a row that its state takes: the convolution's inputs and the token. */
static inline int ngram_columns(const struct ngram_shape *s)
{
    return s->size ? s->channels + 1 : 0;
}

/* Values of the state: rows of inputs, then tokens, the oldest first. */
static inline int ngram_state(const struct ngram_shape *s)
{
    return s->size ? ngram_before(s) * s->channels + s->size - 1 : 0;
}

struct mixer_shape {
    enum mixer_kind kind;
    /* Recurrent kinds: heads are those of the values, kv_heads those of the keys. A short
     * convolution and Mamba 1 have one head of all channels. */
    int heads, kv_heads;
    int key_dim, value_dim; /* of a head; value_dim 0: as key_dim */
    int rope_dims;          /* rotated ones of a head; 0: none */
    enum rope_pairing rope;
    bool second_rope; /* uses the table of hparams.second_rope instead of the common one */
    int window;       /* keys a query sees, itself included; 0: all */
    bool chunked;     /* only those of its own stretch of `window` positions (Llama 4) */
    float scale;      /* of scores; 0: 1/sqrt(key_dim) */
    /* queries at position p are multiplied by 1 + growth * ln(1 + floor((p + ahead) / period));
     * growth 0: by 1 (Llama 4's and Ministral 3's attention temperature; ahead is 1 in Llama 4) */
    float scale_growth;
    int scale_period, scale_ahead;
    bool bias; /* of q, k and v */
    enum qk_norm qk_norm;
    bool qk_norm_turned; /* QK_NORM_HEAD: behind the rotation, not before it (Hunyuan) */
    /* QK_NORM_HEAD: each weight of q's norm where the file has none, k's are 1; 0: it has */
    float q_norm_unsaid;
    bool sinks; /* a learned score per head that only enters the softmax's sum */
    /* the output times sigmoid of a gate, or softplus of it; MLA: sigmoid of one a head, always */
    bool gated, gate_softplus;
    bool gate_sigmoid; /* delta net: its output times sigmoid of the gate, not silu (Qwen4) */
    enum gate_form gate;
    int experts, used;    /* GATE_ROUTED: heads / kv_heads, and those of them that a token uses */
    bool values_are_keys; /* before any norm and rotation */
    bool value_norm;      /* each head of the values is RMS-normed, without weights */
    float value_factor;   /* values are multiplied by it (MiMo-V2); 0: by 1 */
    /* Attention reads the rows of an earlier layer of the same heads, 1 + its number, and has no
     * keys and values of its own (Gemma 3n and 4); 0: it has. lends: later layers read this one's.
     */
    int keys_of;
    bool lends;
    bool learned_positions; /* no rotation: a table is added to the embeddings */
    /* MLA: q through a latent row of q_rank (0: directly), the cached row of kv_rank and the
     * rotated rope_dims; key_dim is the size of a head of q, its last rope_dims rotated. eps of
     * both latent rows' norms. */
    int q_rank, kv_rank;
    float latent_eps;
    float latent_factor; /* of the normed latent row of keys and values (LongCat); 0: 1 */
    /* MLA that sees only some keys (DeepSeek Sparse Attention, DeepSeek-V3.2-Exp's report; rule 16
     * of numerics.h): at most index_top of them, 0: all. A lightning indexer of index_heads heads
     * of index_dim values chooses them; 0 heads: the choice is that of the last layer before with
     * an indexer (arXiv:2603.12201). The first rope_dims values of its heads are rotated so. */
    int index_heads, index_dim, index_top;
    /* Attention over chosen blocks (QSA, Qwen4): a key of the indexer stands for so many positions,
     * of which as many blocks are chosen as hold index_top; a row's last, incomplete block is seen
     * as well. 0: a key stands for its position */
    int index_ratio;
    enum rope_pairing index_rope;
    /* MIXER_COMPRESSED (rule 20 of numerics.h): one head of key_dim values is key and value of all;
     * q comes through a row of q_rank. A finished block of so many tokens has a row of its own, 0:
     * there are none, only the window; overlap: it is made of the block before too, and the indexer
     * chooses index_top of all; else a row sees every finished block. The output goes through
     * out_groups groups of heads, each to out_rank values */
    int block, out_groups, out_rank;
    bool overlap;
    /* recurrent kinds: taps of the convolution, groups that share B and C (Mamba2), state width */
    int taps, groups, state;
    int head_taps; /* MIXER_CONVOLVED: of the second convolution, each head's own (taps: the first)
                    */
    bool tiled;    /* value head h uses key head h mod kv_heads, not h / (heads / kv_heads) */
    float decay_bound; /* Kimi: of the decay's logarithm; 0: none, softplus as a delta net */
    /* Kimi: decays and gates through a row of so many values; 0: directly. Mamba 1: time steps */
    int a_rank, z_rank;
    struct ngram_shape ngrams; /* of the layer, in this mixer's state: recurrent kinds */
};

enum ffn_kind {
    FFN_ROUTED,
    FFN_DENSE,
    FFN_NONE,
    /* in parallel, each with its own norm before and after, a third one for the router; then added
     * (Gemma 4). The dense part is the shared expert. */
    FFN_DENSE_AND_ROUTED,
    FFN_KINDS
};

enum activation {
    ACTIVATION_SILU,           /* silu(gate) * up */
    ACTIVATION_GELU,           /* tanh form; gate * up */
    ACTIVATION_CLAMPED_SWIGLU, /* gpt-oss; clamped at ffn_shape.limit */
    ACTIVATION_RELU2,          /* relu(x)^2, without a gate */
    ACTIVATION_RELU,           /* without a gate */
    ACTIVATION_GELU_PLAIN,     /* tanh form, without a gate */
    ACTIVATION_REGLU,          /* relu(gate) * up */
    ACTIVATION_CLAMPED_SILU,   /* silu(gate, clamped from above) * up, clamped; ffn_shape.limit */
    ACTIVATION_BOUNDED_SILU,   /* Step 3.5: min(silu(gate), limit) * clamp(up, -limit, limit) */
    ACTIVATIONS
};

/* Whether there is a gate with up: without one an expert has two matrices. */
static inline bool activation_gated(enum activation a)
{
    return a == ACTIVATION_SILU || a == ACTIVATION_GELU || a == ACTIVATION_CLAMPED_SWIGLU ||
           a == ACTIVATION_REGLU || a == ACTIVATION_CLAMPED_SILU || a == ACTIVATION_BOUNDED_SILU;
}

/* How experts and weights follow from scores (numerics.h, rule 10). */
enum router_kind {
    ROUTER_SPARSEMIXER,
    ROUTER_SOFTMAX, /* softmax over all, the k largest; normalised: their weights sum to 1 */
    ROUTER_SIGMOID, /* the same with sigmoid */
    ROUTER_ROOT,    /* the same with the square root of softplus (DeepSeek-V4) */
    ROUTER_KINDS
};

struct router_shape {
    enum router_kind kind;
    float jitter; /* SparseMixer */
    bool normalised;
    /* scores are of the stream before the mixer, without a norm: a layer's experts are known before
     * its mixer (SmallThinker, arXiv:2507.20984) */
    bool early;
    bool on_input;           /* routed experts' inputs are weighted, not their outputs (Llama 4) */
    float factor;            /* weights times this; 0: 1 */
    float floor;             /* added to the sum that the weights are divided by */
    bool choice_bias;        /* added to the scores, only for the choice */
    bool expert_scales;      /* weights times a factor of their expert, after all else */
    int groups, groups_used; /* experts are chosen from the best groups; 0: from all */
    /* the experts follow from the token alone, by a table; scores only weight them (hash layers,
     * arXiv:2106.04426; DeepSeek-V4) */
    bool by_token;
    /* So many more than the layer's experts are chosen from, numbered after those: they have no
     * matrices and give what they get (zero-computation experts, LongCat-Flash, arXiv:2509.01322)
     */
    int identities;
    bool nothing; /* identities give zeros instead (a depth of choice, ZAYA, arXiv:2511.17127) */
    /* Scores come from a row of so many values by three matrices; the row is one matrix of the
     * input, plus that of the layer before times weights (ZAYA); 0: from the input directly */
    int row;
};

/* Factor of the shared expert's output. */
enum shared_gate { SHARED_PLAIN, SHARED_SIGMOID };

struct ffn_shape {
    enum ffn_kind kind;
    int experts, used; /* routed ones; 0 in a dense layer */
    int shared;        /* 1: one of shared_width is always used; also in a dense layer */
    /* of one routed expert; of the shared one, the dense layer or an adjugate expert */
    int width, shared_width;
    /* routed experts in a row that have one further expert in common, an adjugate one: it is
     * computed once, weighted with the sum of their weights times shared_factor (GroveMoE,
     * arXiv:2508.07785); there is no shared one then; 0: none */
    int grouped;
    enum shared_gate shared_gate;
    float shared_factor; /* SHARED_PLAIN: of the shared expert's output; 0: 1 */
    enum activation activation;
    float limit, shared_limit; /* of a clamped activation; of the shared expert, 0: the same */
    bool bias;                 /* every matrix has one, the router's too */
    struct router_shape router;
};

enum norm_kind {
    NORM_LAYER,
    NORM_RMS,
    NORM_RMS_ONE, /* the weight is 1 + the stored one */
    NORM_KINDS
};

struct norms_shape {
    enum norm_kind kind;
    float eps, eps_after; /* eps_after: of norms after an operator; 0: eps */
    /* the operator; both: its output is normed as well (sandwich, Gemma); only after: the sum is,
     * and there is none before the head (OPT-350m); outputs: with after and without before, only
     * the operator's output is normed (OLMo 2) */
    bool before, after, outputs;
};

/* Whether the norm after an operator is that of its sum with the stream. */
static inline bool norms_sum(const struct norms_shape *s)
{
    return s->after && !s->before && !s->outputs;
}

/* Whether the last layer's output is normed: with norms after the sums it has been, and an operator
 * without norms, or the head, reads what hyper-connections give. */
static inline bool norms_last(const struct norms_shape *s)
{
    return s->before || s->outputs;
}

/* The norms after the operators. */
static inline struct norms_shape norms_behind(const struct norms_shape *s)
{
    struct norms_shape behind = *s;

    behind.eps = s->eps_after != 0.0f ? s->eps_after : s->eps;
    return behind;
}

/* Shortcut-connected experts (arXiv:2404.05019; LongCat-Flash): what a layer's routed experts give
 * is left beside the stream, and enters it at the end of the next layer. What is always used (the
 * dense part, as the shared expert) enters at once. */
enum shortcut { SHORTCUT_NONE, SHORTCUT_LEAVES, SHORTCUT_ENTERS };

struct layer_shape {
    struct mixer_shape mixer;
    struct ffn_shape ffn;
    struct norms_shape norms;
    enum shortcut shortcut;
    bool scaled; /* the residual stream is multiplied by one number after the layer */
    /* where an operator's output enters the stream both are first shifted, then multiplied, by
     * learned values of each column (ZAYA) */
    bool weighted;
    /* the feed-forward has the mixer's input, normed by the same norm; the stream is the sum of
     * both outputs and itself (Wang and Komatsuzaki, GPT-J, 2021; Cohere) */
    bool parallel;
    /* Values that each token brings for this layer alone (per-layer embeddings, Gemma 3n and 4),
     * after the feed-forward: the stream gains norm(out(activation(gate(x)) * values)). All layers
     * have as many; 0: none */
    int inputs;
};

/* Whether the stream before the mixer is seen after it. */
static inline bool shape_keeps_stream(const struct layer_shape *s)
{
    return s->parallel || s->ffn.router.early;
}

/* A dense layer of which only the gates above a limit count: so many deviations from their mean
 * (Gemma 3n). */
static inline bool shape_sparse(const struct ffn_shape *s)
{
    return s->kind == FFN_DENSE && s->activation == ACTIVATION_GELU && s->limit != 0.0f;
}

/* Weight of a shared expert without a gate. */
static inline float shape_shared_factor(const struct ffn_shape *s)
{
    return s->shared_factor != 0.0f ? s->shared_factor : 1.0f;
}

/* Limit of a clamped activation of expert `expert` of a layer. */
static inline float shape_limit(const struct ffn_shape *s, int expert)
{
    return expert >= s->experts && s->shared_limit != 0.0f ? s->shared_limit : s->limit;
}

/* Whether one limit holds for all experts of a layer. */
static inline bool shape_one_limit(const struct ffn_shape *s)
{
    return !s->experts || !s->shared || shape_limit(s, 0) == shape_limit(s, s->experts);
}

/* What the i-th of a token's experts is weighted with behind it. */
static inline float shape_output_weight(const struct ffn_shape *s, int i, float weight)
{
    return s->router.on_input && i < s->used ? 1.0f : weight;
}

/* Heads and width of a recurrence's input and output: keys, or B and C. */
static inline bool shape_state_space(const struct mixer_shape *s)
{
    return s->kind == MIXER_MAMBA1 || s->kind == MIXER_MAMBA2;
}

static inline int shape_key_heads(const struct mixer_shape *s)
{
    return shape_state_space(s) ? s->groups : s->kv_heads;
}

static inline int shape_state_keys(const struct mixer_shape *s)
{
    return shape_state_space(s) ? s->state : s->key_dim;
}

/* Mamba 1: what its first thin matrix makes of the convolution's outputs: the row that time steps
 * come from, B and C. */
static inline int shape_selection(const struct mixer_shape *s)
{
    return s->a_rank + 2 * s->state;
}

/* Inputs per token of a mixer's convolution; 0: it has none. */
static inline int shape_channels(const struct mixer_shape *s)
{
    int values = s->heads * s->value_dim;

    return !s->taps                     ? 0
           : s->kind == MIXER_CONVOLVED ? (s->heads + s->kv_heads) * s->key_dim
           : s->kind == MIXER_SHORT_CONVOLUTION || s->kind == MIXER_MAMBA1
               ? values
               : values + 2 * shape_key_heads(s) * shape_state_keys(s);
}

/* Its state is one block of fixed size, without rows. */
static inline bool shape_recurrent(const struct mixer_shape *s)
{
    return s->kind == MIXER_SHORT_CONVOLUTION || s->kind == MIXER_DELTA_NET ||
           s->kind == MIXER_KIMI_DELTA || s->kind == MIXER_LIGHTNING || shape_state_space(s);
}

const char *shape_mixer_word(enum mixer_kind kind);
const char *shape_ffn_word(enum ffn_kind kind);
const char *shape_activation_word(enum activation activation);
const char *shape_router_word(enum router_kind kind);
const char *shape_norm_word(enum norm_kind kind);
const char *shape_rope_word(enum rope_pairing pairing);
/* What no kernel computes yet, in words; NULL: all is computed. */
const char *shape_unsupported(const struct layer_shape *s);

/* The factor of scores: rule 7 of numerics.h, rounded once. */
static inline float shape_score_scale(const struct mixer_shape *s)
{
    return s->scale > 0.0f ? s->scale : (float)(1.0 / sqrt((double)s->key_dim));
}

/* Per head. */
static inline int shape_value_dim(const struct mixer_shape *s)
{
    return s->value_dim ? s->value_dim : s->key_dim;
}

/* Of scores of a query at this position. */
static inline float shape_score_scale_at(const struct mixer_shape *s, int pos)
{
    float scale = shape_score_scale(s);

    return s->scale_growth == 0.0f
               ? scale
               : (float)((double)scale *
                         (1.0 + (double)s->scale_growth *
                                    log(1.0 + (pos + s->scale_ahead) / s->scale_period)));
}

/* The first key that a query at this position sees. */
static inline int shape_first_key(const struct mixer_shape *s, int pos)
{
    return s->chunked                          ? pos - pos % s->window
           : s->window > 0 && pos >= s->window ? pos - s->window + 1
                                               : 0;
}

/* The window of a layer that keeps no other row than those in it; 0: it keeps all. */
static inline int shape_ring(const struct mixer_shape *s)
{
    return s->block ? 0 : s->window;
}

/* MIXER_COMPRESSED: what a row's compressor is given (keys' parts, then as many gates), and its
 * indexer's; and finished blocks before and with this position, and those that it sees of them. */
static inline int shape_compressed(const struct mixer_shape *s)
{
    return s->block ? s->key_dim * (s->overlap ? 2 : 1) : 0;
}

static inline int shape_index_compressed(const struct mixer_shape *s)
{
    return s->kind == MIXER_COMPRESSED && s->index_heads ? 2 * s->index_dim : 0;
}

static inline int shape_blocks(const struct mixer_shape *s, int pos)
{
    return s->block ? (pos + 1) / s->block : 0;
}

static inline int shape_seen_blocks(const struct mixer_shape *s, int pos)
{
    int n = shape_blocks(s, pos);

    return s->index_heads && n > s->index_top ? s->index_top : n;
}

/* MLA: keys that a query at this position sees. */
static inline int shape_seen_keys(const struct mixer_shape *s, int pos)
{
    int tail = s->index_ratio ? (pos + 1) % s->index_ratio : 0;

    return s->index_top && pos + 1 - tail > s->index_top ? s->index_top + tail : pos + 1;
}

/* MIXER_CONVOLVED: rows of each of the two matrices of values. */
static inline int shape_half_values(const struct mixer_shape *s)
{
    return s->kv_heads * shape_value_dim(s) / 2;
}

/* Its projections of a token: queries, keys, both halves of values; 0: another mixer. */
static inline int shape_convolved_columns(const struct mixer_shape *s)
{
    return s->kind == MIXER_CONVOLVED ? shape_channels(s) + 2 * shape_half_values(s) : 0;
}

/* The tokens before its own that a token's queries and keys depend on. */
static inline int shape_taps_before(const struct mixer_shape *s)
{
    return s->taps + s->head_taps - 2;
}

/* Values of a projected query head: followed by its gate if that is within q's projection. */
static inline int shape_query_dim(const struct mixer_shape *s)
{
    bool within = s->kind == MIXER_ATTENTION && s->gated && s->gate == GATE_WITHIN;

    return s->key_dim + (within ? shape_value_dim(s) : 0);
}

/* Attention: rows of the gates' own matrix; 0: there is none. */
static inline int shape_gates(const struct mixer_shape *s)
{
    return !s->gated || s->gate == GATE_WITHIN || s->gate == GATE_ROUTED
               ? 0
               : s->heads * (s->gate == GATE_HEADS ? 1 : shape_value_dim(s));
}

/* Rows of the keys' and values' matrices; 0: another layer's rows are read. */
static inline int shape_own_keys(const struct mixer_shape *s)
{
    return s->keys_of ? 0 : s->kv_heads;
}

/* Normed rows per token for a layer's experts: a dense part beside routed experts has its own row,
 * after theirs. */
static inline int shape_normed_rows(const struct layer_shape *s)
{
    return s->ffn.kind == FFN_DENSE_AND_ROUTED ? 2 : 1;
}

/* Experts of shared_width after the routed ones, and a token's places for them, one for each routed
 * one if they are adjugate: of those that it has in common only the first place counts. */
static inline int shape_further(const struct ffn_shape *s)
{
    return s->shared + (s->grouped ? s->experts / s->grouped : 0);
}

static inline int shape_further_used(const struct ffn_shape *s)
{
    return s->shared + (s->grouped ? s->used : 0);
}

/* Expert blocks of a layer: the routed ones, then the shared one or the adjugate ones; a dense
 * layer is one that is always chosen. And how many of them a token uses. */
static inline int shape_experts(const struct layer_shape *s)
{
    return s->ffn.experts + shape_further(&s->ffn);
}

/* What a router chooses from. */
static inline int shape_choices(const struct ffn_shape *s)
{
    return s->experts + s->router.identities;
}

static inline int shape_used(const struct layer_shape *s)
{
    return s->ffn.used + shape_further_used(&s->ffn);
}

#endif
