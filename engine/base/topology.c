/* See topology.h. hwloc supports more platforms and containers than parsing /sys ourselves. */
#include "engine/base/topology.h"

#include "engine/base/control_group.h"
#include "engine/base/hash.h"
#include "engine/base/log.h"

#include <assert.h>
#include <hwloc.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORES_MAX 1024

#if defined(__x86_64__) || defined(__i386__)
#define X86 true
#else
#define X86 false
#endif

static struct {
    int n, nodes, cpus[CORES_MAX], node[CORES_MAX], big, threads;
    /* cores of each kind, the fastest first, which is their order */
    int kinds, of_kind[TOPOLOGY_KINDS];
} machine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void topology_fast_first(const int *kind, int n, int *order)
{
    int at = 0;

    assert(n >= 0 && n <= CORES_MAX);
    for (int last = INT_MAX; at < n;) {
        int best = INT_MIN;

        for (int i = 0; i < n; i++)
            if (kind[i] < last && kind[i] > best)
                best = kind[i];
        for (int i = 0; i < n; i++)
            if (kind[i] == best)
                order[at++] = i;
        last = best;
    }
}

int topology_big(const int *capacity, int n)
{
    int most = 0, big = 0;

    for (int i = 0; i < n; i++)
        most = capacity[i] > most ? capacity[i] : most;
    for (int i = 0; i < n; i++)
        big += !capacity[i] || 5 * (int64_t)capacity[i] >= 3 * (int64_t)most;
    return big;
}

int topology_hybrid(struct topology_core *core, int n)
{
    int most = 0, left = 0;
    bool shared = false;

    for (int i = 0; i < n; i++) {
        most = core[i].mhz > most ? core[i].mhz : most;
        shared |= core[i].shared_cache;
    }
    for (int i = 0; i < n; i++)
        if ((!shared || core[i].shared_cache) &&
            (!core[i].mhz || 5 * (int64_t)core[i].mhz >= 3 * (int64_t)most))
            core[left++] = core[i];
    return left;
}

/* What the system says about a core. */
static void look_at(hwloc_topology_t t, hwloc_bitmap_t set, struct topology_core *c)
{
    struct hwloc_info_s *infos = NULL;
    unsigned count = 0;

    hwloc_bitmap_only(set, (unsigned)c->cpu);
    c->kind = hwloc_cpukinds_get_by_cpuset(t, set, 0);
    c->shared_cache = hwloc_get_next_obj_covering_cpuset_by_type(t, set, HWLOC_OBJ_L3CACHE, NULL);
    if (c->kind < 0 ||
        hwloc_cpukinds_get_info(t, (unsigned)c->kind, NULL, NULL, &count, &infos, 0) < 0)
        return;
    for (unsigned k = 0; k < count; k++) {
        if (!strcmp(infos[k].name, "LinuxCapacity"))
            c->capacity = atoi(infos[k].value);
        if (!strcmp(infos[k].name, "FrequencyMaxMHz"))
            c->mhz = atoi(infos[k].value);
        if (!strcmp(infos[k].name, "CoreType"))
            c->type = hash_bytes(HASH_START, infos[k].value, strlen(infos[k].value));
    }
}

/* Whether two cores of neighbouring kinds are alike but for the clock that the best of them reach.
 */
static bool alike(const struct topology_core *a, const struct topology_core *b)
{
    if (a->kind == b->kind)
        return true;
    if (a->type || b->type)
        return a->type == b->type;
    return a->mhz && b->mhz && 100 * (int64_t)b->mhz >= 88 * (int64_t)a->mhz;
}

