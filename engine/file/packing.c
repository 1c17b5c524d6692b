/* See packing.h. Supported settings are listed here, and all others refused by name: a setting that
 * changes the meaning of the bits must not go unnoticed. */
#include "engine/file/packing.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Keeps the first reason. */
__attribute__((format(printf, 2, 3))) static void refuse(struct packing *p, const char *format, ...)
{
    va_list args;

    if (p->refused[0])
        return;
    va_start(args, format);
    vsnprintf(p->refused, sizeof p->refused, format, args);
    va_end(args);
}

static const char *word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

static bool absent(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return !v || json_is_null(v) || json_is_false(v);
}

static void want_word(struct packing *p, const json_t *o, const char *key, const char *wanted)
{
    if (!absent(o, key) && strcasecmp(word(o, key), wanted) != 0)
        refuse(p, "%s %.40s", key, word(o, key));
}

static void want_number(struct packing *p, const json_t *o, const char *key, int wanted)
{
    const json_t *v = json_object_get(o, key);

    if (!json_is_integer(v))
        refuse(p, "no number %s", key);
    else if (json_integer_value(v) != wanted)
        refuse(p, "%s %lld", key, (long long)json_integer_value(v));
}

/* Bits of an integer; two kinds are supported. */
static int read_bits(struct packing *p, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_integer(v) && json_integer_value(v) == 8)
        return 8;
    want_number(p, o, key, 4);
    return 4;
}

/* -1: the whole row */
static void read_group(struct packing *p, const json_t *o)
{
    const json_t *v = json_object_get(o, "group_size");
    long long n = json_is_integer(v) ? (long long)json_integer_value(v) : -1;

    if (n < -1 || n == 0 || n > 1 << 20)
        refuse(p, "group_size %lld", n);
    else
        p->group = n < 0 ? 0 : (int)n;
}

/* GPTQModel's rules for some modules: "-:" excludes them, anything else changes settings. */
static void read_dynamic(struct packing *p, const json_t *q)
{
    const json_t *rules = json_object_get(q, "dynamic"), *rule;
    const char *pattern;

    json_object_foreach((json_t *)rules, pattern, rule)
    {
        const json_t *bits = json_object_get(rule, "bits");

        if (strncmp(pattern, "-:", 2) == 0)
            continue;
        p->varied = true;
        if (bits && (!json_is_integer(bits) || json_integer_value(bits) != p->bits))
            refuse(p, "other bits by dynamic %.40s", pattern);
    }
}

static void read_gptq(struct packing *p, const json_t *q)
{
    p->kind = PACKING_GPTQ;
    p->bits = read_bits(p, q, "bits");
    p->zeros_whole = strcasecmp(word(q, "checkpoint_format"), "gptq_v2") == 0;
    if (!p->zeros_whole)
        want_word(p, q, "checkpoint_format", "gptq");
    p->indexed = json_is_true(json_object_get(q, "desc_act"));
    read_group(p, q);
    read_dynamic(p, q);
}

static void read_awq(struct packing *p, const json_t *q)
{
    p->kind = PACKING_AWQ;
    p->bits = 4;
    want_number(p, q, json_object_get(q, "w_bit") ? "w_bit" : "bits", 4);
    want_word(p, q, "version", "gemm");
    read_group(p, q);
}

static void read_fp8(struct packing *p, const json_t *q)
{
    const json_t *block = json_object_get(q, "weight_block_size");

    p->kind = PACKING_FP8;
    want_word(p, q, "fmt", "e4m3");
    for (size_t i = 0; i < json_array_size(block); i++)
        if (json_integer_value(json_array_get(block, i)) != 128)
            refuse(p, "weight_block_size %lld",
                   (long long)json_integer_value(json_array_get(block, i)));
}

/* Whether columns are grouped by an index; if they were only quantised in another order, the files
 * are plain. */
