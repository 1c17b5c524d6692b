/* Scaled rotary embeddings: divisors of each rotated pair's frequency, and the factor of cosines
 * and sines, read or computed once (run/rope.c makes the table). Thread: the one that loads.
 * Sources: modeling_rope_utils.py of Hugging Face transformers; Peng et al. 2023, arXiv:2309.00071
 * (YaRN); Ding et al. 2024, arXiv:2402.13753 (longrope). */
#include "engine/model/hparams_read.h"

#include "engine/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool meta_is(const struct meta_value *v, const char *word)
{
    return v->len == strlen(word) && memcmp(v->s, word, v->len) == 0;
}

/* Reads n factors of either format into new memory; *out stays NULL if there are none. */
static int read_factors(float **out, int n, const struct family *family,
                        const struct weight_file *f, enum tensor_role role, const char *const *json,
                        struct error *e)
{
    char name[128] = "";
    struct meta_value v = family_meta(family, f, NULL, json, name, sizeof name);
    const struct tensor_view *t = family_tensor(family, f, role, 0, 0, false);
    float *x;

    if (!t && v.type != META_ARRAY)
        return 0;
    if (t ? t->type != DTYPE_F32 || t->n_dims != 1 || t->dims[0] != n : v.len != (size_t)n)
        return error_set(e, ERR_MODEL,
                         "%s: %s must hold %d numbers, one for each pair of rotated dimensions",
                         weight_file_path(f), t ? t->name : name, n);
    if (!(x = *out = mem_alloc((size_t)n, sizeof *x)))
        return error_set(e, ERR_MEMORY, "%s: out of memory", weight_file_path(f));
    for (int i = 0; i < n; i++) {
        if (t)
            memcpy(&x[i], (const uint8_t *)t->data + 4 * (size_t)i, 4);
        else
            x[i] = (float)meta_at(&v, (size_t)i).f;
        if (!(x[i] > 0.0f) || !isfinite(x[i]))
            return error_set(e, ERR_MODEL, "%s: %s holds %g; rope factors are positive numbers",
                             weight_file_path(f), t ? t->name : name, (double)x[i]);
    }
    return 0;
}

/* A number of the scaling's settings: config.json's name in any of its four places, or GGUF's
 * under "rope.scaling.". */
static double number(const struct family *family, const struct weight_file *f, const char *gguf,
                     const char *json, double missing)
{
    static const char *const places[] = {"rope_scaling", "rope_parameters",
                                         "rope_parameters.full_attention",
                                         "rope_parameters.compress"};
    char key[160];
    struct meta_value v = {0};

    if (weight_file_format(f) == WEIGHT_GGUF) {
        snprintf(key, sizeof key, "%s.rope.scaling.%s", family_architecture(family, f),
                 gguf ? gguf : "");
        v = gguf ? weight_file_meta(f, key) : v;
    }
    for (int i = 0; i < 4 && weight_file_format(f) != WEIGHT_GGUF && v.type == META_NONE; i++) {
        snprintf(key, sizeof key, "%s.%s", places[i], json);
        v = family_config(f, key);
    }
    return v.type == META_INT || v.type == META_FLOAT ? v.f : v.type == META_BOOL ? v.i : missing;
}

/* The original context: phimoe's keys have read it, other families have it with the other scaling
 * settings, some at the top, which takes precedence (modeling_rope_utils.py,
 * standardize_rope_params). 0: none. */
static int original_context(const struct hparams *hp, const struct family *family,
                            const struct weight_file *f)
{
    struct meta_value top = {0};
    double v = hp->original_context;

    if (!v)
        v = number(family, f, "original_context_length", "original_max_position_embeddings", 0.0);
    if (!hp->original_context && weight_file_format(f) != WEIGHT_GGUF)
        top = family_config(f, "original_max_position_embeddings");
    v = top.type == META_INT ? top.f : v;
    return v >= 1.0 && v <= 1 << 27 ? (int)v : 0;
}

/* The default attention factor of longrope. */
static double longrope_scale(const struct hparams *hp, const struct family *family,
                             const struct weight_file *f)
{
    double ratio = number(family, f, NULL, "factor",
                          (double)hp->context_max / hp->original_context),
           given = number(family, f, "attn_factor", "attention_factor", 0.0);

    if (given > 0.0 && isfinite(given))
        return given;
    return !(ratio > 1.0) || !isfinite(ratio) || hp->original_context < 2
               ? 1.0
               : sqrt(1.0 + log(ratio) / log(hp->original_context));
}

