/* Sampling of /proc and /sys. One thread at a time, nothing allocated after system_new.
 * Small files are read whole into one buffer and parsed by their labels, so that a kernel that
 * adds, drops or reorders lines makes a sensor unavailable but never wrong. */
#include "app/common/system_sample.h"

#include "engine/base/control_group.h"
#include "engine/base/cpu_name.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS 512
#define SAMPLES_A_PLACE 64 /* then this process's control groups are looked for again */

struct thread_time {
    int tid;
    uint64_t ns;
    uint32_t seen; /* sample number: entries of ended threads are dropped */
};

struct system {
    char root[512];
    char cpu_name[96];
    char temperature_path[600]; /* empty: no sensor found */
    bool scaling;               /* cpufreq files exist */
    long tick_ns, page;
    uint32_t samples;
    uint64_t last_time, last_cpu;
    uint64_t resident, peak; /* resident memory of the last sample, and the most so far */
    uint64_t busy[SYSTEM_CORES + 1], total[SYSTEM_CORES + 1]; /* last entry: all */
    struct memory_group_place groups;
    int n_threads;
    struct thread_time threads[THREADS];
    char text[64 * 1024]; /* the file being read */
};

/* Reads ROOT/path into s->text; 0 bytes when it cannot be read. */
static size_t slurp(struct system *s, const char *path)
{
    char full[1200];
    size_t n = 0;
    ssize_t got;
    int fd;

    s->text[0] = 0;
    snprintf(full, sizeof full, "%s%s", s->root, path);
    if ((fd = open(full, O_RDONLY | O_CLOEXEC)) < 0)
        return 0;
    while (n < sizeof s->text - 1 && (got = read(fd, s->text + n, sizeof s->text - 1 - n)) > 0)
        n += (size_t)got;
    close(fd);
    s->text[n] = 0;
    return n;
}

