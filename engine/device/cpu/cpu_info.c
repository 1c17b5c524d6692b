/* Properties of the processor without an open device: its name and memory, the kernels and their
 * preferences (device.h), whether oneDNN would multiply BF16. Any thread. */
#include "engine/device/cpu/cpu.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void cpu_name(char *name, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");

    snprintf(name, size, "CPU");
    if (!f)
        return;
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = 0;
            snprintf(name, size, "%s", colon + 1 + strspn(colon + 1, " "));
            break;
        }
    }
    fclose(f);
}

int cpu_probe(struct device_info *out, int max, char *why, size_t why_size)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    if (why_size)
        why[0] = 0;
    if (max > 0) {
        memset(out, 0, sizeof *out);
        cpu_name(out->name, sizeof out->name);
        out->is_cpu_type = out->unified = true;
        out->memory = out->max_alloc = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    }
    return 1;
}

bool cpu_uses_bf16(bool exact)
{
    return !exact && onednn_has_bf16();
}

int cpu_kernels_select(const char *name, struct error *e)
{
    return kernels_select(name, e);
}

const char *cpu_kernels_name(void)
{
    return kernels_active()->name;
}

int cpu_pack_width(void)
{
    return kernels_active()->width;
}

bool cpu_reads_raw(enum dtype type)
{
    return kernels_active()->dot_raw[type] != NULL;
}
