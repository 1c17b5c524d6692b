/* See price_arms.h. Each arm owns a complete copy of the options, so that it can have any option of
 * opening a model. */
#include "app/quality/price_arms.h"

#include "app/setup/engine_options.h"
#include "app/setup/fit_remedy.h"
#include "engine/base/mem.h"
#include "engine/device/state.h"
#include "engine/model/model.h"

#include <stdio.h>
#include <string.h>

#define ARMS_MOST 32
#define ALL "all"

/* The settings of --price all that apply to the model. */
static const struct {
    const char *setting;
    bool floats, bf16, cache_blocks; /* if weights are such; if heads are whole blocks */
} lossy[] = {
    {.setting = "cache-type-k=f16+cache-type-v=f16"},
    {"cache-type-k=q8_0+cache-type-v=q8_0", .cache_blocks = true},
    {"no-exact", .bf16 = true},
    {"float-gemm=onednn", .floats = true},
    {"dtype=bf16", .floats = true},
    {"dtype=q8_0", .floats = true},
    {"dtype=q4_0", .floats = true},
};

/* Settings of the base, unless the user sets them. */
static const struct {
    enum option_id id;
    const char *value;
} exact[] = {{OPTION_ID_exact, "true"},       {OPTION_ID_cache_type_k, "f32"},
             {OPTION_ID_cache_type_v, "f32"}, {OPTION_ID_float_gemm, "own"},
             {OPTION_ID_defer_experts, "0"},  {OPTION_ID_dtype, "keep"},
             {OPTION_ID_experts_used, "0"},   {OPTION_ID_experts_weight, "0"}};

static int add_arm(struct price_arms *a, const struct options *o, const char *label,
                   struct error *e)
{
    struct price_arm *arm = &a->all[a->n];
    int rc;

    if (a->n == ARMS_MOST)
        return error_set(e, ERR_USAGE, "--price: more than %d settings", ARMS_MOST - 1);
    if ((rc = options_copy(&arm->o, o, e)) < 0)
        return rc;
    snprintf(arm->label, sizeof arm->label, "%s", label);
    a->n++;
    return 0;
}

/* One "OPTION=VALUE" or, for a flag, "OPTION" or "no-OPTION". */
static int set_one(struct options *o, const char *text, struct error *e)
{
    char name[160];
    const char *value = strchr(text, '=');
    const struct option *option;
    bool off;

    snprintf(name, sizeof name, "%.*s", value ? (int)(value - text) : (int)strlen(text), text);
    off = !value && strncmp(name, "no-", 3) == 0 && !options_find(name);
    option = options_find(name + (off ? 3 : 0));
    if (!option) {
        option = options_nearest(name, 0);
        return error_set(e, ERR_USAGE, "--price: no option '%s'%s%s", name,
                         option ? "; did you mean " : "", option ? option->name : "");
    }
    if (option->group != GROUP_MODEL && option->group != GROUP_PLACEMENT)
        return error_set(e, ERR_USAGE, "--price: %s changes nothing that a model computes",
                         option->name);
    if (!value && option->type != OPTION_FLAG)
        return error_set(e, ERR_USAGE, "--price: %s needs a value: %s=%s", option->name,
                         option->name, option->argument);
    return options_set(o, option,
                       value ? value + 1
                       : off ? "false"
                             : "true",
                       ORIGIN_CHAT, "--price", e);
}

/* "A=1+B=2": both at once. */
static int add_setting(struct price_arms *a, const char *text, size_t n, struct error *e)
{
    char label[160], one[160];
    int rc;

    if (!n || n >= sizeof label)
        return error_set(e, ERR_USAGE, "--price: a setting is OPTION=VALUE; '%.*s' is none",
                         n < 60 ? (int)n : 60, text);
    snprintf(label, sizeof label, "%.*s", (int)n, text);
    if ((rc = add_arm(a, &a->all[0].o, label, e)) < 0)
        return rc;
    for (const char *p = label; rc == 0; p++) {
        size_t m = strcspn(p, "+");

        snprintf(one, sizeof one, "%.*s", (int)m, p);
        rc = set_one(&a->all[a->n - 1].o, one, e);
        p += m;
        if (!*p)
            break;
    }
    return rc;
}

