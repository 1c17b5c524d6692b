/* app/system: what /proc and /sys say, from a machine made of files, and from this one. */
#include "app/common/energy.h"
#include "app/common/memory_left.h"
#include "app/common/system_sample.h"
#include "engine/base/control_group.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"
#include "engine/base/file.h"
#include "tests/support.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char root[256];
static struct error e;

static void put(const char *path, const char *text)
{
    char full[512], *slash;

    snprintf(full, sizeof full, "%s%s", root, path);
    slash = strrchr(full, '/');
    *slash = 0;
    ck_assert_int_eq(file_make_folders(full, &e), 0);
    *slash = '/';
    ck_assert_msg(file_replace(full, text, strlen(text), &e) == 0, "%s", e.text);
}

static void machine(void)
{
    snprintf(root, sizeof root, "%s/machine", support_tmpdir());
    put("/proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0\ncpu1 50 0 50 400 "
                      "0 0 0 0\nintr 1\n");
    put("/proc/cpuinfo", "processor : 0\nmodel name\t: Test CPU 9000\ncpu MHz\t\t: "
                         "2000.5\n\nprocessor : 1\ncpu MHz : 3000.5\n");
    put("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nSwapTotal: 50 "
                         "kB\nSwapFree: 20 kB\n");
    put("/proc/self/status",
        "Name:\tx\nVmHWM:\t  300 kB\nVmRSS:\t  200 kB\nRssFile:\t 60 kB\nVmSwap:\t 7 kB\n");
    put("/proc/self/io",
        "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\n");
    put("/proc/self/stat", "1 (a ) b) R 1 1 1 0 -1 4194560 100 0 17 0 1 2\n");
    put("/proc/self/cgroup", "0::/outer/inner\n");
    put("/sys/fs/cgroup/outer/memory.max", "500000\n");
    put("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    put("/proc/diskstats",
        "   8 0 sda 10 0 80 5 20 0 160 9 0 1 1\n   8 1 sda1 10 0 80 5 20 0 160 9 0 1 1\n"
        " 259 0 nvme0n1 100 0 1 1 200 0 1 1 0 1 1\n 259 1 nvme0n1p1 7 0 1 1 7 0 1 1 0 1 1\n   7 0 "
        "loop0 9 0 9 9 9 0 9 9 0 9 9\n");
    put("/sys/class/hwmon/hwmon0/name", "nvme\n");
    put("/sys/class/hwmon/hwmon0/temp1_input", "30000\n");
    put("/sys/class/hwmon/hwmon1/name", "k10temp\n");
    put("/sys/class/hwmon/hwmon1/temp1_input", "61500\n");
    put("/proc/self/task/11/stat", "11 (w x) R 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 "
                                   "0 0 0 0 0 0 0 0 0 1 0 0 0 0\n");
    put("/proc/self/task/11/schedstat", "1000000 5 6\n");
}