/* Sorts the cores, the fast kinds first, and leaves those of low power out. */
static void sort_by_kind(hwloc_topology_t t)
{
    static struct topology_core core[CORES_MAX];
    int kind[CORES_MAX] = {0}, order[CORES_MAX], capacity[CORES_MAX];
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    bool hybrid = X86 && hwloc_cpukinds_get_nr(t, 0) > 1;

    for (int i = 0; i < machine.n; i++) {
        core[i] =
            (struct topology_core){.cpu = machine.cpus[i], .node = machine.node[i], .kind = -1};
        if (set)
            look_at(t, set, &core[i]);
    }
    hwloc_bitmap_free(set);
    if (hybrid)
        machine.n = topology_hybrid(core, machine.n);
    for (int i = 0; i < machine.n; i++) {
        kind[i] = core[i].kind;
        /* an efficiency core is worth a thread with a smaller share of the work */
        capacity[i] = hybrid ? 0 : core[i].capacity;
    }
    topology_fast_first(kind, machine.n, order);
    machine.kinds = 0;
    for (int i = 0; i < machine.n; i++) {
        const struct topology_core *c = &core[order[i]];

        machine.cpus[i] = c->cpu;
        machine.node[i] = c->node;
        if (i == 0 || (!alike(&core[order[i - 1]], c) && machine.kinds < TOPOLOGY_KINDS))
            machine.of_kind[machine.kinds++] = 0;
        machine.of_kind[machine.kinds - 1]++;
    }
    machine.big = topology_big(capacity, machine.n);
}

static int read_topology(hwloc_topology_t t, int *cpus, int *node_of, int max, int *nodes)
{
    hwloc_bitmap_t seen = hwloc_bitmap_alloc();
    hwloc_obj_t core = NULL;
    int n = 0;

    *nodes = 0;
    while (seen && n < max && (core = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_CORE, core))) {
        int cpu = core->cpuset ? hwloc_bitmap_first(core->cpuset) : -1;

        if (cpu < 0)
            continue;
        node_of[n] = core->nodeset && hwloc_bitmap_first(core->nodeset) >= 0
                         ? hwloc_bitmap_first(core->nodeset)
                         : 0;
        cpus[n++] = cpu;
        if (core->nodeset && hwloc_bitmap_first(core->nodeset) >= 0 &&
            !hwloc_bitmap_isset(seen, hwloc_bitmap_first(core->nodeset))) {
            hwloc_bitmap_set(seen, hwloc_bitmap_first(core->nodeset));
            (*nodes)++;
        }
    }
    hwloc_bitmap_free(seen);
    if (*nodes < 1)
        *nodes = 1;
    return n;
}

static int read_synthetic(const char *description, int *cpus, int *node_of, int max, int *nodes)
{
    hwloc_topology_t t;
    int n = -1;

    if (hwloc_topology_init(&t) < 0)
        return -1;
    if (hwloc_topology_set_synthetic(t, description) == 0 && hwloc_topology_load(t) == 0)
        n = read_topology(t, cpus, node_of, max, nodes);
    hwloc_topology_destroy(t);
    return n;
}

int topology_from_synthetic(const char *description, int *cpus, int max, int *nodes)
{
    int node_of[CORES_MAX];

    return read_synthetic(description, cpus, node_of, max < CORES_MAX ? max : CORES_MAX, nodes);
}

void topology_assign(const int *node, int n_cores, int n_threads, int *core)
{
    int cores[CORES_MAX] = {0}, threads[CORES_MAX] = {0}, given = 0, t = 0, first = 0;

    assert(n_cores > 0 && n_cores <= CORES_MAX);
    assert(n_threads >= 0 && n_threads <= n_cores);
    /* nodes numbered by their first core */
    for (int c = 0; c < n_cores; c++)
        for (int k = 0; k <= c; k++)
            if (node[k] == node[c]) {
                cores[k]++;
                break;
            }
    for (int k = 0; k < n_cores; k++)
        given += threads[k] = (int)((int64_t)n_threads * cores[k] / n_cores);
    for (; given < n_threads; given++) {
        int64_t most = -1;
        int at = 0;

        for (int k = 0; k < n_cores; k++) {
            int64_t lost = (int64_t)n_threads * cores[k] - (int64_t)threads[k] * n_cores;

            if (cores[k] > threads[k] && lost > most) {
                most = lost;
                at = k;
            }
        }
        threads[at]++;
    }
    for (first = 0; first < n_cores; first++)
        for (int c = first, left = threads[first]; c < n_cores && left > 0; c++)
            if (node[c] == node[first]) {
                core[t++] = c;
                left--;
            }
}

