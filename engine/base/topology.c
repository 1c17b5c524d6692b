/* See topology.h. hwloc knows more platforms and containers than /sys parsing of ours would. */
#include "engine/base/topology.h"

#include <hwloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORES_MAX 1024

static struct {
    int n, nodes, cpus[CORES_MAX], threads;
} machine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int read_topology(hwloc_topology_t t, int *cpus, int max, int *nodes)
{
    hwloc_bitmap_t seen = hwloc_bitmap_alloc();
    hwloc_obj_t core = NULL;
    int n = 0;

    *nodes = 0;
    while (seen && n < max && (core = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_CORE, core))) {
        int cpu = core->cpuset ? hwloc_bitmap_first(core->cpuset) : -1;

        if (cpu < 0)
            continue;
        cpus[n++] = cpu;
        if (core->nodeset && hwloc_bitmap_first(core->nodeset) >= 0 && !hwloc_bitmap_isset(seen, hwloc_bitmap_first(core->nodeset))) {
            hwloc_bitmap_set(seen, hwloc_bitmap_first(core->nodeset));
            (*nodes)++;
        }
    }
    hwloc_bitmap_free(seen);
    if (*nodes < 1)
        *nodes = 1;
    return n;
}

int topology_from_synthetic(const char *description, int *cpus, int max, int *nodes)
{
    hwloc_topology_t t;
    int n = -1;

    if (hwloc_topology_init(&t) < 0)
        return -1;
    if (hwloc_topology_set_synthetic(t, description) == 0 && hwloc_topology_load(t) == 0)
        n = read_topology(t, cpus, max, nodes);
    hwloc_topology_destroy(t);
    return n;
}

int topology_quota(const char *cpu_max)
{
    long quota, period;

    if (sscanf(cpu_max, "%ld %ld", &quota, &period) != 2 || quota <= 0 || period <= 0 || quota / period >= CORES_MAX)
        return 0;
    return (int)((quota + period - 1) / period);
}

static int cgroup_quota(void)
{
    char text[64];
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    int n = 0;

    if (!f)
        return 0;
    if (fgets(text, sizeof text, f))
        n = topology_quota(text);
    fclose(f);
    return n;
}

static void read_machine(void)
{
    hwloc_topology_t t;
    int quota = cgroup_quota();

    if (hwloc_topology_init(&t) == 0) {
        if (hwloc_topology_load(t) == 0)
            machine.n = read_topology(t, machine.cpus, CORES_MAX, &machine.nodes);
        hwloc_topology_destroy(t);
    }
    if (machine.n < 1) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);

        machine.n = online > 0 && online < CORES_MAX ? (int)online : 1;
        machine.nodes = 1;
        for (int i = 0; i < machine.n; i++)
            machine.cpus[i] = i;
    }
    machine.threads = quota > 0 && quota < machine.n ? quota : machine.n;
}

int topology_cores(void)
{
    pthread_once(&once, read_machine);
    return machine.n;
}

int topology_default_threads(void)
{
    pthread_once(&once, read_machine);
    return machine.threads;
}

int topology_core_cpus(int *cpus, int max)
{
    int n;

    pthread_once(&once, read_machine);
    n = machine.n < max ? machine.n : max;
    memcpy(cpus, machine.cpus, (size_t)n * sizeof *cpus);
    return n;
}

int topology_nodes(void)
{
    pthread_once(&once, read_machine);
    return machine.nodes;
}
