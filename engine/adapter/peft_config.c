/* adapter_config.json of PEFT (peft/tuners/lora/config.py): unsupported settings, ranks and scales.
 * See reading.h. */
#include "engine/adapter/reading.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define CONFIG_MOST ((size_t)16 << 20) /* bytes */
#define MATCH_MOST 100000              /* steps of one match: patterns are short */

struct peft_config {
    json_t *root;
    char *path;
    int rank;
    double alpha;
    bool rslora;
};

/* Present, and neither null, false, "none" nor empty. */
static bool set(const json_t *root, const char *key)
{
    const json_t *v = json_object_get(root, key);

    return v && !json_is_null(v) && !json_is_false(v) &&
           !(json_is_string(v) &&
             (!*json_string_value(v) || strcmp(json_string_value(v), "none") == 0)) &&
           !((json_is_array(v) || json_is_object(v)) && !json_array_size(v) &&
             !json_object_size(v));
}

/* Settings that change the formula y += s B A x. */
static const struct {
    const char *key, *what;
} refused[] = {
    {"use_dora", "DoRA (weights split into magnitude and direction)"},
    {"modules_to_save", "whole modules saved beside it"},
    {"bias", "biases that were trained with it"},
    {"lora_bias", "biases of its own"},
    {"alora_invocation_tokens",
     "an activated adapter (aLoRA), which acts behind a sequence of tokens alone"},
    {"trainable_token_indices", "embeddings of tokens that were trained with it"},
    {"layer_replication", "layers that are there twice"},
    {"use_qalora", "QALoRA (inputs are pooled first)"},
    {"use_bdlora", "BD-LoRA (block-diagonal matrices)"},
    {"kasa_config", "KaSA (singular values between A and B)"},
    {"velora_config", "VeLoRA"},
    {"arrow_config", "Arrow (adapters chosen token by token)"},
};

/* Initialisations that subtract the initial adapter from the base weights. */
static const char *const residual[] = {"pissa", "olora", "corda", "loftq", "lora_ga", NULL};

static int refuse(const struct peft_config *c, struct error *e)
{
    const char *type = json_string_value(json_object_get(c->root, "peft_type")),
               *begun = json_string_value(json_object_get(c->root, "init_lora_weights"));

    if (!type || strcmp(type, "LORA"))
        return error_set(e, ERR_MODEL, "%s: peft_type is %.60s; only LORA is computed", c->path,
                         type ? type : "missing");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (set(c->root, refused[i].key))
            return error_set(e, ERR_MODEL, "%s: %s: %s: not computed", c->path, refused[i].key,
                             refused[i].what);
    for (int i = 0; begun && residual[i]; i++)
        if (strncmp(begun, residual[i], strlen(residual[i])) == 0)
            return error_set(e, ERR_MODEL,
                             "%s: init_lora_weights: %.40s changes the base's weights; save the "
                             "adapter converted to plain LORA",
                             c->path, begun);
    return 0;
}

static int read_numbers(struct peft_config *c, struct error *e)
{
    const json_t *r = json_object_get(c->root, "r"), *alpha = json_object_get(c->root,
                                                                              "lora_alpha");

    c->rslora = json_is_true(json_object_get(c->root, "use_rslora"));
    if (!json_is_integer(r) || json_integer_value(r) < 1 || json_integer_value(r) > 65536)
        return error_set(e, ERR_MODEL, "%s: r: a whole number of 1 to 65536 is expected", c->path);
    if (!json_is_number(alpha) || !isfinite(json_number_value(alpha)))
        return error_set(e, ERR_MODEL, "%s: lora_alpha: a number is expected", c->path);
    c->rank = (int)json_integer_value(r);
    c->alpha = json_number_value(alpha);
    return 0;
}

