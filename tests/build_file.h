/* Small model files made by the tests: a byte buffer, GGUF and safetensors writers, and one tiny
 * model under every naming. Static functions in a header, because each suite is one program.
 * Weights depend only on what they are (role, layer, expert), so that files of different namings
 * hold the same model. */
#ifndef TESTS_BUILD_FILE_H
#define TESTS_BUILD_FILE_H

#include "engine/file/dtype.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    uint8_t *data;
    size_t size, room;
};

static inline void put(struct bytes *b, const void *p, size_t n)
{
    if (b->size + n > b->room) {
        b->room = 2 * (b->size + n) + 256;
        b->data = realloc(b->data, b->room);
    }
    if (n)
        memcpy(b->data + b->size, p, n);
    b->size += n;
}

static inline void put_u32(struct bytes *b, uint32_t v)
{
    put(b, &v, 4);
}
static inline void put_u64(struct bytes *b, uint64_t v)
{
    put(b, &v, 8);
}

static inline void put_string(struct bytes *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

static inline void put_text(struct bytes *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void put_text(struct bytes *b, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(b, text, strlen(text));
}

static inline void put_zeros(struct bytes *b, size_t n)
{
    for (; n; n--)
        put(b, "", 1);
}

static inline int save(const struct bytes *b, const char *path)
{
    FILE *f = fopen(path, "wb");
    int ok = f && (!b->size || fwrite(b->data, 1, b->size, f) == b->size);

    return (f ? fclose(f) : -1) == 0 && ok ? 0 : -1;
}

struct made_tensor {
    char name[192];
    enum dtype type;
    int n_dims;
    int64_t dims[4];
    uint8_t *data;
    size_t bytes;
};

struct made_file {
    struct made_tensor t[512];
    int n;
    struct bytes meta; /* GGUF entries */
    int n_meta;
};

static inline void made_release(struct made_file *m)
{
    for (int i = 0; i < m->n; i++)
        free(m->t[i].data);
    free(m->meta.data);
}

static inline void meta_u32(struct made_file *m, const char *key, uint32_t v)
{
    put_string(&m->meta, key);
    put_u32(&m->meta, 4);
    put_u32(&m->meta, v);
    m->n_meta++;
}

static inline void meta_f32(struct made_file *m, const char *key, float v)
{
    put_string(&m->meta, key);
    put_u32(&m->meta, 6);
    put(&m->meta, &v, 4);
    m->n_meta++;
}

static inline void meta_string(struct made_file *m, const char *key, const char *v)
{
    put_string(&m->meta, key);
    put_u32(&m->meta, 8);
    put_string(&m->meta, v);
    m->n_meta++;
}

static inline void meta_array(struct made_file *m, const char *key, uint32_t type, size_t n)
{
    put_string(&m->meta, key);
    put_u32(&m->meta, 9);
    put_u32(&m->meta, type);
    put_u64(&m->meta, n);
    m->n_meta++;
}

static inline void meta_strings(struct made_file *m, const char *key, const char *const *v,
                                size_t n)
{
    meta_array(m, key, 8, n);
    for (size_t i = 0; i < n; i++)
        put_string(&m->meta, v[i]);
}

static inline void meta_u32s(struct made_file *m, const char *key, const uint32_t *v, size_t n)
{
    meta_array(m, key, 4, n);
    for (size_t i = 0; i < n; i++)
        put_u32(&m->meta, v[i]);
}

/* data: bytes taken over by copying; NULL: zeros. Dimensions that are 0 do not count. */
static inline struct made_tensor *made_add(struct made_file *m, const char *name, enum dtype type,
                                           int64_t d0, int64_t d1, int64_t d2, const void *data)
{
    struct made_tensor *t = &m->t[m->n++];
    int64_t dims[3] = {d0, d1, d2}, n = 1;

    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->type = type;
    for (int i = 0; i < 3 && dims[i]; i++) {
        t->dims[t->n_dims++] = dims[i];
        n *= dims[i];
    }
    t->bytes = (size_t)(n / dtype_info(type)->block) * (size_t)dtype_info(type)->bytes;
    t->data = calloc(t->bytes ? t->bytes : 1, 1);
    if (data)
        memcpy(t->data, data, t->bytes);
    return t;
}

/* All before the data; *data: bytes of it. */
static inline struct bytes made_gguf_header(const struct made_file *m, uint64_t *data)
{
    struct bytes b = {0};
    uint64_t at = 0;

    put(&b, "GGUF", 4);
    put_u32(&b, 3);
    put_u64(&b, (uint64_t)m->n);
    put_u64(&b, (uint64_t)m->n_meta);
    put(&b, m->meta.data, m->meta.size);
    for (int i = 0; i < m->n; i++) {
        put_string(&b, m->t[i].name);
        put_u32(&b, (uint32_t)m->t[i].n_dims);
        for (int d = m->t[i].n_dims - 1; d >= 0; d--)
            put_u64(&b, (uint64_t)m->t[i].dims[d]);
        put_u32(&b, (uint32_t)dtype_info(m->t[i].type)->gguf);
        put_u64(&b, at);
        at += (m->t[i].bytes + 31) / 32 * 32;
    }
    put_zeros(&b, (32 - b.size % 32) % 32);
    *data = at;
    return b;
}

static inline struct bytes made_gguf(const struct made_file *m)
{
    uint64_t data;
    struct bytes b = made_gguf_header(m, &data);

    for (int i = 0; i < m->n; i++) {
        put(&b, m->t[i].data, m->t[i].bytes);
        put_zeros(&b, (32 - m->t[i].bytes % 32) % 32);
    }
    return b;
}

/* Tensors first .. last-1, for shards. */
static inline struct bytes made_safetensors(const struct made_file *m, int first, int last)
{
    struct bytes b = {0}, h = {0};
    size_t at = 0;

    put_text(&h, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = first; i < last; i++) {
        put_text(&h, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", m->t[i].name,
                 dtype_info(m->t[i].type)->safetensors);
        for (int d = 0; d < m->t[i].n_dims; d++)
            put_text(&h, "%s%lld", d ? "," : "", (long long)m->t[i].dims[d]);
        put_text(&h, "],\"data_offsets\":[%zu,%zu]}", at, at + m->t[i].bytes);
        at += m->t[i].bytes;
    }
    put_text(&h, "}");
    while (h.size % 8)
        put_text(&h, " ");
    put_u64(&b, h.size);
    put(&b, h.data, h.size);
    for (int i = first; i < last; i++)
        put(&b, m->t[i].data, m->t[i].bytes);
    free(h.data);
    return b;
}

/* The tiny model: heads * head size (64) is not the hidden size (32), and the vocabulary (50) is no
 * multiple of any row group. */
enum {
    TINY_LAYERS = 2,
    TINY_HIDDEN = 32,
    TINY_HEADS = 4,
    TINY_KV = 2,
    TINY_HEAD = 16,
    TINY_EXPERTS = 4,
    TINY_FFN = 64,
    TINY_VOCAB = 50
};

enum naming { HF_EXPERTS, HF_FUSED, GGUF_STACKED, GGUF_OLD, NAMINGS };

static inline float made_value(int what, int layer, int expert, int64_t i)
{
    uint32_t x = (uint32_t)(what * 7919 + layer * 104729 + expert * 1299709 + (int)i * 31337 +
                            12345);

    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    x ^= x >> 12;
    x *= 0x297a2d39u;
    x ^= x >> 15;
    return (float)((int)(x % 2001) - 1000) * 0.0001f;
}

/* n values of a kind, appended to a growing array. */
static inline void made_fill(struct bytes *b, int what, int layer, int expert, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float w = made_value(what, layer, expert, i);

        put(b, &w, 4);
    }
}

static inline void made_weights(struct made_file *m, const char *name, int what, int layer,
                                int expert, int64_t d0, int64_t d1)
{
    struct bytes b = {0};

    made_fill(&b, what, layer, expert, d0 * (d1 ? d1 : 1));
    made_add(m, name, DTYPE_F32, d0, d1, 0, b.data);
    free(b.data);
}

enum {
    W_EMBED,
    W_NORM,
    W_NORM_B,
    W_HEAD,
    W_HEAD_B,
    W_AN,
    W_AN_B,
    W_EN,
    W_EN_B,
    W_Q,
    W_QB,
    W_K,
    W_KB,
    W_V,
    W_VB,
    W_O,
    W_OB,
    W_ROUTER,
    W_GATE,
    W_UP,
    W_DOWN
};

static inline void made_attention(struct made_file *m, enum naming naming, const char *p, int l)
{
    int q = TINY_HEADS * TINY_HEAD, kv = TINY_KV * TINY_HEAD, rows[3] = {q, kv, kv},
        what[3] = {W_Q, W_K, W_V};
    const char *hf[3] = {"q", "k", "v"};
    struct bytes w = {0}, b = {0};
    char name[160];

    for (int i = 0; i < 3; i++) {
        made_fill(&w, what[i], l, 0, rows[i] * TINY_HIDDEN);
        made_fill(&b, what[i] + 1, l, 0, rows[i]);
        if (naming == GGUF_OLD)
            continue;
        snprintf(name, sizeof name,
                 naming >= GGUF_STACKED ? "%sattn_%s.weight" : "%sself_attn.%s_proj.weight", p,
                 hf[i]);
        made_weights(m, name, what[i], l, 0, rows[i], TINY_HIDDEN);
        snprintf(name, sizeof name,
                 naming >= GGUF_STACKED ? "%sattn_%s.bias" : "%sself_attn.%s_proj.bias", p, hf[i]);
        made_weights(m, name, what[i] + 1, l, 0, rows[i], 0);
    }
    if (naming == GGUF_OLD) {
        snprintf(name, sizeof name, "%sattn_qkv.weight", p);
        made_add(m, name, DTYPE_F32, q + 2 * kv, TINY_HIDDEN, 0, w.data);
        snprintf(name, sizeof name, "%sattn_qkv.bias", p);
        made_add(m, name, DTYPE_F32, q + 2 * kv, 0, 0, b.data);
    }
    snprintf(name, sizeof name,
             naming >= GGUF_STACKED ? "%sattn_output.weight" : "%sself_attn.o_proj.weight", p);
    made_weights(m, name, W_O, l, 0, TINY_HIDDEN, q);
    snprintf(name, sizeof name,
             naming >= GGUF_STACKED ? "%sattn_output.bias" : "%sself_attn.o_proj.bias", p);
    made_weights(m, name, W_OB, l, 0, TINY_HIDDEN, 0);
    free(w.data);
    free(b.data);
}

static inline void made_experts(struct made_file *m, enum naming naming, const char *p, int l)
{
    struct bytes gate = {0}, up = {0}, down = {0}, both = {0};
    const int64_t F = TINY_FFN, D = TINY_HIDDEN, E = TINY_EXPERTS;
    char name[160];

    for (int x = 0; x < TINY_EXPERTS; x++) {
        made_fill(&gate, W_GATE, l, x, F * D);
        made_fill(&up, W_UP, l, x, F * D);
        made_fill(&down, W_DOWN, l, x, F * D);
        made_fill(&both, W_GATE, l, x, F * D);
        made_fill(&both, W_UP, l, x, F * D);
        if (naming == HF_EXPERTS || naming == GGUF_OLD) {
            const char *hf[3] = {"w1", "w3", "w2"}, *old[3] = {"gate", "up", "down"};

            for (int i = 0; i < 3; i++) {
                if (naming == HF_EXPERTS)
                    snprintf(name, sizeof name, "%sblock_sparse_moe.experts.%d.%s.weight", p, x,
                             hf[i]);
                else
                    snprintf(name, sizeof name, "%sffn_%s.%d.weight", p, old[i], x);
                made_weights(m, name, W_GATE + i, l, x, i < 2 ? F : D, i < 2 ? D : F);
            }
        }
    }
    if (naming == HF_FUSED) {
        snprintf(name, sizeof name, "%smlp.experts.gate_up_proj", p);
        made_add(m, name, DTYPE_F32, E, 2 * F, D, both.data);
        snprintf(name, sizeof name, "%smlp.experts.down_proj", p);
        made_add(m, name, DTYPE_F32, E, D, F, down.data);
    } else if (naming == GGUF_STACKED) {
        snprintf(name, sizeof name, "%sffn_gate_exps.weight", p);
        made_add(m, name, DTYPE_F32, E, F, D, gate.data);
        snprintf(name, sizeof name, "%sffn_up_exps.weight", p);
        made_add(m, name, DTYPE_F32, E, F, D, up.data);
        snprintf(name, sizeof name, "%sffn_down_exps.weight", p);
        made_add(m, name, DTYPE_F32, E, D, F, down.data);
    }
    free(gate.data);
    free(up.data);
    free(down.data);
    free(both.data);
}

static inline struct made_file *made_model(enum naming naming)
{
    struct made_file *m = calloc(1, sizeof *m);
    int gguf = naming >= GGUF_STACKED;
    char p[64], name[160];

    made_weights(m, gguf ? "token_embd.weight" : "model.embed_tokens.weight", W_EMBED, 0, 0,
                 TINY_VOCAB, TINY_HIDDEN);
    for (int l = 0; l < TINY_LAYERS; l++) {
        snprintf(p, sizeof p, gguf ? "blk.%d." : "model.layers.%d.", l);
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "%s%s.%s", p,
                     gguf    ? i < 2 ? "attn_norm" : "ffn_norm"
                     : i < 2 ? "input_layernorm"
                             : "post_attention_layernorm",
                     i & 1 ? "bias" : "weight");
            made_weights(m, name, W_AN + i, l, 0, TINY_HIDDEN, 0);
        }
        made_attention(m, naming, p, l);
        snprintf(name, sizeof name, "%s%s", p,
                 gguf                 ? "ffn_gate_inp.weight"
                 : naming == HF_FUSED ? "mlp.router.weight"
                                      : "block_sparse_moe.gate.weight");
        made_weights(m, name, W_ROUTER, l, 0, TINY_EXPERTS, TINY_HIDDEN);
        made_experts(m, naming, p, l);
    }
    made_weights(m, gguf ? "output_norm.weight" : "model.norm.weight", W_NORM, 0, 0, TINY_HIDDEN,
                 0);
    made_weights(m, gguf ? "output_norm.bias" : "model.norm.bias", W_NORM_B, 0, 0, TINY_HIDDEN, 0);
    made_weights(m, gguf ? "output.weight" : "lm_head.weight", W_HEAD, 0, 0, TINY_VOCAB,
                 TINY_HIDDEN);
    made_weights(m, gguf ? "output.bias" : "lm_head.bias", W_HEAD_B, 0, 0, TINY_VOCAB, 0);
    /* as real Phi-tiny files: no key_length, and a rope dimension that is not the head's */
    if (gguf) {
        meta_string(m, "general.architecture", "phimoe");
        meta_string(m, "general.name", "tiny\x1b[31m");
        meta_u32(m, "phimoe.block_count", TINY_LAYERS);
        meta_u32(m, "phimoe.embedding_length", TINY_HIDDEN);
        meta_u32(m, "phimoe.attention.head_count", TINY_HEADS);
        meta_u32(m, "phimoe.attention.head_count_kv", TINY_KV);
        meta_u32(m, "phimoe.rope.dimension_count", 256);
        meta_f32(m, "phimoe.attention.layer_norm_rms_epsilon", 1e-5f);
        meta_u32(m, "tokenizer.ggml.eos_token_id", 7);
    }
    return m;
}

static const char made_config[] =
    "{\"architectures\":[\"PhiMoEForCausalLM\"],\"model_type\":\"phimoe\",\"hidden_size\":32,\"num_"
    "attention_heads\":4,\"num_key_value_heads\":2,"
    "\"num_hidden_layers\":2,\"num_local_experts\":4,\"num_experts_per_tok\":2,\"intermediate_"
    "size\":64,\"vocab_size\":50,\"rms_norm_eps\":1e-05,"
    "\"rope_theta\":10000.0,\"max_position_embeddings\":128,\"eos_token_id\":[7,9]}";

#endif
