/* The number of threads that decodes fastest (shape_table.h): the number of physical cores, unless
 * fewer are measured to be faster by more than the noise; fewer may saturate the memory, and on a
 * busy machine the last ones may only slow it down. Threads are on the fast kinds of cores first,
 * so a number also says which: those of the fastest kind alone are among the candidates. Prefill,
 * which is bound by computing, uses all of them. Engine thread, no job running: some layers of a
 * token at a time, with each number of threads in turn. */
#include "engine/device/cpu/cpu.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/topology.h"

/* per sample: some milliseconds, and other weights than in the previous one */
#define LAYERS 4
#define CANDIDATES (4 + TOPOLOGY_KINDS)
#define BUDGET_NS (400 * CLOCK_MILLI)

struct decode {
    struct layers_job job;
    float *start;
};

static uint64_t sample(struct cpu_device *d, struct decode *m, int threads, int round)
{
    int layers = d->model->hp.n_layers, n = layers < LAYERS ? layers : LAYERS;
    uint64_t start;
    struct error e;

    for (int i = 0; i < d->model->hp.hidden; i++)
        m->job.x[i] = m->start[i];
    m->job.first = round * n % (layers / n * n);
    m->job.last = m->job.first + n;
    crowd_init(&d->decoding, threads);
    start = clock_now();
    if (d->base.ops->layers((struct device *)d, &m->job, &e) < 0)
        return 0;
    return clock_now() - start + 1;
}

static int add_candidate(int *list, int n, int threads)
{
    for (int i = 0; i < n; i++)
        if (list[i] == threads)
            return n;
    list[n] = threads;
    return n + 1;
}

int tuning_decode(struct cpu_device *d, int pos)
{
    const struct hparams *hp = &d->model->hp;
    size_t used = (size_t)(LAYERS * hp->n_experts_used), hidden = (size_t)hp->hidden;
    int list[CANDIDATES], n = add_candidate(list, 0, d->n_threads), best = 0, round = 0;
    struct device_stats stats = d->stats;
    double ns[CANDIDATES][TUNE_PAIRS];
    uint64_t end = clock_now() + BUDGET_NS, took = 1;
    struct decode m;
    int of_kind[TOPOLOGY_KINDS], cores = 0;
    float *memory;

    /* threads of one node are adjacent: the last ones of several nodes are a whole node's */
    if (d->model->cache || hparams_beside(hp) || !d->base.config.fewer_threads ||
        d->n_threads < 2 || topology_nodes() > 1 || pos < 0 || pos >= d->context ||
        !d->base.config.rope_cos[0])
        return 0;
    if (!(memory = mem_alloc(2 * hidden + 2 * used, sizeof *memory)))
        return 0;
    n = add_candidate(list, n, d->n_threads - 1);
    n = add_candidate(list, n, (3 * d->n_threads + 3) / 4);
    n = add_candidate(list, n, (d->n_threads + 1) / 2);
    for (int k = 0, kinds = topology_kinds(of_kind); k < kinds; k++)
        if ((cores += of_kind[k]) < d->n_threads) /* none of the slower kinds */
            n = add_candidate(list, n, cores);
    m = (struct decode){{.rows = 1,
                         .pos = pos,
                         .x = memory,
                         .weights = memory + 2 * hidden,
                         .experts = (int *)(void *)(memory + 2 * hidden + used)},
                        memory + hidden};
    for (size_t i = 0; i < hidden; i++)
        m.start[i] = (float)((i * 2654435761u >> 7) % 2001) / 1000.0f - 1.0f;
    for (; round <= TUNE_PAIRS && took && clock_now() < end; round++) /* round 0 warms up */
        for (int i = 0; i < n && took; i++) {
            took = sample(d, &m, list[i], round + 3 * i);
            if (round > 0)
                ns[i][round - 1] = (double)took;
        }
    for (int i = 1; i < n && took && round > TUNE_PAIRS; i++)
        if (tune_faster(ns[best], ns[i]))
            best = i;
    crowd_init(&d->decoding, list[best]);
    d->stats = stats;
    mem_free(memory);
    return took && round > TUNE_PAIRS ? list[best] : 0;
}