int peft_config_read(struct peft_config **out, const char *path, struct error *e)
{
    static const struct file_kind kind = {"adapter configuration", CONFIG_MOST, ERR_MODEL};
    struct peft_config *c = mem_alloc(1, sizeof *c);
    int rc;

    *out = NULL;
    if (!c || !(c->path = mem_string(path)))
        rc = error_set(e, ERR_MEMORY, "%s: out of memory", path);
    else if ((rc = json_read_file(&c->root, path, &kind, e)) == 0)
        rc = json_is_object(c->root)
                 ? 0
                 : error_set(e, ERR_MODEL, "%s: a JSON object is expected", path);
    if (rc == 0 && (rc = refuse(c, e)) == 0)
        rc = read_numbers(c, e);
    if (rc < 0) {
        peft_config_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void peft_config_free(struct peft_config *c)
{
    if (!c)
        return;
    json_decref(c->root);
    mem_free(c->path);
    mem_free(c);
}

/* 1: the key, a regular expression, matches the end of a module's path; 0: it does not. */
static int key_matches(const struct peft_config *c, const char *key, const char *module,
                       struct error *e)
{
    char pattern[600];
    int n = snprintf(pattern, sizeof pattern, "^(.*\\.)?(%s)$", key), number, rc;
    PCRE2_SIZE at;
    pcre2_code *code = (size_t)n < sizeof pattern
                           ? pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, 0, &number,
                                           &at, NULL)
                           : NULL;
    pcre2_match_data *match = code ? pcre2_match_data_create(1, NULL) : NULL;
    pcre2_match_context *limits = match ? pcre2_match_context_create(NULL) : NULL;

    if (!limits) {
        rc = error_set(e, ERR_MODEL, "%s: the pattern %.100s cannot be read", c->path, key);
    } else {
        pcre2_set_match_limit(limits, MATCH_MOST);
        rc = pcre2_match(code, (PCRE2_SPTR)module, strlen(module), 0, 0, match, limits);
        rc = rc == PCRE2_ERROR_NOMATCH ? 0
             : rc < 0 ? error_set(e, ERR_MODEL, "%s: the pattern %.100s takes too long", c->path,
                                  key)
                      : 1;
    }
    pcre2_match_context_free(limits);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return rc;
}

/* The first matching key of a pattern table; 1: *out is its value. */
static int look_up(const struct peft_config *c, const char *table, const char *module, double *out,
                   struct error *e)
{
    const char *key;
    json_t *value;

    json_object_foreach(json_object_get(c->root, table), key, value)
    {
        int rc = key_matches(c, key, module, e);

        if (rc < 0)
            return rc;
        if (rc && (!json_is_number(value) || !isfinite(json_number_value(value))))
            return error_set(e, ERR_MODEL, "%s: %s: %.100s: a number is expected", c->path, table,
                             key);
        *out = rc ? json_number_value(value) : *out;
        if (rc)
            return 1;
    }
    return 0;
}

int peft_config_rank(const struct peft_config *c, const char *module, int *rank, float *scale,
                     struct error *e)
{
    double r = c->rank, alpha = c->alpha;
    int rc;

    if ((rc = look_up(c, "rank_pattern", module, &r, e)) < 0 ||
        (rc = look_up(c, "alpha_pattern", module, &alpha, e)) < 0)
        return rc;
    if (!(r >= 1.0 && r <= 65536.0 && r == floor(r)))
        return error_set(e, ERR_MODEL, "%s: rank_pattern: %g is no rank", c->path, r);
    *rank = (int)r;
    *scale = (float)(c->rslora ? alpha / sqrt(r) : alpha / r);
    return 0;
}

/* PEFT 0.19 transposed fused experts (peft/tuners/lora/layer.py, ParamWrapper). */
int peft_config_layout(const struct peft_config *c)
{
    const char *version = json_string_value(json_object_get(c->root, "peft_version"));
    int major, minor;

    if (!version || sscanf(version, "%d.%d", &major, &minor) != 2)
        return -1;
    return major > 0 || minor >= 19;
}

bool peft_config_targets(const struct peft_config *c, const char *parameter)
{
    const json_t *list = json_object_get(c->root, "target_parameters");
    size_t n = strlen(parameter);

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t m = name ? strlen(name) : 0;

        if (m >= n && strcmp(name + m - n, parameter) == 0 &&
            (m == n || name[m - n - 1] == '.'))
            return true;
    }
    return json_array_size(list) == 0;
}