int topology_assign_synthetic(const char *description, int n_threads, int *cpus, int *nodes)
{
    int cpu[CORES_MAX], node[CORES_MAX], core[CORES_MAX], n_nodes,
        n = read_synthetic(description, cpu, node, CORES_MAX, &n_nodes);

    if (n < 0)
        return -1;
    n_threads = n_threads < n ? n_threads : n;
    topology_assign(node, n, n_threads, core);
    for (int i = 0; i < n_threads; i++) {
        cpus[i] = cpu[core[i]];
        nodes[i] = node[core[i]];
    }
    return n_threads;
}

int topology_quota(const char *root)
{
    double cpus = cpu_group_quota(root);

    return cpus < CORES_MAX ? (int)ceil(cpus) : 0;
}

static void read_machine(void)
{
    hwloc_topology_t t;
    int quota = topology_quota("");

    if (hwloc_topology_init(&t) == 0) {
        if (hwloc_topology_load(t) == 0)
            machine.n = read_topology(t, machine.cpus, machine.node, CORES_MAX, &machine.nodes);
        if (machine.n > 0)
            sort_by_kind(t);
        hwloc_topology_destroy(t);
    }
    if (machine.n < 1) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);

        machine.big = machine.n = online > 0 && online < CORES_MAX ? (int)online : 1;
        machine.nodes = machine.kinds = 1;
        machine.of_kind[0] = machine.n;
        log_write(LOG_LEVEL_INFO, "hwloc finds no cores, as without /sys: %d on one node are taken",
                  machine.n);
        for (int i = 0; i < machine.n; i++) {
            machine.cpus[i] = i;
            machine.node[i] = 0;
        }
    }
    machine.threads = quota > 0 && quota < machine.big ? quota : machine.big;
}

int topology_cores(void)
{
    pthread_once(&once, read_machine);
    return machine.n;
}

int topology_kinds(int cores[TOPOLOGY_KINDS])
{
    pthread_once(&once, read_machine);
    memcpy(cores, machine.of_kind, sizeof machine.of_kind);
    return machine.kinds;
}

int topology_default_threads(void)
{
    pthread_once(&once, read_machine);
    return machine.threads;
}

static int of_cores(const int *what, int *out, int max)
{
    int core[CORES_MAX], n = machine.n < max ? machine.n : max;

    assert(out && max >= 0);
    topology_assign(machine.node, machine.n, n, core);
    for (int i = 0; i < n; i++)
        out[i] = what[core[i]];
    return n;
}

int topology_core_cpus(int *cpus, int max)
{
    pthread_once(&once, read_machine);
    return of_cores(machine.cpus, cpus, max);
}

void topology_interleave(void *p, size_t bytes)
{
    hwloc_topology_t t;

    pthread_once(&once, read_machine);
    if (machine.nodes < 2 || hwloc_topology_init(&t) < 0)
        return;
    /* if the kernel refuses, first touch places the pages */
    if (hwloc_topology_load(t) == 0)
        hwloc_set_area_membind(t, p, bytes, hwloc_topology_get_topology_nodeset(t),
                               HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET);
    hwloc_topology_destroy(t);
}

int topology_core_nodes(int *nodes, int max)
{
    pthread_once(&once, read_machine);
    return of_cores(machine.node, nodes, max);
}

void topology_bind(void *p, const struct topology_slice *slices, int n)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    hwloc_topology_t t;

    assert(slices || n == 0);
    pthread_once(&once, read_machine);
    if (machine.nodes > 1 && set && hwloc_topology_init(&t) == 0) {
        if (hwloc_topology_load(t) == 0)
            /* not HWLOC_MEMBIND_STRICT: a full node must not cause failure or swapping */
            for (int i = 0; i < n; i++) {
                hwloc_bitmap_only(set, (unsigned)slices[i].node);
                hwloc_set_area_membind(t, (char *)p + slices[i].offset, slices[i].bytes, set,
                                       HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET);
            }
        hwloc_topology_destroy(t);
    }
    hwloc_bitmap_free(set);
}

int topology_nodes(void)
{
    pthread_once(&once, read_machine);
    return machine.nodes;
}
