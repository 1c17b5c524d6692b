/* See tensor_kind.h. */
#include "engine/convert/tensor_kind.h"

#include <stdio.h>
#include <string.h>

static bool ends(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

bool tensor_kind_rounded(const struct tensor_view *t)
{
    static const char *const kept[] = {
        "_norm.weight",
        "ffn_gate_inp.weight",
        "position_embd",
        "token_types",
        "conv1d",
        "shortconv.conv",
        "altup",
        "laurel",
        "hc_attn_fn",
        "hc_ffn_fn",
        "output_hc_fn",
        "hc_head_fn",
        "per_layer_model_proj",
        "ffn_gate_tid2eid",
        "indexer.proj",
        "indexer.q_proj",
        "indexer.k_proj",
        "compressor_ape",
        "attn_gate_inp.weight",
        "ffn_router",
    };

    if (t->n_dims < 2 || !ends(t->name, "weight"))
        return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(t->name, kept[i]))
            return false;
    return true;
}

enum tensor_role tensor_kind_role(const char *name, int *layer)
{
    static const struct {
        const char *part;
        enum tensor_role role;
    } parts[] = {
        {"attn_qkv.weight", TENSOR_QKV},
        {"attn_kv_b.weight", TENSOR_KV_B},
        {"attn_v.weight", TENSOR_V},
        {"attn_k.weight", TENSOR_K},
        {"attn_v_prev.weight", TENSOR_V_BEFORE},
        {"attn_output.weight", TENSOR_O},
        {"ffn_down_exps", TENSOR_DOWNS},
        {"ffn_gate_exps", TENSOR_GATES},
        {"ffn_up_exps", TENSOR_UPS},
        {"ffn_gate_up_exps", TENSOR_GATE_UPS},
        {"ffn_down", TENSOR_DOWN},
    };

    *layer = 0;
    if (strcmp(name, "output.weight") == 0)
        return TENSOR_HEAD;
    if (strcmp(name, "token_embd.weight") == 0)
        return TENSOR_EMBEDDINGS;
    if (sscanf(name, "blk.%d.", layer) != 1)
        *layer = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].part))
            return parts[i].role;
    return TENSOR_Q;
}