/* The line "LABEL <number>" of s->text; SYSTEM_UNKNOWN when there is none. */
static uint64_t labelled(const struct system *s, const char *label)
{
    size_t n = strlen(label);

    for (const char *p = s->text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (!strncmp(p, label, n)) {
            char *end;
            unsigned long long v = strtoull(p + n, &end, 10);

            return end == p + n ? SYSTEM_UNKNOWN : v;
        }
    return SYSTEM_UNKNOWN;
}

static uint64_t kilobytes(const struct system *s, const char *label)
{
    uint64_t v = labelled(s, label);

    return v == SYSTEM_UNKNOWN ? v : v * 1024;
}

static float number_file(struct system *s, const char *path)
{
    char *end;
    double v;

    if (!slurp(s, path))
        return NAN;
    v = strtod(s->text, &end);
    return end == s->text ? NAN : (float)v;
}

/* ---- found once, at the start ---- */

static void find_cpu_name(struct system *s)
{
    char board[128] = "";

    if (slurp(s, "/proc/device-tree/model"))
        snprintf(board, sizeof board, "%.*s", (int)strcspn(s->text, "\n"), s->text);
    if (slurp(s, "/proc/cpuinfo"))
        cpu_name_from(s->text, board, s->cpu_name, sizeof s->cpu_name);
}

/* A CPU sensor of hwmon, else the package's thermal zone; Arm boards name the one after the other,
 * with a hyphen or without. */
static void find_temperature(struct system *s)
{
    static const char *const chips[] = {"coretemp",    "k10temp",          "zenpower",
                                        "cpu_thermal", "bigcore0_thermal", "soc_thermal",
                                        "apm_xgene"};
    static const char *const zones[] = {"x86_pkg_temp", "cpu-thermal",      "cpu_thermal",
                                        "CPU-therm",    "bigcore0-thermal", "cpu0-thermal",
                                        "soc-thermal"};
    char path[64];

    for (int i = 0; i < 32; i++) {
        snprintf(path, sizeof path, "/sys/class/hwmon/hwmon%d/name", i);
        if (!slurp(s, path))
            continue;
        s->text[strcspn(s->text, "\n")] = 0;
        for (size_t c = 0; c < sizeof chips / sizeof *chips; c++)
            if (!strcmp(s->text, chips[c])) {
                snprintf(s->temperature_path, sizeof s->temperature_path,
                         "/sys/class/hwmon/hwmon%d/temp1_input", i);
                return;
            }
    }
    for (int i = 0; i < 32; i++) {
        snprintf(path, sizeof path, "/sys/class/thermal/thermal_zone%d/type", i);
        if (!slurp(s, path))
            continue;
        for (size_t z = 0; z < sizeof zones / sizeof *zones; z++)
            if (!strncmp(s->text, zones[z], strlen(zones[z]))) {
                snprintf(s->temperature_path, sizeof s->temperature_path,
                         "/sys/class/thermal/thermal_zone%d/temp", i);
                return;
            }
    }
}

struct system *system_new(const char *root)
{
    struct system *s = mem_alloc(1, sizeof *s);

    if (!s)
        return NULL;
    snprintf(s->root, sizeof s->root, "%s", root);
    s->tick_ns = 1000000000L / sysconf(_SC_CLK_TCK);
    s->page = sysconf(_SC_PAGESIZE);
    find_cpu_name(s);
    find_temperature(s);
    s->scaling = !isnan(number_file(s, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"));
    return s;
}

void system_free(struct system *s)
{
    mem_free(s);
}

const char *system_cpu_name(const struct system *s)
{
    return s->cpu_name;
}

/* ---- CPU ---- */

/* One "cpuN ..." line of /proc/stat: share busy since the last sample. Idle and iowait are not
 * busy; guest time is inside user. */
static float cpu_line(struct system *s, const char *numbers, int slot)
{
    unsigned long long v[8] = {0};
    uint64_t total = 0, busy;
    float share = NAN;
    int n = sscanf(numbers, "%llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1, v + 2, v + 3,
                   v + 4, v + 5, v + 6, v + 7);

    if (n < 4)
        return NAN;
    for (int i = 0; i < 8; i++)
        total += v[i];
    busy = total - v[3] - v[4];
    /* idle and iowait may decrease by a tick on some kernels */
    if (s->samples && total > s->total[slot])
        share = busy > s->busy[slot]
                    ? (float)(busy - s->busy[slot]) / (float)(total - s->total[slot])
                    : 0;
    s->total[slot] = total;
    s->busy[slot] = busy;
    return share > 1 ? 1 : share;
}

static void read_cpu(struct system *s, struct system_sample *out)
{
    out->system_use = NAN;
    for (int i = 0; i < SYSTEM_CORES; i++)
        out->core_use[i] = out->core_process_use[i] = out->core_mhz[i] = NAN;
    slurp(s, "/proc/stat");
    for (const char *p = s->text; !strncmp(p, "cpu", 3);) {
        char *end;

        if (p[3] == ' ') {
            out->system_use = cpu_line(s, p + 4, SYSTEM_CORES);
        } else {
            long core = strtol(p + 3, &end, 10);

            if (core >= 0 && core < SYSTEM_CORES)
                out->core_use[core] = cpu_line(s, end, (int)core);
            if (core >= 0 && core + 1 > out->n_cores)
                out->n_cores = (int)core + 1;
        }
        if (!(p = strchr(p, '\n')))
            break;
        p++;
    }
}

static void read_frequency(struct system *s, struct system_sample *out)
{
    double sum = 0;
    int n = 0, core = 0;

    if (s->scaling) {
        for (int i = 0; i < out->n_cores && i < SYSTEM_CORES; i++) {
            char path[80];

            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
                     i);
            out->core_mhz[i] = number_file(s, path) / 1000;
        }
    } else {
        slurp(s, "/proc/cpuinfo");
        for (const char *p = s->text; (p = strstr(p, "cpu MHz")) && core < SYSTEM_CORES; p++)
            if ((p = strchr(p, ':')))
                out->core_mhz[core++] = strtof(p + 1, NULL);
            else
                break;
    }
    for (int i = 0; i < out->n_cores && i < SYSTEM_CORES; i++)
        if (!isnan(out->core_mhz[i])) {
            sum += out->core_mhz[i];
            n++;
        }
    out->mhz = n ? (float)(sum / n) : NAN;
}

/* ---- threads of this process ---- */

static struct thread_time *thread_slot(struct system *s, int tid)
{
    for (int i = 0; i < s->n_threads; i++)
        if (s->threads[i].tid == tid)
            return &s->threads[i];
    for (int i = 0; i < s->n_threads; i++)
        if (s->threads[i].seen + 1 < s->samples) {
            s->threads[i] = (struct thread_time){.tid = tid, .ns = SYSTEM_UNKNOWN};
            return &s->threads[i];
        }
    if (s->n_threads == THREADS)
        return NULL;
    s->threads[s->n_threads] = (struct thread_time){.tid = tid, .ns = SYSTEM_UNKNOWN};
    return &s->threads[s->n_threads++];
}

/* CPU time of one thread, how long it waited for a CPU (SYSTEM_UNKNOWN: unknown), and the core it
 * ran on last. */
static bool thread_stat(struct system *s, int tid, uint64_t *ns, uint64_t *delay, int *core)
{
    char path[64], *p, *next;
    unsigned long long user = 0, kernel = 0, run, waited;
    int told;
    int at = 3;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    /* The name in brackets may contain anything, so fields are counted from the last bracket. */
    if (!slurp(s, path) || !(p = strrchr(s->text, ')')))
        return false;
    *core = -1;
    for (p = strtok_r(p + 2, " ", &next); p; p = strtok_r(NULL, " ", &next), at++) {
        if (at == 14)
            user = strtoull(p, NULL, 10);
        else if (at == 15)
            kernel = strtoull(p, NULL, 10);
        else if (at == 39)
            *core = atoi(p);
    }
    *ns = (user + kernel) * (uint64_t)s->tick_ns;
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
    told = slurp(s, path) ? sscanf(s->text, "%llu %llu", &run, &waited) : 0;
    if (told >= 1 && run)
        *ns = run; /* nanoseconds instead of ticks */
    *delay = told == 2 && run ? waited : SYSTEM_UNKNOWN;
    return true;
}

static void read_threads(struct system *s, struct system_sample *out, uint64_t elapsed)
{
    char path[560];
    struct dirent *d;
    DIR *dir;

    snprintf(path, sizeof path, "%s/proc/self/task", s->root);
    if (!(dir = opendir(path)))
        return;
    for (int i = 0; s->samples && i < out->n_cores && i < SYSTEM_CORES; i++)
        out->core_process_use[i] = 0;
    while ((d = readdir(dir))) {
        int tid = atoi(d->d_name), core;
        struct thread_time *t;
        uint64_t ns, delay;

        if (tid <= 0 || !thread_stat(s, tid, &ns, &delay, &core) || !(t = thread_slot(s, tid)))
            continue;
        if (delay != SYSTEM_UNKNOWN)
            out->delay_ns = (out->delay_ns == SYSTEM_UNKNOWN ? 0 : out->delay_ns) + delay;
        /* A thread created since the last sample has used all its time since then. */
        if (t->ns == SYSTEM_UNKNOWN)
            t->ns = 0;
        if (s->samples && elapsed && core >= 0 && core < SYSTEM_CORES && ns > t->ns)
            out->core_process_use[core] += (float)((double)(ns - t->ns) / (double)elapsed);
        t->ns = ns;
        t->seen = s->samples;
    }
    closedir(dir);
    for (int i = 0; i < out->n_cores && i < SYSTEM_CORES; i++)
        if (out->core_process_use[i] > 1)
            out->core_process_use[i] = 1; /* a thread that moved brought its earlier time along */
}

/* ---- memory and disk ---- */

/* The buffer used to measure memory bandwidth is subtracted; once there was such a buffer the peak
 * is that of the samples, as the kernel's own includes the buffer. */
static void read_resident(struct system *s, struct system_sample *out)
{
    const struct membw_held held = membw_held();

    out->rss = kilobytes(s, "VmRSS:");
    out->rss_peak = kilobytes(s, "VmHWM:");
    /* the buffer is being filled, to an unknown extent: the previous sample is kept */
    if (out->rss != SYSTEM_UNKNOWN && held.now)
        out->rss = s->resident && out->rss < s->resident + held.now ? s->resident
                   : out->rss > held.now                            ? out->rss - held.now
                                                                    : 0;
    s->resident = out->rss == SYSTEM_UNKNOWN ? 0 : out->rss;
    if (held.most && out->rss != SYSTEM_UNKNOWN)
        out->rss_peak = out->rss;
    if (out->rss_peak != SYSTEM_UNKNOWN && out->rss_peak > s->peak)
        s->peak = out->rss_peak;
    if (out->rss_peak != SYSTEM_UNKNOWN)
        out->rss_peak = s->peak;
}

static void read_memory(struct system *s, struct system_sample *out)
{
    struct memory_group group;
    uint64_t swap_free;

    slurp(s, "/proc/self/status");
    read_resident(s, out);
    out->rss_file = kilobytes(s, "RssFile:");
    out->process_swap = kilobytes(s, "VmSwap:");
    slurp(s, "/proc/meminfo");
    out->memory_total = kilobytes(s, "MemTotal:");
    out->memory_free = kilobytes(s, "MemFree:");
    out->memory_available = kilobytes(s, "MemAvailable:");
    out->swap_total = kilobytes(s, "SwapTotal:");
    swap_free = kilobytes(s, "SwapFree:");
    out->swap_used = out->swap_total == SYSTEM_UNKNOWN || swap_free > out->swap_total
                         ? SYSTEM_UNKNOWN
                         : out->swap_total - swap_free;
    if (s->samples % SAMPLES_A_PLACE == 0)
        memory_group_find(s->root, &s->groups);
    memory_group_read_at(s->root, &s->groups, &group);
    out->memory_limit = group.limit;
    out->memory_left = group.left;
}

static bool is_partition_or_virtual(const char *name)
{
    size_t n = strlen(name);

    if (!strncmp(name, "loop", 4) || !strncmp(name, "ram", 3) || !strncmp(name, "dm-", 3) ||
        !strncmp(name, "md", 2) || !strncmp(name, "zram", 4))
        return true;
    if (!strncmp(name, "nvme", 4) || !strncmp(name, "mmcblk", 6))
        return strrchr(name + 4, 'p') != NULL;
    return n && name[n - 1] >= '0' && name[n - 1] <= '9' &&
           (name[0] == 's' || name[0] == 'v' || name[0] == 'h') && name[1] == 'd';
}

static void read_disk(struct system *s, struct system_sample *out)
{
    char name[64];
    unsigned long long reads, writes, faults;
    const char *p;

    slurp(s, "/proc/self/io");
    out->read_bytes = labelled(s, "read_bytes:");
    out->write_bytes = labelled(s, "write_bytes:");
    out->read_calls = labelled(s, "syscr:");
    out->write_calls = labelled(s, "syscw:");
    out->major_faults = SYSTEM_UNKNOWN;
    if (slurp(s, "/proc/self/stat") && (p = strrchr(s->text, ')')) &&
        sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %llu", &faults) == 1)
        out->major_faults = faults;
    out->disk_reads = out->disk_writes = SYSTEM_UNKNOWN;
    if (!slurp(s, "/proc/diskstats"))
        return;
    for (p = s->text; *p; p += *p == '\n') {
        if (sscanf(p, " %*d %*d %63s %llu %*u %*u %*u %llu", name, &reads, &writes) == 3 &&
            !is_partition_or_virtual(name)) {
            if (out->disk_reads == SYSTEM_UNKNOWN)
                out->disk_reads = out->disk_writes = 0;
            out->disk_reads += reads;
            out->disk_writes += writes;
        }
        p += strcspn(p, "\n");
    }
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void system_read(struct system *s, struct system_sample *out)
{
    uint64_t elapsed;

    memset(out, 0, sizeof *out);
    out->delay_ns = SYSTEM_UNKNOWN;
    out->time_ns = clock_ns(CLOCK_MONOTONIC);
    out->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    elapsed = out->time_ns - s->last_time;
    out->process_cores = s->samples && elapsed
                             ? (float)((double)(out->cpu_ns - s->last_cpu) / (double)elapsed)
                             : NAN;
    read_cpu(s, out);
    read_frequency(s, out);
    read_threads(s, out, elapsed);
    out->temperature = s->temperature_path[0] ? number_file(s, s->temperature_path) / 1000 : NAN;
    read_memory(s, out);
    read_disk(s, out);
    s->last_time = out->time_ns;
    s->last_cpu = out->cpu_ns;
    s->samples++;
}