START_TEST(every_sensor_is_read)
{
    static struct system_sample s;
    struct system *sys;

    machine();
    sys = system_new(root);
    ck_assert_str_eq(system_cpu_name(sys), "Test CPU 9000");
    system_read(sys, &s);
    ck_assert_int_eq(s.n_cores, 2);
    /* nothing to compare with yet */
    ck_assert(isnan(s.system_use) && isnan(s.core_use[0]) && isnan(s.process_cores));
    ck_assert_float_eq_tol(s.mhz, 2500.5f, 0.1f);
    ck_assert_float_eq_tol(s.core_mhz[1], 3000.5f, 0.1f);
    ck_assert_float_eq_tol(s.temperature, 61.5f, 0.01f);
    ck_assert_uint_eq(s.rss, 200 * 1024);
    ck_assert_uint_eq(s.rss_peak, 300 * 1024);
    ck_assert_uint_eq(s.rss_file, 60 * 1024);
    ck_assert_uint_eq(s.process_swap, 7 * 1024);
    ck_assert_uint_eq(s.memory_total, 1000 * 1024);
    ck_assert_uint_eq(s.memory_free, 100 * 1024);
    ck_assert_uint_eq(s.memory_available, 400 * 1024);
    ck_assert_uint_eq(s.memory_limit, 500000);
    ck_assert_uint_eq(s.swap_used, 30 * 1024);
    ck_assert_uint_eq(s.read_bytes, 4096);
    ck_assert_uint_eq(s.write_calls, 4);
    ck_assert_uint_eq(s.major_faults, 17);
    ck_assert_uint_eq(s.disk_reads, 110); /* whole disks only */
    ck_assert_uint_eq(s.disk_writes, 220);
    /* 200 ticks on: core 0 busy for 75 of 100, core 1 idle */
    put("/proc/stat", "cpu  175 0 100 925 0 0 0 0 0 0\ncpu0 125 0 50 425 0 0 0 0\ncpu1 50 0 50 500 "
                      "0 0 0 0\nintr 1\n");
    put("/proc/self/task/11/schedstat", "900000000000 5 6\n");
    system_read(sys, &s);
    ck_assert_float_eq_tol(s.system_use, 0.375f, 1e-4f);
    ck_assert_float_eq_tol(s.core_use[0], 0.75f, 1e-4f);
    ck_assert_float_eq_tol(s.core_use[1], 0, 1e-6f);
    ck_assert_float_eq_tol(s.core_process_use[0], 0, 1e-6f);
    /* a thread's core, at most whole */
    ck_assert_float_eq_tol(s.core_process_use[1], 1, 1e-6f);
    system_free(sys);
}
END_TEST

static void expect_group(uint64_t limit, uint64_t left)
{
    struct memory_group g;

    memory_group_read(root, &g);
    ck_assert_uint_eq(g.limit, limit);
    ck_assert_uint_eq(g.left, left);
}

/* Version 1, as it looks from the host: the limit of a group above counts, and what its files in
 * memory take can be had again. */
/* Two packages with memory, of which one counter runs over; parts of a package are not added. */
START_TEST(energy_is_counted)
{
    struct energy_reading r;
    struct energy *g;
    char path[600];

    machine();
    for (int p = 0; p < 2; p++) {
        snprintf(path, sizeof path, "/sys/class/powercap/intel-rapl:%d/name", p);
        put(path, p ? "package-1\n" : "package-0\n");
        snprintf(path, sizeof path, "/sys/class/powercap/intel-rapl:%d/max_energy_range_uj", p);
        put(path, "10000000\n");
        snprintf(path, sizeof path, "/sys/class/powercap/intel-rapl:%d/energy_uj", p);
        put(path, p ? "9000000\n" : "1000000\n");
    }
    put("/sys/class/powercap/intel-rapl:0:0/name", "core\n");
    put("/sys/class/powercap/intel-rapl:0:0/energy_uj", "5\n");
    put("/sys/class/powercap/intel-rapl:0:1/name", "dram\n");
    put("/sys/class/powercap/intel-rapl:0:1/energy_uj", "100\n");
    put("/sys/class/powercap/intel-rapl:2/name", "psys\n");
    put("/sys/class/powercap/intel-rapl:2/energy_uj", "7\n");
    put("/sys/class/drm/card1/device/hwmon/hwmon4/energy1_input", "2000000\n");
    put("/sys/class/power_supply/AC/type", "Mains\n");
    put("/sys/class/power_supply/BAT0/type", "Battery\n");
    put("/sys/class/power_supply/BAT0/status", "Discharging\n");
    put("/sys/class/power_supply/BAT0/current_now", "2000000\n");
    put("/sys/class/power_supply/BAT0/voltage_now", "12500000\n");
    g = energy_new(root);
    ck_assert_str_eq(energy_why(g), "");
    energy_read(g, &r);
    ck_assert_double_eq(r.joules[ENERGY_PACKAGE], 0);
    ck_assert(isnan(r.watts[ENERGY_PACKAGE]));
    ck_assert_float_eq_tol(r.battery_watts, 25, 1e-4);
    put("/sys/class/powercap/intel-rapl:0/energy_uj", "3500000\n"); /* 2.5 J */
    put("/sys/class/powercap/intel-rapl:1/energy_uj", "500000\n");  /* over: 1.5 J */
    put("/sys/class/powercap/intel-rapl:0:1/energy_uj", "250100\n");
    put("/sys/class/powercap/intel-rapl:0:0/energy_uj", "900000\n");
    put("/sys/class/powercap/intel-rapl:2/energy_uj", "99000000\n");
    put("/sys/class/drm/card1/device/hwmon/hwmon4/energy1_input", "5000000\n");
    put("/sys/class/power_supply/BAT0/power_now", "30000000\n");
    energy_read(g, &r);
    ck_assert_double_eq_tol(r.joules[ENERGY_PACKAGE], 4.25, 1e-9);
    ck_assert_double_eq_tol(r.joules[ENERGY_GPU], 3, 1e-9);
    ck_assert(r.watts[ENERGY_PACKAGE] > 0 && r.watts[ENERGY_GPU] > 0);
    ck_assert_float_eq_tol(r.battery_watts, 30, 1e-4);
    put("/sys/class/power_supply/BAT0/status", "Charging\n");
    snprintf(path, sizeof path, "%s/sys/class/powercap/intel-rapl:0/energy_uj", root);
    ck_assert_int_eq(unlink(path), 0);
    put("/sys/class/powercap/intel-rapl:1/energy_uj", "nonsense\n");
    energy_read(g, &r); /* what went away adds nothing more */
    ck_assert_double_eq_tol(r.joules[ENERGY_PACKAGE], 4.25, 1e-9);
    ck_assert(isnan(r.battery_watts));
    energy_free(g);
}
END_TEST