static int read_longrope(struct hparams *hp, const struct family *family,
                         const struct weight_file *f, struct error *e)
{
    int n = hp->common.mixer.rope_dims / 2, rc;
    char long_name[128];
    float scale;

    if ((rc = read_factors(&hp->short_factor, n, family, f, TENSOR_ROPE_SHORT, family->rope_short,
                           e)) ||
        (rc = read_factors(&hp->long_factor, n, family, f, TENSOR_ROPE_LONG, family->rope_long, e)))
        return rc;
    family_gguf_name(family, TENSOR_ROPE_LONG, 0, false, false, long_name, sizeof long_name);
    /* one table for all lengths: Llama 3 in GGUF */
    if (hp->short_factor && !hp->long_factor && !long_name[0] &&
        weight_file_format(f) == WEIGHT_GGUF) {
        hp->original_context = 0;
        hp->short_mscale = hp->long_mscale = 1.0f;
        return 0;
    }
    if (!hp->short_factor != !hp->long_factor)
        return error_set(e, ERR_MODEL,
                         "%s: longrope needs short and long factors; only one of them is there",
                         weight_file_path(f));
    if (!hp->short_factor) {
        hp->original_context = 0;
        hp->short_mscale = hp->long_mscale = 1.0f;
        return 0;
    }
    if (!(hp->original_context = original_context(hp, family, f)))
        return error_set(
            e, ERR_MODEL,
            "%s: longrope without the original context length (original_max_position_embeddings)",
            weight_file_path(f));
    scale = (float)longrope_scale(hp, family, f);
    hp->short_mscale = hp->short_mscale > 0.0f ? hp->short_mscale : scale;
    hp->long_mscale = hp->long_mscale > 0.0f ? hp->long_mscale : scale;
    return 0;
}

struct scaling {
    int dims; /* rotated ones of a head */
    double theta, factor, original, fast, slow;
    bool truncate;
};

static double wave_length(const struct scaling *s, int pair)
{
    return 2.0 * M_PI * pow(s->theta, 2.0 * pair / s->dims);
}

/* Long waves are scaled, short ones unchanged, those between are blended. fast, slow: number of
 * waves in the original context. */
static double divisor_llama3(const struct scaling *s, int pair)
{
    double fits = s->original / wave_length(s, pair), stay = (fits - s->slow) / (s->fast - s->slow);

    stay = stay < 0.0 ? 0.0 : stay > 1.0 ? 1.0 : stay;
    return 1.0 / ((1.0 - stay) / s->factor + stay);
}

/* The pair that rotates so often within the original context. */
static double pair_of_turns(const struct scaling *s, double turns)
{
    return s->dims * log(s->original / (turns * 2.0 * M_PI)) / (2.0 * log(s->theta));
}

