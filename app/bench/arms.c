/* The arms of a benchmark: sets of options measured in turn, from --arms and from llama-bench's
 * lists of values, and their engines. Main thread. Each arm owns a complete copy of the options, so
 * that an arm can have any of the command line. */
#include "app/setup/engine_options.h"
#include "app/bench/internal.h"
#include "app/bench/args.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int arm_option(struct bench_arm *a, enum option_id id, const char *value, const char *flag,
                      struct error *e)
{
    size_t n = strlen(a->label);

    snprintf(a->label + n, sizeof a->label - n, "%s%s %s", n ? " " : "", flag, value);
    /* highest precedence: this is what defines the arm */
    return options_set(&a->o, &option_table[id], value, ORIGIN_CHAT, flag, e);
}

static int arm_words(struct bench_arm *a, char **words, struct error *e)
{
    char *argv[66] = {(char *)"--arms"};
    size_t n = strlen(a->label);
    int argc = 1, rc;

    for (; words[argc - 1] && argc < 65; argc++) {
        argv[argc] = words[argc - 1];
        snprintf(a->label + n, sizeof a->label - n, "%s%s", n ? " " : "", words[argc - 1]);
        n = strlen(a->label);
    }
    rc = options_parse(&a->o, argc, argv, e);
    return rc < 0 ? error_prefix(e, "--arms") : 0;
}

/* A dimension of llama-bench's matrix: values of one option. */
struct dimension {
    enum option_id id;
    const char *flag;
    const struct option_list *list;
    bool numbers;
};

static int dimension_values(const struct dimension *d, char (**values)[16], size_t *n,
                            struct error *e)
{
    int *numbers = NULL, rc = 0;

    *n = 0;
    *values = NULL;
    if (!d->list->n)
        return 0;
    if (d->numbers) {
        rc = bench_numbers(d->list, d->flag, &numbers, n, e);
        *values = rc == 0 ? mem_alloc(*n, sizeof **values) : NULL;
        for (size_t i = 0; i < *n && *values; i++)
            snprintf((*values)[i], 16, "%d", numbers[i]);
        mem_free(numbers);
    } else {
        for (size_t i = 0; i < d->list->n; i++)
            for (const char *p = d->list->items[i]; *p; p += strcspn(p, ","), p += *p == ',')
                ++*n;
        *values = mem_alloc(*n ? *n : 1, sizeof **values);
        *n = 0;
        for (size_t i = 0; i < d->list->n && *values; i++)
            for (const char *p = d->list->items[i]; *p; p += strcspn(p, ","), p += *p == ',')
                snprintf((*values)[(*n)++], 16, "%.*s", (int)strcspn(p, ","), p);
    }
    if (rc == 0 && !*values)
        rc = error_set(e, ERR_MEMORY, "out of memory for %s", d->flag);
    return rc;
}

/* Multiplies the present arms by the values of a dimension. */
static int multiply_arms(struct bench *b, const struct dimension *d, struct error *e)
{
    char(*values)[16];
    size_t n, old = b->n_arms;
    struct bench_arm *more;
    int rc = dimension_values(d, &values, &n, e);

    if (rc < 0 || n == 0)
        return rc;
    more = mem_alloc(old * n, sizeof *more);
    if (!more)
        rc = error_set(e, ERR_MEMORY, "out of memory for %zu arms", old * n);
    for (size_t i = 0; i < old * n && rc == 0; i++) {
        struct bench_arm *from = &b->arms[i / n];
        /* --arms overrides the options shared by all arms */
        bool own = from->o.origin[d->id].from == ORIGIN_FLAG &&
                   b->o->origin[d->id].from != ORIGIN_FLAG;

        rc = options_copy(&more[i].o, &from->o, e);
        if (rc < 0)
            break;
        memcpy(more[i].label, from->label, sizeof from->label);
        if (own && n > 1)
            rc = error_set(e, ERR_USAGE,
                           "--arms and %s both say what %s is to be compared; give one of them",
                           d->flag, d->flag);
        else if (own)
            rc = 0;
        else if (n > 1)
            rc = arm_option(&more[i], d->id, values[i % n], d->flag, e);
        else
            rc = options_set(&more[i].o, &option_table[d->id], values[0], ORIGIN_CHAT, d->flag, e);
    }
    mem_free(values);
    if (rc < 0) {
        for (size_t i = 0; more && i < old * n; i++)
            if (more[i].label[0] || more[i].o.model)
                options_release(&more[i].o);
        mem_free(more);
        return rc;
    }
    for (size_t i = 0; i < old; i++)
        options_release(&b->arms[i].o);
    mem_free(b->arms);
    b->arms = more;
    b->n_arms = old * n;
    return 0;
}

int bench_arms_make(struct bench *b, const struct options *o, struct error *e)
{
    const struct dimension dimensions[] = {
        {OPTION_ID_threads, "-t", &o->bench_threads, true},
        {OPTION_ID_ubatch_size, "-ub", &o->bench_ubatch, true},
        {OPTION_ID_cache_type_k, "-ctk", &o->bench_ctk, false},
        {OPTION_ID_cache_type_v, "-ctv", &o->bench_ctv, false},
    };
    char ***words = NULL;
    size_t n = 1;
    int rc = 0;

    if (o->arms && (rc = bench_arms(o->arms, &words, &n, e)) < 0)
        return rc;
    b->arms = mem_alloc(n, sizeof *b->arms);
    if (!b->arms)
        rc = error_set(e, ERR_MEMORY, "out of memory for the arms");
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = options_copy(&b->arms[i].o, o, e);
        if (rc == 0) {
            b->n_arms = i + 1;
            rc = words ? arm_words(&b->arms[i], words[i], e) : 0;
        }
    }
    mem_free(words);
    for (size_t i = 0; i < sizeof dimensions / sizeof *dimensions && rc == 0; i++)
        rc = multiply_arms(b, &dimensions[i], e);
    return rc;
}