/* A sensor of power alone, and counters that are not there or not for us. */
START_TEST(energy_says_why_not)
{
    struct energy_reading r;
    struct energy *g;
    char path[600];

    machine();
    put("/sys/class/drm/card0-HDMI-A-1/device/hwmon/hwmon9/power1_average", "1\n");
    put("/sys/class/drm/card0/device/hwmon/hwmon2/power1_average", "15500000\n");
    g = energy_new(root);
    ck_assert_ptr_nonnull(strstr(energy_why(g), "tells of no counters"));
    energy_read(g, &r);
    ck_assert(isnan(r.joules[ENERGY_PACKAGE]) && isnan(r.joules[ENERGY_GPU]));
    ck_assert_float_eq_tol(r.watts[ENERGY_GPU], 15.5f, 1e-4);
    ck_assert(isnan(r.battery_watts));
    energy_free(g);
    put("/sys/class/powercap/intel-rapl:0/name", "package-0\n");
    put("/sys/class/powercap/intel-rapl:0/energy_uj", "1000000\n");
    snprintf(path, sizeof path, "%s/sys/class/powercap/intel-rapl:0/energy_uj", root);
    ck_assert_int_eq(chmod(path, 0), 0);
    g = energy_new(root);
    if (access(path, R_OK) < 0) /* root may read everything */
        ck_assert_ptr_nonnull(strstr(energy_why(g), "sudo chmod a+r"));
    energy_free(g);
}
END_TEST