static double divisor_yarn(const struct scaling *s, int pair)
{
    double low = pair_of_turns(s, s->fast), high = pair_of_turns(s, s->slow), ramp;

    if (s->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0.0 ? low : 0.0;
    high = high < s->dims - 1 ? high : s->dims - 1;
    if (low == high)
        high += 0.001;
    ramp = (pair - low) / (high - low);
    ramp = ramp < 0.0 ? 0.0 : ramp > 1.0 ? 1.0 : ramp;
    return 1.0 / (ramp / s->factor + (1.0 - ramp));
}

static double divisor_linear(const struct scaling *s, int pair)
{
    return s->factor;
}

/* Factor of cosines and sines in YaRN. */
static double yarn_scale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

/* GGUF: a tenth of mscale_all_dim. */
static double log_multiplier(const struct family *family, const struct weight_file *f)
{
    return number(family, f, "yarn_log_multiplier", "", 0.0);
}

/* Latent attention scales its scores as well (modeling_deepseek_v3.py). */
static float latent_scale(const struct mixer_shape *m, const struct family *family,
                          const struct weight_file *f, double factor)
{
    double all = number(family, f, NULL, "mscale_all_dim", 10.0 * log_multiplier(family, f)),
           stretch = all != 0.0 ? yarn_scale(factor, all) : 1.0;

    return (float)(stretch * stretch / sqrt((double)m->key_dim));
}

static double yarn_attention(const struct family *family, const struct weight_file *f,
                             double factor)
{
    double given = number(family, f, "attn_factor", "attention_factor", 0.0),
           mscale = number(family, f, NULL, "mscale", 0.0),
           all = number(family, f, NULL, "mscale_all_dim", 0.0);

    if (given > 0.0 && weight_file_format(f) != WEIGHT_GGUF)
        return given;
    /* the same in GGUF; 1 is llama.cpp's default */
    if (number(family, f, "yarn_attn_factor", "attention_factor", 1.0) != 1.0)
        return number(family, f, "yarn_attn_factor", "attention_factor", 1.0);
    if (log_multiplier(family, f) != 0.0)
        return 1.0; /* the file has no mscale: it has no effect */
    if (mscale != 0.0 && all != 0.0)
        return yarn_scale(factor, mscale) / yarn_scale(factor, all);
    return yarn_scale(factor, 1.0) * (given > 0.0 ? given : 1.0);
}

/* One table for all lengths. */
static int read_stretched(struct hparams *hp, const struct family *family,
                          const struct weight_file *f, const char *kind,
                          double (*divisor)(const struct scaling *s, int pair), struct error *e)
{
    bool yarn = divisor == divisor_yarn,
         exact = family->yarn_exact && weight_file_format(f) == WEIGHT_GGUF;
    int original = original_context(hp, family, f);
    struct scaling s = {
        .dims = hp->common.mixer.rope_dims,
        .theta = (double)hp->rope_theta,
        .factor = number(family, f, "factor", "factor", 0.0),
        .original = original ? original : hp->context_max,
        .fast = yarn ? number(family, f, "yarn_beta_fast", "beta_fast", 32.0)
                     : number(family, f, NULL, "high_freq_factor", 4.0),
        .slow = yarn ? number(family, f, "yarn_beta_slow", "beta_slow", 1.0)
                     : number(family, f, NULL, "low_freq_factor", 1.0),
        .truncate = number(family, f, NULL, "truncate", exact ? 0.0 : 1.0) != 0.0,
    };

    if (s.factor == 0.0)
        return error_set(e, ERR_MODEL,
                         "%s: its rope scaling is %s, but there is no factor beside it "
                         "(rope_scaling or rope_parameters of config.json, rope.scaling.factor)",
                         weight_file_path(f), kind);
    if (!(s.factor >= 1.0) || !(s.original >= 1.0) || !(s.fast > s.slow) || !(s.slow > 0.0) ||
        !isfinite(s.factor))
        return error_set(e, ERR_MODEL,
                         "%s: a rope scaling of %s by %g of %g tokens (%g, %g) makes no sense",
                         weight_file_path(f), kind, s.factor, s.original, s.slow, s.fast);
    if (!(hp->short_factor = mem_alloc((size_t)s.dims / 2, sizeof *hp->short_factor)))
        return error_set(e, ERR_MEMORY, "%s: out of memory", weight_file_path(f));
    for (int i = 0; i < s.dims / 2; i++)
        hp->short_factor[i] = (float)divisor(&s, i);
    hp->original_context = 0;
    hp->short_mscale = hp->long_mscale = yarn ? (float)yarn_attention(family, f, s.factor) : 1.0f;
    return 0;
}

/* Of the published files GGUF covers only those with YaRN. */
static void stretch_scores(struct hparams *hp, const struct family *family,
                           const struct weight_file *f, const struct meta_value *kind)
{
    bool stretched = kind->type == META_STRING && !meta_is(kind, "default") &&
                     (meta_is(kind, "yarn") || weight_file_format(f) != WEIGHT_GGUF);

    if (stretched && hp->common.mixer.kind == MIXER_MLA)
        hp->common.mixer.scale = latent_scale(&hp->common.mixer, family, f,
                                              number(family, f, "factor", "factor", 1.0));
}

int rope_scaling_read(struct hparams *hp, const struct family *family, const struct weight_file *f,
                      struct error *e)
{
    static const struct {
        const char *word;
        double (*divisor)(const struct scaling *s, int pair);
    } kinds[] = {{"llama3", divisor_llama3}, {"yarn", divisor_yarn}, {"linear", divisor_linear}};
    static const char *const gguf[FAMILY_NAMES] = {"rope.scaling.type"};
    char name[128] = "";
    struct meta_value kind = family_meta(family, f, gguf, family->rope_kind, name, sizeof name);

    hp->rope_within = kind.type == META_STRING && meta_is(&kind, "dynamic");
    stretch_scores(hp, family, f, &kind);
    /* a factor alone is linear (llama.cpp, llama-model.cpp) */
    if (hp->common.mixer.rope != ROPE_NONE && kind.type == META_NONE &&
        number(family, f, "factor", "factor", 1.0) > 1.0)
        return read_stretched(hp, family, f, "linear", divisor_linear, e);
    if (hp->common.mixer.rope == ROPE_NONE || kind.type != META_STRING || hp->rope_within ||
        meta_is(&kind, "longrope") || meta_is(&kind, "su") || meta_is(&kind, "default") ||
        meta_is(&kind, "none"))
        return read_longrope(hp, family, f, e);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (meta_is(&kind, kinds[i].word))
            return read_stretched(hp, family, f, kinds[i].word, kinds[i].divisor, e);
    return error_set(e, ERR_MODEL,
                     "%s: %s is '%.40s'; longrope, llama3, yarn, linear and dynamic are computed",
                     weight_file_path(f), name, kind.s);
}
