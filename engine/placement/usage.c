/* See usage.h. */
#include "engine/placement/usage.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int usage_init(struct usage *u, int n_layers, int n_experts, int n_used, struct error *e)
{
    size_t layers = (size_t)n_layers, cells = layers * (size_t)n_experts;

    assert(n_layers > 0 && n_experts > 0 && n_used > 0 && n_used <= n_experts);
    *u = (struct usage){
        .n_layers = n_layers, .n_experts = n_experts, .n_used = n_used, .next_pos = -1};
    u->count = mem_alloc(cells, sizeof *u->count);
    u->weight = mem_alloc(cells, sizeof *u->weight);
    u->same_as_before = mem_alloc(layers, sizeof *u->same_as_before);
    u->same_as_below = mem_alloc(layers, sizeof *u->same_as_below);
    u->before = mem_alloc(layers * (size_t)n_used, sizeof *u->before);
    u->routed = mem_alloc(layers, sizeof *u->routed);
    u->called = mem_alloc(layers, sizeof *u->called);
    if (!u->count || !u->weight || !u->same_as_before || !u->same_as_below || !u->before ||
        !u->routed || !u->called) {
        usage_release(u);
        return error_set(e, ERR_MEMORY, "out of memory for counting experts");
    }
    for (size_t l = 0; l < layers; l++) {
        u->routed[l] = n_experts;
        u->called[l] = n_used;
    }
    return 0;
}

void usage_layers(struct usage *u, const struct hparams *hp)
{
    assert(u->n_layers == hp->n_layers);
    for (int l = 0; l < u->n_layers; l++) {
        u->routed[l] = hparams_layer(hp, l)->ffn.experts;
        u->called[l] = hparams_layer(hp, l)->ffn.used;
    }
}

int usage_model_init(struct usage *u, const struct hparams *hp, struct error *e)
{
    int rc = usage_init(u, hp->n_layers, hp->n_experts, hp->n_experts_used, e);

    if (rc == 0)
        usage_layers(u, hp);
    return rc;
}

void usage_release(struct usage *u)
{
    mem_free(u->count);
    mem_free(u->weight);
    mem_free(u->same_as_before);
    mem_free(u->same_as_below);
    mem_free(u->before);
    mem_free(u->routed);
    mem_free(u->called);
    memset(u, 0, sizeof *u);
}

void usage_clear(struct usage *u)
{
    size_t layers = (size_t)u->n_layers, cells = layers * (size_t)u->n_experts;

    memset(u->count, 0, cells * sizeof *u->count);
    memset(u->weight, 0, cells * sizeof *u->weight);
    memset(u->same_as_before, 0, layers * sizeof *u->same_as_before);
    memset(u->same_as_below, 0, layers * sizeof *u->same_as_below);
    u->tokens = u->follow = 0;
    u->next_pos = -1;
}

/* Of the first n, how many are among the first m. */
static int common(const int *a, int n, const int *b, int m)
{
    int same = 0;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            same += a[i] == b[j];
    return same;
}

void usage_add(struct usage *u, int rows, int pos, const int *experts, const float *weights)
{
    int k = u->n_used;

    assert(rows >= 0 && pos >= 0);
    for (int r = 0; r < rows; r++) {
        bool follows = pos + r > 0 && u->next_pos == pos + r;

        for (int l = 0; l < u->n_layers; l++) {
            const int *here = experts + ((size_t)l * (size_t)rows + (size_t)r) * (size_t)k,
                      *below = here - (size_t)rows * (size_t)k;
            const float *w = weights + (here - experts);

            for (int i = 0; i < k; i++) {
                if (here[i] < 0) /* the layer has fewer experts than others */
                    continue;
                assert(here[i] < u->n_experts);
                u->count[l * u->n_experts + here[i]] += 1;
                u->weight[l * u->n_experts + here[i]] += (double)w[i];
            }
            if (follows)
                u->same_as_before[l] += common(here, u->called[l], u->before + l * k, u->called[l]);
            if (l)
                u->same_as_below[l] += common(here, u->called[l], below, u->called[l - 1]);
            memcpy(u->before + l * k, here, (size_t)k * sizeof *here);
        }
        u->follow += follows;
        u->tokens++;
        u->next_pos = pos + r + 1;
    }
}

struct usage_layer usage_layer(const struct usage *u, int layer)
{
    const double *c = u->count + layer * u->n_experts, *b = layer ? c - u->n_experts : NULL;
    struct usage_layer s = {0};
    double calls = 0, most = 0, tokens = (double)u->tokens, k = u->called[layer];
    int experts = u->routed[layer];

    assert(layer >= 0 && layer < u->n_layers);
    for (int x = 0; x < experts; x++) {
        calls += c[x];
        most = c[x] > most ? c[x] : most;
        s.unused += c[x] <= 0;
    }
    if (calls <= 0 || tokens <= 0)
        return (struct usage_layer){0};
    s.chooses = experts > u->called[layer];
    s.unused /= experts;
    s.imbalance = most * experts / calls;
    for (int x = 0; x < experts; x++) {
        /* share of the calls; probability that a token calls it */
        double p = c[x] / calls, in = c[x] / tokens;

        s.entropy -= p > 0 ? p * log2(p) : 0;
        s.overlap_chance += in * in / k;
        s.below_chance += b && x < u->routed[layer - 1] ? in * b[x] / tokens / k : 0;
    }
    s.entropy_share = experts > 1 ? s.entropy / log2(experts) : 1;
    s.overlap = u->follow ? u->same_as_before[layer] / ((double)u->follow * k) : 0;
    s.below = u->same_as_below[layer] / (tokens * k);
    return s;
}

/* Whether there is a choice: not if a token calls all experts. */
static bool chooses(const struct usage *u, int layer)
{
    return u->routed[layer] > u->called[layer];
}

struct usage_layer usage_mean(const struct usage *u)
{
    struct usage_layer m = {0};
    int n = 0, pairs = 0;

    for (int l = 0; l < u->n_layers; l++) {
        n += chooses(u, l);
        pairs += l && chooses(u, l) && chooses(u, l - 1);
    }
    for (int l = 0; l < u->n_layers; l++) {
        struct usage_layer s = usage_layer(u, l);

        if (!chooses(u, l))
            continue;
        m.chooses |= s.chooses;
        m.entropy += s.entropy / n;
        m.entropy_share += s.entropy_share / n;
        m.imbalance += s.imbalance / n;
        m.unused += s.unused / n;
        m.overlap += s.overlap / n;
        m.overlap_chance += s.overlap_chance / n;
        if (l && chooses(u, l - 1)) {
            m.below += s.below / pairs;
            m.below_chance += s.below_chance / pairs;
        }
    }
    return m;
}

double usage_likeness(const struct usage *a, const struct usage *b)
{
    double sum = 0;
    int n = 0;

    if (a->n_layers != b->n_layers || a->n_experts != b->n_experts || !a->n_layers)
        return 0;
    for (int l = 0; l < a->n_layers; l++) {
        double in_a = 0, in_b = 0, same = 0;

        if (!chooses(a, l))
            continue;
        n++;
        for (int x = 0; x < a->routed[l]; x++) {
            in_a += a->count[l * a->n_experts + x];
            in_b += b->count[l * b->n_experts + x];
        }
        for (int x = 0; x < a->routed[l] && in_a > 0 && in_b > 0; x++) {
            double p = a->count[l * a->n_experts + x] / in_a,
                   q = b->count[l * b->n_experts + x] / in_b;

            same += p < q ? p : q;
        }
        sum += same;
    }
    return n ? sum / n : 0;
}
