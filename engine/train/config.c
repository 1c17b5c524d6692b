/* See config.h. */
#include "engine/train/config.h"

#include "engine/base/hash.h"
#include "engine/file/dtype.h"
#include "engine/layout/quantize.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_INT, KIND_REAL, KIND_FLAG, KIND_SEED, KIND_BETAS, KIND_BASE, KIND_TARGETS };

static const struct key {
    const char *name;
    enum kind kind;
    size_t at;
    double min, max;
} keys[] = {
#define AT(field) offsetof(struct train_config, field)
    {"steps", KIND_INT, AT(steps), 1, 1e8},
    {"epochs", KIND_REAL, AT(epochs), 1e-6, 1e6},
    {"batch", KIND_INT, AT(batch), 1, 4096},
    {"accumulation", KIND_INT, AT(accumulation), 1, 4096},
    {"lr", KIND_REAL, AT(lr), 0, 100},
    {"warmup_steps", KIND_INT, AT(warmup_steps), 0, 1e8},
    {"min_lr_ratio", KIND_REAL, AT(min_lr_ratio), 0, 1},
    {"betas", KIND_BETAS, AT(beta1), 0, 1},
    {"eps", KIND_REAL, AT(eps), 1e-30, 1},
    {"weight_decay", KIND_REAL, AT(weight_decay), 0, 100},
    {"clip", KIND_REAL, AT(clip), 0, 1e30},
    {"rank", KIND_INT, AT(rank), 1, 1024},
    {"alpha", KIND_REAL, AT(alpha), 1e-6, 1e6},
    {"experts", KIND_FLAG, AT(experts), 0, 0},
    {"targets", KIND_TARGETS, 0, 0, 0},
    {"base", KIND_BASE, AT(base), 0, 0},
    {"skip_expert_grad", KIND_FLAG, AT(skip_expert_grad), 0, 0},
    {"init_b", KIND_REAL, AT(init_b), 0, 100},
    {"seed", KIND_SEED, AT(seed), 0, 0},
    {"context", KIND_INT, AT(context), 2, 1 << 24},
    {"keep_activations", KIND_INT, AT(keep_activations), 0, 1 << 24},
    {"save_every", KIND_INT, AT(save_every), 0, 1e8},
#undef AT
};
#define KEYS ((int)(sizeof keys / sizeof *keys))

void train_config_init(struct train_config *c)
{
    *c = (struct train_config){.epochs = 3,
                               .batch = 8,
                               .accumulation = 1,
                               .lr = 2e-4,
                               .warmup_steps = -1,
                               .min_lr_ratio = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .weight_decay = 0.01,
                               .clip = 1.0,
                               .rank = 8,
                               .alpha = 16.0,
                               .attention = true,
                               .experts = true,
                               .base = TRAIN_BASE_KEEP,
                               .keep_activations = 256,
                               .save_every = 50};
}

const char *train_config_key(int i)
{
    return i >= 0 && i < KEYS ? keys[i].name : NULL;
}

bool train_config_ignores(const char *key)
{
    static const char *const names[] = {"checkpoint", "data", "initial", "grads", "comment"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i]) == 0)
            return true;
    return false;
}

static int set_number(const struct key *k, void *to, const char *text, struct error *e)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end || !(v >= k->min && v <= k->max) ||
        (k->kind == KIND_INT && v != floor(v)))
        return error_set(e, ERR_USAGE, "%s: %s of %g to %g is expected, not '%.40s'", k->name,
                         k->kind == KIND_INT ? "a whole number" : "a number", k->min, k->max, text);
    if (k->kind == KIND_INT)
        *(int *)to = (int)v;
    else
        *(double *)to = v;
    return 0;
}

static int set_flag(const struct key *k, bool *to, const char *text, struct error *e)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) {
            *to = i % 2;
            return 0;
        }
    return error_set(e, ERR_USAGE, "%s: true or false is expected, not '%.40s'", k->name, text);
}

static int set_seed(const struct key *k, uint64_t *to, const char *text, struct error *e)
{
    char *end;

    *to = strtoull(text, &end, 10);
    return end != text && !*end && *text != '-'
               ? 0
               : error_set(e, ERR_USAGE, "%s: a whole number is expected, not '%.40s'", k->name,
                           text);
}