static bool read_order(struct packing *p, const json_t *weights, bool integers)
{
    const char *order = word(weights, "actorder");

    if (integers && (strcasecmp(order, "group") == 0 || strcasecmp(order, "dynamic") == 0))
        return true;
    if (!absent(weights, "actorder") && strcasecmp(order, "weight") != 0 &&
        strcasecmp(order, "static") != 0)
        refuse(p, "actorder %.40s", order);
    return false;
}

/* The weights of one config_group, the first or a further one. */
static void read_group_scheme(struct packing *p, const json_t *weights, bool integers, bool first)
{
    const json_t *block = json_object_get(weights, "block_structure");
    bool asymmetric = !json_is_true(json_object_get(weights, "symmetric")),
         indexed = read_order(p, weights, integers);
    int bits = integers ? read_bits(p, weights, "num_bits") : 8;

    if (!integers)
        want_number(p, weights, "num_bits", 8);
    if (!first && bits != p->bits)
        refuse(p, "other num_bits in some config_groups");
    p->bits = bits;
    want_word(p, weights, "type", integers ? "int" : "float");
    if (asymmetric && !integers)
        refuse(p, "asymmetric weights");
    if (!first && (asymmetric != p->asymmetric || indexed != p->indexed))
        refuse(p, "zero points or actorder in some config_groups alone");
    p->asymmetric = asymmetric;
    p->indexed = indexed;
    for (size_t i = 0; i < json_array_size(block); i++)
        if (json_integer_value(json_array_get(block, i)) != 128)
            refuse(p, "block_structure %lld",
                   (long long)json_integer_value(json_array_get(block, i)));
    read_group(p, weights);
}

/* The weights of a config_group of MXFP4 (groups of 32) or NVFP4 (of 16). */
static void read_float4_scheme(struct packing *p, const json_t *weights, int group)
{
    want_number(p, weights, "num_bits", 4);
    want_number(p, weights, "group_size", group);
    want_word(p, weights, "type", "float");
    if (!json_is_true(json_object_get(weights, "symmetric")))
        refuse(p, "asymmetric weights");
    read_order(p, weights, false);
}

static void read_compressed(struct packing *p, const json_t *q)
{
    const json_t *groups = json_object_get(q, "config_groups"), *group;
    bool integers = strcasecmp(word(q, "format"), "pack-quantized") == 0,
         mxfp4 = strcasecmp(word(q, "format"), "mxfp4-pack-quantized") == 0,
         nvfp4 = strcasecmp(word(q, "format"), "nvfp4-pack-quantized") == 0;
    const char *name;
    int before = 0;
    size_t n = 0;

    p->kind = integers ? PACKING_WORDS
              : mxfp4  ? PACKING_MXFP4_ROWS
              : nvfp4  ? PACKING_NVFP4
                       : PACKING_FP8;
    if (!integers && !mxfp4 && !nvfp4 && strcasecmp(word(q, "format"), "float-quantized") != 0)
        refuse(p, "format %.40s", *word(q, "format") ? word(q, "format") : "missing");
    if (!json_object_size(groups))
        refuse(p, "no config_groups");
    json_object_foreach((json_t *)groups, name, group)
    {
        want_word(p, group, "format", word(q, "format"));
        if (mxfp4 || nvfp4) {
            read_float4_scheme(p, json_object_get(group, "weights"), mxfp4 ? 32 : 16);
            continue;
        }
        read_group_scheme(p, json_object_get(group, "weights"), integers, n == 0);
        p->varied |= n++ && p->group != before;
        before = p->group;
    }
    if (!absent(json_object_get(q, "sparsity_config"), "format"))
        want_word(p, json_object_get(q, "sparsity_config"), "format", "dense");
}

/* An algorithm of ModelOpt, of all modules or of some: those that round activations in other ways
 * have the same weights. */
static void want_algorithm(struct packing *p, const char *name)
{
    static const char *const known[] = {
        "FP8",   "NVFP4",         "W4A16_NVFP4", "W4A8_NVFP4_FP8", "FP8_PER_CHANNEL_PER_TOKEN",
        "MXFP4", "W4A8_MXFP4_FP8"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasecmp(name, known[i]) == 0)
            return;
    refuse(p, "quant_algo %.40s", *name ? name : "missing");
}