START_TEST(memory_groups_of_version_1)
{
    snprintf(root, sizeof root, "%s/v1", support_tmpdir());
    put("/proc/self/cgroup", "12:cpuset,cpu:/x\n5:memory:/outer/inner\n1:name=systemd:/x\n0::/x\n");
    put("/proc/self/mountinfo",
        "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "36 24 0:30 / /sys/fs/cgroup/mem rw,nosuid shared:1 - cgroup cgroup rw,memory\n");
    put("/sys/fs/cgroup/mem/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/mem/outer/memory.limit_in_bytes", "500000\n");
    put("/sys/fs/cgroup/mem/outer/memory.usage_in_bytes", "300000\n");
    put("/sys/fs/cgroup/mem/outer/memory.use_hierarchy", "1\n");
    put("/sys/fs/cgroup/mem/outer/memory.stat",
        "cache 5\ntotal_inactive_file 100000\ntotal_active_file 50000\n");
    put("/sys/fs/cgroup/mem/outer/inner/memory.limit_in_bytes", "600000\n");
    put("/sys/fs/cgroup/mem/outer/inner/memory.usage_in_bytes", "100000\n");
    expect_group(500000, 350000);
    ck_assert_uint_eq(memory_left(root), 350000);
    put("/proc/meminfo", "MemTotal: 900 kB\nMemAvailable:  200 kB\n");
    ck_assert_uint_eq(memory_left(root), 200 * 1024); /* the machine has less than the group */
    /* the machine's says nothing of a group with a limit */
    put("/proc/pressure/memory", "some avg10=9.00 avg60=0.00 avg300=0.00 total=77\n");
    ck_assert_uint_eq(memory_stalled(root), UINT64_MAX);
    /* it counts its own processes alone */
    put("/sys/fs/cgroup/mem/outer/memory.use_hierarchy", "0\n");
    expect_group(600000, 500000);
    put("/sys/fs/cgroup/mem/outer/inner/memory.limit_in_bytes", "9223372036854771712\n");
    expect_group(SYSTEM_UNKNOWN, SYSTEM_UNKNOWN);
}
END_TEST

START_TEST(waiting_for_memory_is_told)
{
    snprintf(root, sizeof root, "%s/stalls", support_tmpdir());
    ck_assert_uint_eq(memory_stalled(root), UINT64_MAX);
    put("/proc/pressure/memory", "full avg10=0.00 avg60=0.00 avg300=0.07 total=15950779\n");
    ck_assert_uint_eq(memory_stalled(root), UINT64_MAX);
    put("/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.08\nfull total=5\n");
    ck_assert_uint_eq(memory_stalled(root), UINT64_MAX);
    put("/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.08 total=27737923\n"
                                 "full avg10=0.00 avg60=0.00 avg300=0.07 total=15950779\n");
    ck_assert_uint_eq(memory_stalled(root), 27737923);
    /* a group's own goes before the machine's, whatever limit it has */
    put("/proc/self/cgroup", "0::/job\n");
    put("/proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
    put("/sys/fs/cgroup/job/memory.pressure", "some avg10=1.00 avg60=0.00 avg300=0.08 total=41\n");
    ck_assert_uint_eq(memory_stalled(root), 41);
    put("/sys/fs/cgroup/job/memory.max", "900000\n");
    ck_assert_uint_eq(memory_stalled(root), 41);
}
END_TEST

/* In a container: the path is the host's, but only what is below it is mounted; or it lies outside
 * of what can be seen. */
START_TEST(memory_groups_in_a_container)
{
    snprintf(root, sizeof root, "%s/container", support_tmpdir());
    put("/proc/self/cgroup", "5:memory:/docker/abc/job\n");
    put("/proc/self/mountinfo",
        "36 24 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "390000\n");
    put("/sys/fs/cgroup/memory/memory.use_hierarchy", "1\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "300000\n");
    expect_group(300000, 10000);
    put("/proc/self/cgroup", "5:memory:/../elsewhere\n");
    expect_group(400000, 10000);
    put("/proc/self/mountinfo", ""); /* where it usually is */
    put("/proc/self/cgroup", "5:memory:/\n");
    expect_group(400000, 10000);
}
END_TEST

START_TEST(memory_groups_of_version_2)
{
    snprintf(root, sizeof root, "%s/v2", support_tmpdir());
    put("/proc/self/cgroup", "5:memory:/old\n0::/a/b\n");
    put("/proc/self/mountinfo", "36 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/unified/a/memory.max", "800000\n");
    put("/sys/fs/cgroup/unified/a/memory.current", "700000\n");
    put("/sys/fs/cgroup/unified/a/memory.stat", "anon 1\ninactive_file 30000\nactive_file 20000\n");
    put("/sys/fs/cgroup/unified/a/b/memory.max", "max\n");
    expect_group(800000, 150000);
    /* both at once: the smaller counts */
    put("/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "700000\n");
    expect_group(700000, 150000);
}
END_TEST

/* A machine that tells nothing: every figure is unknown and none is zero. */
START_TEST(missing_is_not_zero)
{
    static struct system_sample s;
    struct system *sys = system_new("/no/such/place");

    system_read(sys, &s);
    system_read(sys, &s);
    ck_assert_int_eq(s.n_cores, 0);
    ck_assert(isnan(s.system_use) && isnan(s.mhz) && isnan(s.temperature));
    ck_assert(s.rss == SYSTEM_UNKNOWN && s.memory_available == SYSTEM_UNKNOWN &&
              s.swap_used == SYSTEM_UNKNOWN && s.memory_limit == SYSTEM_UNKNOWN &&
              s.read_bytes == SYSTEM_UNKNOWN && s.major_faults == SYSTEM_UNKNOWN &&
              s.disk_reads == SYSTEM_UNKNOWN);
    ck_assert_str_eq(system_cpu_name(sys), "");
    system_free(sys);
}
END_TEST

/* Boards with 64-bit Arm name no model, and their sensors otherwise. */
START_TEST(an_arm_board_is_named)
{
    static const struct {
        const char *cpuinfo, *board, *want;
    } machines[] = {
        {"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\nprocessor\t: 4\n"
         "CPU implementer\t: 0x41\nCPU part\t: 0xd0b\n",
         "Radxa ROCK 5B", "Radxa ROCK 5B, Cortex-A76 + Cortex-A55"},
        {"CPU implementer\t: 0x41\nCPU part\t: 0xd40\nCPU implementer\t: 0x41\nCPU part\t: "
         "0xd40\n",
         "", "Neoverse-V1"},
        {"CPU implementer\t: 0x99\nCPU part\t: 0x123\n", "", "Arm part 0x123 of 0x99"},
        {"CPU part : 0xd40\nCPU implementer : nonsense\nCPU part", "A board", "A board"},
        {"", "", ""},
    };
    static struct system_sample s;
    struct system *sys;

    machine();
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        put("/proc/cpuinfo", machines[i].cpuinfo);
        put("/proc/device-tree/model", machines[i].board);
        sys = system_new(root);
        ck_assert_str_eq(system_cpu_name(sys), machines[i].want);
        system_free(sys);
    }
    put("/sys/class/hwmon/hwmon1/name", "gpu_thermal\n");
    put("/sys/class/thermal/thermal_zone0/type", "gpu-thermal\n");
    put("/sys/class/thermal/thermal_zone0/temp", "11000\n");
    put("/sys/class/thermal/thermal_zone1/type", "cpu-thermal\n");
    put("/sys/class/thermal/thermal_zone1/temp", "48250\n");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1800000\n");
    put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "2400000\n");
    sys = system_new(root);
    system_read(sys, &s);
    ck_assert_float_eq_tol(s.temperature, 48.25f, 0.01f);
    ck_assert_float_eq_tol(s.mhz, 2100.0f, 0.1f);
    system_free(sys);
}
END_TEST

START_TEST(nonsense_does_no_harm)
{
    static struct system_sample s;
    struct system *sys;

    machine();
    put("/proc/stat", "cpu  99999999999999999999 x\ncpu-5 1 2 3 4\ncpu999999 1 1 1 1\ncpu");
    put("/proc/cpuinfo", "cpu MHz");
    put("/proc/meminfo", "MemTotal: lots\nMemAvailable:");
    put("/proc/self/status", "");
    put("/proc/self/stat", "1 (");
    put("/proc/diskstats", "a b c\n\n 8 0 sda");
    put("/proc/self/cgroup", "0::");
    put("/proc/self/task/11/stat", ")");
    sys = system_new(root);
    system_read(sys, &s);
    system_read(sys, &s);
    ck_assert_uint_eq(s.memory_total, SYSTEM_UNKNOWN);
    ck_assert_uint_eq(s.rss, SYSTEM_UNKNOWN);
    system_free(sys);
}
END_TEST

static void *burn(void *until)
{
    struct timespec t;
    volatile double x = 1;

    do {
        for (int i = 0; i < 100000; i++)
            x = x * 1.0000001 + 1e-9;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec * 1e-9 < *(double *)until);
    return NULL;
}

/* This machine, against an independent account: the process's own CPU clock and getrusage-like
 * figures of /proc. */
START_TEST(this_machine_agrees_with_a_second_account)
{
    static struct system_sample s;
    struct system *sys = system_new("");
    double until = 0.25, cores = 0, wall, busy;
    pthread_t other;
    struct timespec a, b, c, d;
    char *block = malloc(32 << 20);
    uint64_t rss;

    system_read(sys, &s);
    rss = s.rss;
    ck_assert_int_ge(s.n_cores, 1);
    ck_assert_uint_le(s.rss, s.memory_total);
    clock_gettime(CLOCK_MONOTONIC, &a);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &c);
    for (size_t i = 0; i < 32 << 20; i += 4096)
        ((volatile char *)block)[i] = 1;
    pthread_create(&other, NULL, burn, &until);
    burn(&until);
    pthread_join(other, NULL);
    clock_gettime(CLOCK_MONOTONIC, &b);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &d);
    system_read(sys, &s);
    wall = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
    busy = (double)(d.tv_sec - c.tv_sec) + (double)(d.tv_nsec - c.tv_nsec) * 1e-9;
    ck_assert_double_eq_tol(s.process_cores, busy / wall, 0.1);
    ck_assert_uint_ge(s.rss, rss + (24 << 20));
    ck_assert_uint_ge(s.rss_peak, s.rss);
    for (int i = 0; i < s.n_cores; i++)
        cores += s.core_process_use[i];
    /* the thread that is still alive is found on some core */
    ck_assert_double_ge(cores, 0.05);
    free(block);
    system_free(sys);
}
END_TEST

/* Measuring the memory's speed takes a buffer of 64 MiB or more, which is not the program's. */
START_TEST(the_meter_is_not_ours)
{
    struct system *s = system_new("");
    struct system_sample *before = mem_alloc(1, sizeof *before),
                         *after = mem_alloc(1, sizeof *after);

    system_read(s, before);
    ck_assert(membw_held().now == 0);
    ck_assert(membw_read(NULL, 0, 1, 20) > 0);
    ck_assert(membw_held().now == 0 && membw_held().most >= (uint64_t)64 << 20);
    system_read(s, after);
    ck_assert_msg(after->rss_peak < before->rss_peak + ((uint64_t)32 << 20), "%llu after %llu",
                  (unsigned long long)after->rss_peak, (unsigned long long)before->rss_peak);
    ck_assert(after->rss_peak >= after->rss);
    mem_free(before);
    mem_free(after);
    system_free(s);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("system");
    TCase *t = tcase_create("system");

    tcase_add_test(t, every_sensor_is_read);
    tcase_add_test(t, energy_is_counted);
    tcase_add_test(t, energy_says_why_not);
    tcase_add_test(t, memory_groups_of_version_1);
    tcase_add_test(t, waiting_for_memory_is_told);
    tcase_add_test(t, memory_groups_in_a_container);
    tcase_add_test(t, memory_groups_of_version_2);
    tcase_add_test(t, missing_is_not_zero);
    tcase_add_test(t, an_arm_board_is_named);
    tcase_add_test(t, nonsense_does_no_harm);
    tcase_add_test(t, this_machine_agrees_with_a_second_account);
    tcase_add_test(t, the_meter_is_not_ours);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