/* "0.9,0.999" */
static int set_betas(struct train_config *c, const char *text, struct error *e)
{
    char *end;
    double a = strtod(text, &end), b = *end == ',' ? strtod(end + 1, &end) : -1.0;

    if (*end || !(a >= 0 && a < 1) || !(b >= 0 && b < 1))
        return error_set(e, ERR_USAGE,
                         "betas: two numbers below 1 are expected, such as 0.9,0.999, not '%.40s'",
                         text);
    c->beta1 = a;
    c->beta2 = b;
    return 0;
}

static int set_base(int *to, const char *text, struct error *e)
{
    int type = strcmp(text, "keep") == 0 ? TRAIN_BASE_KEEP : dtype_from_word(text);

    if (type < 0 && strcmp(text, "keep") != 0)
        return error_set(e, ERR_USAGE, "base: '%.40s' is no type of weights", text);
    if (type >= 0 && !quantise_known((enum dtype)type))
        return error_set(e, ERR_USAGE,
                         "base: weights are not rounded to %.40s here; give a file that --quantize "
                         "made of it",
                         text);
    *to = type;
    return 0;
}

/* "attention,experts" */
static int set_targets(struct train_config *c, const char *text, struct error *e)
{
    bool attention = false, experts = false;

    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");

        if (n == 9 && memcmp(p, "attention", n) == 0)
            attention = true;
        else if (n == 7 && memcmp(p, "experts", n) == 0)
            experts = true;
        else
            return error_set(e, ERR_USAGE,
                             "targets: attention, experts or both with a comma between are "
                             "expected, not '%.40s'",
                             text);
        p += n;
        if (!*p)
            break;
    }
    c->attention = attention;
    c->experts = experts;
    return 0;
}

int train_config_set(struct train_config *c, const char *key, const char *text, struct error *e)
{
    for (int i = 0; i < KEYS; i++) {
        void *to = (char *)c + keys[i].at;

        if (strcmp(keys[i].name, key) != 0)
            continue;
        switch (keys[i].kind) {
        case KIND_FLAG: return set_flag(&keys[i], to, text, e);
        case KIND_SEED: return set_seed(&keys[i], to, text, e);
        case KIND_BETAS: return set_betas(c, text, e);
        case KIND_BASE: return set_base(to, text, e);
        case KIND_TARGETS: return set_targets(c, text, e);
        default: return set_number(&keys[i], to, text, e);
        }
    }
    return error_set(e, ERR_USAGE, "%.60s: no such setting", key);
}

int train_config_settle(struct train_config *c, int lines, struct error *e)
{
    double a_step = (double)c->batch * c->accumulation;

    if (!c->attention && !c->experts)
        return error_set(e, ERR_USAGE, "no matrix is left to hang an adapter on: see targets");
    if (!c->steps) {
        double steps = ceil(c->epochs * lines / a_step);

        if (steps > 1e8)
            return error_set(e, ERR_USAGE, "epochs: %g of %d lines are too many steps", c->epochs,
                             lines);
        c->steps = steps < 1 ? 1 : (int)steps;
    }
    if (c->warmup_steps < 0)
        c->warmup_steps = c->steps / 20;
    if (c->warmup_steps > c->steps)
        return error_set(e, ERR_USAGE, "warmup_steps: %d are more than the run's %d steps",
                         c->warmup_steps, c->steps);
    return 0;
}

double train_config_lr(const struct train_config *c, int k)
{
    double turn;

    if (k < c->warmup_steps)
        return c->lr * (k + 1) / c->warmup_steps;
    turn = cos(3.14159265358979323846 * (k - c->warmup_steps) / (c->steps - c->warmup_steps));
    return c->lr * (c->min_lr_ratio + (1.0 - c->min_lr_ratio) * 0.5 * (1.0 + turn));
}

uint64_t train_config_hash(const struct train_config *c)
{
    const double reals[] = {c->lr,  c->min_lr_ratio, c->beta1, c->beta2, c->eps,
                            c->weight_decay, c->clip, c->alpha, c->init_b};
    const int whole[] = {c->steps,     c->batch,   c->accumulation,     c->warmup_steps, c->rank,
                         c->attention, c->experts, c->skip_expert_grad, c->base};
    uint64_t h = hash_bytes(HASH_START, reals, sizeof reals);

    return hash_add(hash_bytes(h, whole, sizeof whole), c->seed);
}