static int add_lossy(struct price_arms *a, struct error *e)
{
    struct engine_setup s;
    struct model_footprint ignored;
    struct model *m;
    bool floats, bf16, blocks;
    char same[24], fewer[32];
    int used, rc = engine_setup_init(&a->all[0].o, &s, e);

    if (rc < 0)
        return rc;
    rc = fit_inspect(&s.config, &m, &ignored, e);
    engine_setup_release(&s);
    if (rc < 0)
        return rc;
    floats = !dtype_is_quantised(m->type);
    bf16 = m->type == DTYPE_BF16 || m->packing_method[0];
    blocks = state_not_blocks(&m->hp, KV_Q8_0, KV_Q8_0) == 0;
    snprintf(same, sizeof same, "dtype=%s", dtype_info(m->type)->word);
    used = m->hp.n_experts_used;
    snprintf(fewer, sizeof fewer, "experts-used=%d", used / 2);
    model_free(m);
    for (size_t i = 0; i < sizeof lossy / sizeof *lossy && rc == 0; i++)
        if ((floats || !lossy[i].floats) && (bf16 || !lossy[i].bf16) &&
            (blocks || !lossy[i].cache_blocks) && strcmp(lossy[i].setting, same))
            rc = add_setting(a, lossy[i].setting, strlen(lossy[i].setting), e);
    if (rc == 0 && used > 1)
        rc = add_setting(a, fewer, strlen(fewer), e);
    if (rc == 0 && a->all[0].o.place && *a->all[0].o.place)
        rc = add_setting(a, "defer-experts=1", strlen("defer-experts=1"), e);
    return rc;
}

int price_arms_init(struct price_arms *a, const struct options *o, int context, struct error *e)
{
    char tokens[16];
    int rc;

    *a = (struct price_arms){.all = mem_alloc(ARMS_MOST, sizeof *a->all)};
    if (!a->all)
        return error_set(e, ERR_MEMORY, "out of memory for --price");
    if ((rc = add_arm(a, o, "base", e)) < 0)
        return rc;
    for (size_t i = 0; i < sizeof exact / sizeof *exact && rc == 0; i++)
        if (o->origin[exact[i].id].from < ORIGIN_FLAG)
            rc = options_set(&a->all[0].o, &option_table[exact[i].id], exact[i].value, ORIGIN_CHAT,
                             "--price", e);
    snprintf(tokens, sizeof tokens, "%d", context);
    if (rc == 0 && !o->ctx_size)
        rc = options_set(&a->all[0].o, &option_table[OPTION_ID_ctx_size], tokens, ORIGIN_CHAT,
                         "--price", e);
    if (rc == 0 && strcmp(o->price, ALL) == 0)
        return add_lossy(a, e);
    for (const char *p = o->price; rc == 0; p++) {
        size_t n = strcspn(p, ",");

        rc = add_setting(a, p, n, e);
        p += n;
        if (!*p)
            break;
    }
    return rc;
}

void price_arms_release(struct price_arms *a)
{
    for (int i = 0; i < a->n; i++) {
        price_arm_close(&a->all[i]);
        options_release(&a->all[i].o);
        mem_free(a->all[i].kl);
        mem_free(a->all[i].diff);
        series_release(&a->all[i].prefill);
        series_release(&a->all[i].decode);
    }
    mem_free(a->all);
    *a = (struct price_arms){0};
}

bool price_arms_fit(const struct price_arms *a)
{
    uint64_t needed = 0, available = fit_available();
    struct error ignored;

    for (int i = 0; i < a->n; i++) {
        struct engine_setup s;
        struct fit f;
        int rc;

        if (engine_setup_init(&a->all[i].o, &s, &ignored) < 0)
            return false;
        rc = fit_measure_fast(&s.config, &f, &ignored);
        engine_setup_release(&s);
        if (rc < 0)
            return true; /* opening it reports the error */
        needed += fit_needed(&f);
    }
    return needed <= available;
}

int price_arm_open(struct price_arm *a, struct error *e)
{
    const struct telemetry *t;
    int rc;

    if (a->engine)
        return 0;
    if ((rc = engine_setup_open(&a->o, &a->engine, e)) < 0)
        return error_prefix(e, "%s", a->label);
    t = engine_telemetry(a->engine);
    a->bytes = t->weights_packed + t->weights_mapped + t->kv_bytes + t->scratch_bytes;
    return 0;
}

void price_arm_close(struct price_arm *a)
{
    engine_close(a->engine);
    a->engine = NULL;
}

bool price_arm_by_token(const struct price_arm *a)
{
    return a->o.defer_experts > 0;
}