/* Two arms that differ only in placement and routing share an engine. */
static bool same_engine(const struct options *a, const struct options *b)
{
    char x[4096], y[4096];

    for (int i = 0; i < OPTION_COUNT; i++) {
        if (i == OPTION_ID_place || i == OPTION_ID_place_prompt || i == OPTION_ID_routing)
            continue;
        option_value(a, &option_table[i], x, sizeof x);
        option_value(b, &option_table[i], y, sizeof y);
        if (strcmp(x, y) != 0)
            return false;
    }
    return true;
}

/* Notices of the engine (a missing device, a refused block) matter to the measurement, so they are
 * printed. */
static void put_notice(void *ctx, const char *line)
{
    /* the engines of several arms send the same notices: print each once */
    static char last[700];

    if (strncmp(last, line, sizeof last - 1) == 0)
        return;
    snprintf(last, sizeof last, "%s", line);
    fprintf(stderr, "moetop: %s\n", line);
}

/* The counts of an arm, and its imposed routing: the same table in every run, and for every arm of
 * a kind. */
static int arm_routing(struct bench_arm *a, struct error *e)
{
    const struct hparams *hp = &engine_info(a->g)->model->hp;
    enum bench_routing kind = (enum bench_routing)a->o.routing;
    int rc = usage_model_init(&a->usage, hp, e);

    if (rc == 0 && kind >= ROUTING_UNIFORM)
        rc = bench_routing_init(&a->imposed, kind, hp->n_layers, hp->n_experts, hp->n_experts_used,
                                1, e);
    return rc;
}

int bench_arms_open(struct bench *b, int context, struct error *e)
{
    int rc = 0;

    for (size_t i = 0; i < b->n_arms && rc == 0; i++) {
        struct bench_arm *a = &b->arms[i];
        struct engine_setup s;
        char text[16];

        for (size_t k = 0; k < i && !a->g; k++)
            if (b->arms[k].owns_engine && same_engine(&a->o, &b->arms[k].o)) {
                a->g = b->arms[k].g;
                a->in_cache = b->arms[k].in_cache;
            }
        if (!a->g) {
            if (a->o.ctx_size < context) {
                snprintf(text, sizeof text, "%d", context);
                if ((rc = options_set(&a->o, &option_table[OPTION_ID_ctx_size], text, ORIGIN_CHAT,
                                      NULL, e)) < 0)
                    return rc;
            }
            rc = engine_setup_prepare(&a->o, &s, isatty(STDERR_FILENO), e);
            if (rc == 0) {
                s.config.opened = NULL; /* every test applies its own placement */
                if (!s.config.log)
                    s.config.log = put_notice;
                rc = engine_open(&a->g, &s.config, e);
                engine_setup_release(&s);
            }
            a->owns_engine = rc == 0;
            if (rc == 0)
                engine_tune(a->g);
        }
        if (rc == 0)
            rc = arm_routing(a, e);
        if (rc == 0)
            roofline_init(&a->roofline, engine_info(a->g)->model, (enum kv_type)a->o.cache_type_k,
                          (enum kv_type)a->o.cache_type_v);
        if (rc == 0 && a->owns_engine)
            a->in_cache = membw_cached(a->roofline.all_weights, engine_info(a->g)->n_threads);
        if (rc < 0 && a->label[0])
            error_prefix(e, "%s", a->label);
    }
    return rc;
}

/* Token i of repetition `seed`: from the text, wrapped around, or random. A single repeated token
 * would choose the same experts every time. */
int bench_token_at(const struct bench *b, const struct bench_arm *a, int i, unsigned seed)
{
    uint64_t h = ((uint64_t)seed << 32 | (unsigned)i) * 0x9e3779b97f4a7c15u;

    if (b->text && a->o.routing != ROUTING_RANDOM)
        return b->text[i % b->n_text];
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
    return (int)((h ^ h >> 32) % (uint64_t)engine_info(a->g)->model->hp.n_vocab);
}

int *bench_tokens(const struct bench *b, const struct bench_arm *a, int from, int n, unsigned seed,
                  struct error *e)
{
    int *ids = mem_alloc((size_t)n + 1, sizeof *ids);

    if (!ids)
        error_set(e, ERR_MEMORY, "out of memory for %d tokens", n);
    for (int i = 0; i < n && ids; i++)
        ids[i] = bench_token_at(b, a, from + i, seed);
    return ids;
}

void bench_arms_release(struct bench *b)
{
    for (size_t i = 0; i < b->n_arms; i++) {
        if (b->arms[i].owns_engine)
            engine_close(b->arms[i].g);
        plan_free(b->arms[i].plan);
        plan_free(b->arms[i].prompt_plan);
        usage_release(&b->arms[i].usage);
        bench_routing_release(&b->arms[i].imposed);
        options_release(&b->arms[i].o);
    }
    mem_free(b->arms);
}