/* q: of config.json, or hf_quant_config.json, which has it one level below. */
static void read_modelopt(struct packing *p, const json_t *q)
{
    const json_t *below = json_object_get(q, "quantization"), *layer;
    const char *name;

    q = below ? below : q;
    p->kind = PACKING_MODELOPT;
    if (strcasecmp(word(q, "quant_algo"), "MIXED_PRECISION") != 0) {
        want_algorithm(p, word(q, "quant_algo"));
        return;
    }
    json_object_foreach(json_object_get(q, "quantized_layers"), name, layer)
        want_algorithm(p, word(layer, "quant_algo"));
}

static void read_bitsandbytes(struct packing *p, const json_t *q)
{
    p->kind = PACKING_TABLE;
    if (!json_is_true(json_object_get(q, "load_in_4bit")))
        refuse(p, "load_in_8bit");
    if (strcasecmp(word(q, "bnb_4bit_quant_type"), "fp4") != 0)
        want_word(p, q, "bnb_4bit_quant_type", "nf4");
    if (!absent(q, "bnb_4bit_quant_storage"))
        want_word(p, q, "bnb_4bit_quant_storage", "uint8");
}

static bool mlx_config(const json_t *q)
{
    return !json_object_get(q, "quant_method") && json_is_integer(json_object_get(q, "bits")) &&
           json_is_integer(json_object_get(q, "group_size"));
}

void packing_read_mlx(struct packing *p, const json_t *q)
{
    const char *mode = *word(q, "mode") ? word(q, "mode") : "affine";
    bool affine = strcmp(mode, "affine") == 0;

    *p = (struct packing){.kind = PACKING_MLX, .modules = p->modules};
    p->integers = affine;
    snprintf(p->method, sizeof p->method, "MLX (%.32s)", mode);
    if (affine)
        p->bits = read_bits(p, q, "bits");
    else if (strcmp(mode, "mxfp4") == 0 || strcmp(mode, "nvfp4") == 0)
        p->bits = 4;
    else
        refuse(p, "mode %.40s", mode);
    read_group(p, q);
    if (!p->refused[0] && p->group != 32 &&
        (affine ? p->group != 64 && p->group != 128 : p->group != 16))
        refuse(p, "group_size %d", p->group);
}

static const json_t *find_config(const json_t *config)
{
    const json_t *text = json_object_get(config, "text_config");
    const json_t *at[] = {json_object_get(config, "quantization_config"),
                          json_object_get(text, "quantization_config"),
                          json_object_get(config, "compression_config"),
                          json_object_get(config, "quantization")};

    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        if (at[i] && !json_is_null(at[i]))
            return at[i];
    return NULL;
}

void packing_read(struct packing *p, const json_t *config, const json_t *modelopt)
{
    static const struct {
        const char *method;
        void (*read)(struct packing *p, const json_t *q);
    } known[] = {{"gptq", read_gptq},
                 {"modelopt", read_modelopt},
                 {"modelopt_fp4", read_modelopt},
                 {"bitsandbytes", read_bitsandbytes},
                 {"awq", read_awq},
                 {"fp8", read_fp8},
                 {"compressed-tensors", read_compressed}};
    const json_t *q = find_config(config);
    const char *method = word(q, "quant_method");

    if (!q && json_object_get(modelopt, "quantization")) {
        q = modelopt;
        method = "modelopt";
    }

    *p = (struct packing){0};
    if (!q)
        return;
    snprintf(p->method, sizeof p->method, "%.32s%s%.32s%s", *method ? method : "an unnamed method",
             *word(q, "format") ? " (" : "", word(q, "format"), *word(q, "format") ? ")" : "");
    if (mlx_config(q)) {
        p->modules = q;
        packing_read_mlx(p, q);
        return;
    }
    if (strcasecmp(method, "mxfp4") == 0) {
        p->kind = PACKING_MXFP4;
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasecmp(method, known[i].method) == 0) {
            known[i].read(p, q);
            return;
        }
    refuse(p, "the method is not known");
}
