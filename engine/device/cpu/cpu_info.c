/* Properties of the processor without an open device: its name and memory, the kernels and their
 * preferences (device.h), whether oneDNN would multiply BF16. Any thread. */
#include "engine/base/cpu_name.h"
#include "engine/device/cpu/cpu.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "" when there is no such file. */
static void read_text(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "re");

    text[f ? fread(text, 1, size - 1, f) : 0] = 0;
    if (f)
        fclose(f);
}

static void cpu_name(char *name, size_t size)
{
    char text[16 << 10]; /* the first cores of more than a hundred suffice */
    char board[128];

    snprintf(name, size, "CPU");
    read_text("/proc/device-tree/model", board, sizeof board);
    read_text("/proc/cpuinfo", text, sizeof text);
    cpu_name_from(text, board, name, size);
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
